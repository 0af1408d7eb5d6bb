"""How results leave a task: as rows for Spark, or as files that the task writes itself.

    units can select        Deliver, Enter, Hand --select--> files                              names of files to the driver
                            Deliver, Enter, Hand --select--> nothing                            if the sink keeps nothing
    only Spark can          Deliver, Enter, Hand --rows--> Spark's SELECT --Write--> files      the names again

What comes to the driver is what Spark took for the result of a task, so it names the files of one attempt of every task, and these are complete.

Invariant: a batch that the sink has already is computed for the state alone: nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from watersmeet.columns.arrow import enlarge
from watersmeet.runtime.rounds.checkpoint import StateFolder
from watersmeet.runtime.rounds.files import Orders, this_task
from watersmeet.runtime.rounds.results.parts import PARTS_SCHEMA, Part, PartFiles, PartWriter
from watersmeet.runtime.spark.workers import AsRows, after_task, as_task

Select = Callable[[pa.Table], pa.Table]
"""What has left the last units as rows of the SELECT, by position."""


def keep(results: pa.Table) -> pa.Table:
    """The selection of what leaves as it is."""
    return results


class Leaving(Protocol):
    """Where the results of one task go."""

    @property
    def takes_codes(self) -> bool:
        """Whether texts may come as dictionaries."""

    def take(self, results: pa.Table) -> Iterator[pa.RecordBatch]:
        """What goes to Spark at once."""

    def close(self) -> Iterator[pa.RecordBatch]:
        """What goes to Spark in the end."""

    def __enter__(self) -> Leaving: ...

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None: ...


@dataclass(frozen=True)
class Writing:
    """Tasks write results themselves."""

    files: PartFiles
    select: Select

    def begin(self, orders: Orders) -> Leaving:
        return _Files(self, open_writer(self.files, orders)) if orders.writes else AsRows(lambda _: iter(()))


@dataclass
class AsSelected(AsRows):
    """Results go to a sink of this process, as rows of the SELECT."""

    def __init__(self, select: Select) -> None:
        super().__init__(lambda results: iter(select(results).to_batches()))


@dataclass(frozen=True)
class Forgetting:
    """Tasks make rows of the SELECT, whole, and forget them."""

    select: Select

    def begin(self, orders: Orders) -> Leaving:
        return AsRows(self._forget)

    def _forget(self, results: pa.Table) -> Iterator[pa.RecordBatch]:
        self.select(results)
        return iter(())


@dataclass
class _Files:
    """Results go to files, and Spark hears of these."""

    how: Writing
    writer: PartWriter

    @property
    def takes_codes(self) -> bool:
        return self.how.files.takes_codes

    def take(self, results: pa.Table) -> Iterator[pa.RecordBatch]:
        if results.num_rows:
            self.writer.write(self.how.select(results))
        return iter(())

    def close(self) -> Iterator[pa.RecordBatch]:
        return name_parts(self.writer.close())

    def __enter__(self) -> _Files:
        return self

    def __exit__(self, failed: type[BaseException] | None, *rest: object) -> None:
        self.writer.__exit__(failed, *rest)


@dataclass
class Write:
    """mapInArrow over rows that Spark has selected."""

    folder: StateFolder
    files: PartFiles
    orders: str | None = None

    @as_task
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        orders = Orders.read(self.folder, self.orders)
        with open_writer(self.files, orders) as writer:
            for batch in batches:
                if orders.writes and batch.num_rows:
                    writer.write(enlarge(pa.Table.from_batches([batch])))
            yield from name_parts(writer.close())
        after_task()


def open_writer(files: PartFiles, orders: Orders) -> PartWriter:
    """The writer of this task."""
    partition, attempt = this_task()
    return files.open(f"part-{orders.attempt}-{partition}-{attempt}")


def name_parts(parts: list[Part]) -> Iterator[pa.RecordBatch]:
    """Files as rows that name them."""
    if parts:
        columns = [pa.array(values) for values in zip(*parts, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=PARTS_SCHEMA)
