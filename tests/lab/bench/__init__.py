"""Tests of watersmeet_lab.bench."""
