"""Benchmarks: one module per workload (`spark`), on shared data, measuring and report modules.

Answers are verified before times are believed, peers run in alternation, and the figure is a ratio.
"""
