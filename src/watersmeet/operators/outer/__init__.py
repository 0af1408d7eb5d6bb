"""Outer, semi and anti joins: which tuples have met a partner, and when the others leave."""
