"""Joins tuple by tuple, as the papers have them: they count what they compare. NumPy and Numba only."""
