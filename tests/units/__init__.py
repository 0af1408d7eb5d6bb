"""Tests of watersmeet.units."""
