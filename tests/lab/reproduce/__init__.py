"""Tests of watersmeet_lab.reproduce."""
