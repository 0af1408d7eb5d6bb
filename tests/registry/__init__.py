"""Tests of watersmeet.registry."""
