"""Tests of watersmeet.storage."""
