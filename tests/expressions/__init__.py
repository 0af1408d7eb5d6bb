"""Tests of watersmeet.expressions."""
