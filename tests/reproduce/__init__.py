"""Tests of watersmeet.reproduce."""
