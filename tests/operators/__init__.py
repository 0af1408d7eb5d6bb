"""Tests of watersmeet.operators."""
