"""Numba kernels, for the loops in which Arrow and NumPy were measured to be too slow."""
