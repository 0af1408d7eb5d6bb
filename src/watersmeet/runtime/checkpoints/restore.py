"""A checkpoint of `start()`, set back to an earlier batch whose state is still there.

    before    offsets ... 16 17 18    commits ... 16 17 18    manifests 16 17 18
    after     offsets ... 16          commits ... 16          manifests 16            restored to batch 16

Spark's logs are rewound with the state: the next start plans batch 17 anew, from where batch 16 ended. What a source remembers stays; a file source goes on with the files that it had listed
for later batches.

Files go in an order in which a death between any two leaves a checkpoint that goes on as it was, that is refused, or that is restored; then restoring it again ends the work.

Invariant: the state that remains has been compared byte by byte before anything is deleted. A sink that has later batches is refused: their rows would be there twice, or others under their numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from watersmeet.errors import CheckpointError, OptionError
from watersmeet.extensions import require_spark
from watersmeet.runtime.checkpoints.stored import Stored, open_checkpoint
from watersmeet.runtime.rounds.checkpoint import (
    COMMITS,
    INTENTS,
    LETTERS,
    MAIL,
    MANIFESTS,
    OFFSETS,
    PROGRESS,
    UPGRADES,
    SparkLogs,
)
from watersmeet.runtime.rounds.results.folder import SinkFolder
from watersmeet.runtime.rounds.upgrades import UpgradeRecord


def restore(checkpoint: Any, batch: int, *, sink: Any, late: Any = None, is_finished: bool = True) -> list[str]:
    """Set a checkpoint back to an earlier batch; the files that were deleted. The query must be stopped.

    `sink` and `late` are those of `start()`: a folder or a table that has later batches is refused. Of a function nothing can be known: see that what it has
    written of later batches is gone. `is_finished`: whether Spark must have finished the batch, too.

    >>> from watersmeet.runtime.checkpoints.restore import restore
    >>> restore("checkpoints/q", 16, sink=write_batch)  # doctest: +SKIP
    """
    stored = open_checkpoint(checkpoint, batch)
    _refuse_shared(stored)
    _refuse_upgraded(stored)
    for option, given, mark in (("sink", sink, stored.manifest.sink), ("late", late, stored.manifest.late_sink)):
        _check_sink(stored, option, given, mark)
    logs = SparkLogs.beside(stored.folder)
    _check_whole(stored, logs, is_finished=is_finished)
    gone = list(_find_later(stored, logs))
    for path in gone:
        stored.folder.files.delete(path)
    return [path.removeprefix(f"{stored.folder.beside()}/") for path in gone]


def _refuse_shared(stored: Stored) -> None:
    """Others know of later batches: the registry's log, or other sites."""
    why = None
    if stored.manifest.queries:
        why = "queries of its registry have come and gone with later batches"
    elif stored.manifest.sites or stored.folder.names(LETTERS):
        why = "other sites have been sent what later batches found"
    if why is not None:
        raise CheckpointError(
            f"{stored.folder.beside()} cannot be set back to batch {stored.batch}: {why}; start with a new checkpoint"
        )


def _check_sink(stored: Stored, option: str, given: Any, mark: str | None) -> None:
    """Raise if a sink has later batches, or is not the one that was written to."""
    where, batch = stored.folder.beside(), stored.batch
    folder = _open_sink(given, option, stored)
    if folder is None:
        if mark is not None:
            raise OptionError(
                f"{option}=: {where} has written its batches to a folder or a table; give it, so that it can be seen whether it has later ones"
            )
        return
    latest = folder.latest()
    if latest is not None and latest > batch:
        raise CheckpointError(
            f"{folder.address} has the results of batch {latest}: {where} is not set back to {batch}, or they would be there twice; restore the sink to batch {batch} first "
            f"(a folder: delete the entries of its _spark_metadata after {batch}; a table: its own RESTORE), or start with a new checkpoint"
        )
    folder.check_goes_on(batch, mark, where)


def _open_sink(given: Any, option: str, stored: Stored) -> SinkFolder | None:
    """The folder of a sink, as `start` takes it; None where it is none."""
    if given is None or callable(given):
        return None
    require_spark(f"restore({option}=...)")
    from watersmeet.runtime.rounds.sinks import FileSink, KafkaSink, TableSink, sink

    made = sink(given, option)
    if isinstance(made, KafkaSink):
        raise CheckpointError(
            f"{option}={given!r}: the records of later batches stay in the topic, and its readers would drop others under their numbers; start with a new checkpoint"
        )
    if isinstance(made, TableSink):
        made.attach(SparkLogs.beside(stored.folder))
    return made.folder if isinstance(made, FileSink) else None


def _refuse_upgraded(stored: Stored) -> None:
    """An upgrade has changed more than batches: it must be undone first."""
    for number in stored.folder.numbers(UPGRADES):
        record = stored.folder.load(UPGRADES, number, UpgradeRecord)
        if record.batch > stored.batch or not record.is_done:
            raise CheckpointError(
                f"{stored.folder.beside()} was handed over to a changed query after batch {record.batch}; undo that first (watersmeet state --undo), then set it back to batch {stored.batch}"
            )


def _check_whole(stored: Stored, logs: SparkLogs, *, is_finished: bool) -> None:
    """Raise if something that a restart from this batch reads is not there as it was."""
    logs.check(stored.manifest.spark)
    entry = logs.path(f"{COMMITS}/{stored.batch}")
    if is_finished and not logs.files.has(entry):
        raise CheckpointError(f"{entry} is missing: Spark has not finished batch {stored.batch}, or forgotten it")
    for _, _, info in stored.segments():
        stored.folder.read_segment(info)


def _find_later(stored: Stored, logs: SparkLogs) -> Iterator[str]:
    """The paths of what belongs to later batches, in the order in which they may go."""
    folder, batch = stored.folder, stored.batch
    yield from (folder.path(MAIL, name) for name in folder.names(MAIL))
    yield from (folder.path(PROGRESS, f"{number}.json") for number in folder.numbers(PROGRESS) if number > batch)
    for number in reversed([n for n in folder.numbers(INTENTS) if n > batch]):
        yield folder.path(INTENTS, f"{number}.json")
    for kind in (COMMITS, OFFSETS):
        names = folder.files.lengths(logs.path(kind))
        for number in sorted((int(n) for n in names if n.isdigit() and int(n) > batch), reverse=True):
            yield from (logs.path(f"{kind}/{name}") for name in (f"{number}", f".{number}.crc") if name in names)
    for number in reversed([n for n in folder.numbers(MANIFESTS) if n > batch]):
        yield folder.path(MANIFESTS, f"{number}.json")
