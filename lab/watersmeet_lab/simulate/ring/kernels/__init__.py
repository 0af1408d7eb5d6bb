"""The inner loops of the simulated ring, over those of RJoin (`watersmeet.kernels.registered`). NumPy and Numba only."""
