"""Tests of watersmeet.routing."""
