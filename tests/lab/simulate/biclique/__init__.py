"""Tests of watersmeet_lab.simulate.biclique."""
