"""Tests of the laboratory, in the tree of lab/watersmeet_lab."""
