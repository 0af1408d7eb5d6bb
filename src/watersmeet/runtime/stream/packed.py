"""A stage's processor as Spark gets it: packed, so that who only declares its state does not load the engine.

In the first micro-batch of a query Spark starts a Python process beside its driver for every stage, has it declare the stage's state, and ends it. It unpickles the
processor like every worker. The engine (Arrow, pandas, numba, DuckDB) takes more than a second of CPU to load, so there the processor stays packed.

    beside the driver     declare
    in a worker           declare, unpack, and from then on all calls go to the processor

Invariant: this module imports nothing but Python's own library, Spark, and `diary`. The state's name and types are fixed for good: under another name Spark would find nothing and begin
anew without a word.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from typing import Any, Protocol

from pyspark import cloudpickle
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from watersmeet.runtime.spark.diary import WRITER, drop_diary


class Processor(Protocol):
    """What is packed."""

    def begin(self, state: Any) -> None:
        """A task begins, whose units keep their state in this map."""

    def handle_rows(self, key: Any, rows: Iterator[Any]) -> Iterator[Any]:
        """A unit's messages of a batch to what it lets out."""


def declare_state(handle: StatefulProcessorHandle) -> Any:
    """One MapState for all of a unit: Spark builds encoders for every state variable in every task, so there is one."""
    return handle.getMapState("unit", "id string", "blob binary")


class PackedProcessor(StatefulProcessor):
    """A processor that is unpacked where it is given rows."""

    def __init__(self, processor: Processor) -> None:
        self._packed: bytes = cloudpickle.dumps(processor)
        self._processor: Processor | None = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        state = declare_state(handle)
        if not _is_beside_driver():
            processor: Processor = pickle.loads(self._packed)
            processor.begin(state)
            self._processor = processor

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        assert self._processor is not None, "the process that declares state is given no rows"
        return self._processor.handle_rows(key, rows)

    def close(self) -> None:
        pass

    def __getstate__(self) -> dict[str, Any]:
        return {"_packed": self._packed, "_processor": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if _is_beside_driver():
            drop_diary()


def _is_beside_driver() -> bool:
    """Whether this is the process that declares state, which also writes a diary of it."""
    return WRITER in sys.orig_argv
