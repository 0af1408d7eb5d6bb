"""Arrays in, row-index arrays out. NumPy and Numba only: no clock, no state, no Spark."""
