"""`watersmeet bench drivers` in parts.

- data.py: the data sets of Valsomatzis and Gounaris, which their reproduction runs, too
- run.py: every policy on them, and on Nexmark
"""

from watersmeet_lab.bench.drivers.run import command

__all__ = ["command"]
