"""Trials of the benchmarks against Spark's own join: a system in a process of its own, measured batch by batch."""
