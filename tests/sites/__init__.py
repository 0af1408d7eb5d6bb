"""Tests of joins across sites."""
