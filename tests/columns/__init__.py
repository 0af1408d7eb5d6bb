"""Tests of watersmeet.columns."""
