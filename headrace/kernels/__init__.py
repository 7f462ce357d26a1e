"""Numba kernels, each where Arrow and NumPy were measured to be too slow."""
