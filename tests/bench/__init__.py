"""Tests of watersmeet.bench."""
