"""Spark sessions and their Python workers, Spark's analyser, and what differs between versions of Spark."""
