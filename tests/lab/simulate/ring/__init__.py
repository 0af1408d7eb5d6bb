"""Tests of watersmeet_lab.simulate.ring."""
