"""Tests of watersmeet.kernels."""
