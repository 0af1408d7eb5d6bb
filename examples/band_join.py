"""Readings of two sensors that agree: a join without any equality, in process and without a JVM.

Run it with: python examples/band_join.py
"""

import pyarrow as pa

import watersmeet as wm

SECOND = 1_000_000


def readings(offset: float) -> pa.Table:
    """One reading per second for a minute."""
    return pa.table(
        {
            "celsius": [20 + offset + (n * 7 % 10) / 10 for n in range(60)],
            "ts": pa.array([n * SECOND for n in range(60)], pa.timestamp("us")),
        }
    )


out = wm.local.run(
    """
    SELECT i.ts, i.celsius AS inside, o.celsius AS outside
    FROM inside i, outside o
    WHERE abs(i.celsius - o.celsius) <= 0.05
    WINDOW = 3 SECONDS
    """,
    {"inside": readings(0.3), "outside": readings(0.0)},
)
print(f"{out.num_rows} pairs agree, for example {out.slice(0, 1).to_pylist()[0]}")
