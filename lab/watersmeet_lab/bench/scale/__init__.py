"""What a micro-batch of `start()` costs: measured points, and a formula that is fitted to them.

Invariant: `watersmeet_lab.bench.scale` has the command; `points` runs what is measured; `formula` knows no Spark.
"""

from watersmeet_lab.bench.scale.command import command

__all__ = ["command"]
