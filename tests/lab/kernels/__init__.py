"""Tests of watersmeet_lab.kernels."""
