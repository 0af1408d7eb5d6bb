"""Test a query without Spark: add rows batch by batch, and check what leaves, what is kept and what is late.

The query is the one that runs on Spark, and so is all that decides about its rows: windows, watermarks, lateness, state, batches.
"""

from watersmeet.testing.query_test import QueryTest
from watersmeet.testing.values import table

__all__ = ["QueryTest", "table"]
