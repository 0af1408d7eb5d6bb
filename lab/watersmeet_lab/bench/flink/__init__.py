"""`start()` beside Flink's interval join.

Invariant: `watersmeet_lab.bench.flink` has the command; Flink itself is imported by `job` alone, in a process of another Python.
"""

from watersmeet_lab.bench.flink.command import command

__all__ = ["command"]
