"""`python -m headrace.kernels`: compile all kernels ahead of time, as when an image is built."""

from headrace.kernels.compiling import compile_all

if __name__ == "__main__":
    compile_all()
