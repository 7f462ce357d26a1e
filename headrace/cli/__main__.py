"""`python -m headrace.cli`."""

from headrace.cli.app import main

if __name__ == "__main__":
    main()
