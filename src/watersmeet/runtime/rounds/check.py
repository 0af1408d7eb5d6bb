"""What can be known of a checkpoint, checked before Spark runs the query.

    Spark        metadata   offsets ..., n      commits ..., c
    watersmeet              intents ..., n      manifests ..., m         n = m or n = m + 1, and c = m or c = m - 1

Invariant: a checkpoint that passes goes on from the state, the input and the results that it had; one that does not is refused with the file or
the difference named, and nothing has been changed.
"""

from __future__ import annotations

from watersmeet.dataflow.contract import Intake
from watersmeet.errors import CheckpointError
from watersmeet.runtime.rounds.checkpoint import (
    COMMITS,
    INTENTS,
    MANIFESTS,
    METADATA,
    OFFSETS,
    SEGMENTS,
    SparkLogs,
    StateFolder,
)
from watersmeet.runtime.rounds.results.folder import SinkFolder
from watersmeet.storage.document import REMEDY
from watersmeet.storage.manifest import BatchManifest, Identity, Intent


def check_checkpoint(
    plan: Intake, folder: StateFolder, results: SinkFolder | None = None, lost: SinkFolder | None = None
) -> None:
    """Raise if a plan cannot go on, or begin, with a checkpoint, and with folders of results and of dropped rows, if it has such sinks."""
    check_state(Identity.of(plan), folder, results, lost)


def check_state(whose: Identity, folder: StateFolder, results: SinkFolder | None, lost: SinkFolder | None) -> None:
    """The same of a plan that may be known by its identity alone."""
    logs, where = SparkLogs.beside(folder), folder.beside()
    query_id = logs.query_id()
    begun, last = find_latest(folder, logs, query_id)
    if query_id is None or begun is None:
        for new in (results, lost):
            if new is not None:
                new.check_new(where)
        return
    manifest = None
    if last >= 0:
        manifest = folder.load(MANIFESTS, last, BatchManifest)
        manifest.check(whose, query_id, folder.path(MANIFESTS, f"{last}.json"))
        logs.check(manifest.spark)
        check_segments(folder, manifest)
    if folder.has(INTENTS, last + 1):
        intent = folder.load(INTENTS, last + 1, Intent)
        intent.check(whose, query_id, last, folder.path(INTENTS, f"{last + 1}.json"))
        logs.check(intent.spark)
    if results is not None:
        results.check_goes_on(last, manifest.sink if manifest else None, where)
    if lost is not None:
        lost.check_goes_on(last, manifest.late_sink if manifest else None, where)


def find_latest(folder: StateFolder, logs: SparkLogs, query_id: str | None) -> tuple[int | None, int]:
    """The latest batch that Spark has begun, and the latest that is committed here; all that must be there is."""
    manifests, intents = folder.numbers(MANIFESTS), folder.numbers(INTENTS)
    begun, done = logs.latest(OFFSETS), logs.latest(COMMITS)
    if query_id is None and (manifests or intents or begun is not None):
        raise _error_of_missing(logs.path(METADATA), f"{folder.path()} holds the state of {len(manifests)} batches")
    last, planned = max(manifests, default=-1), -1 if begun is None else begun
    needed = max(last, -1 if done is None else done, *intents, -1)
    if needed > planned:
        raise _error_of_missing(logs.path(f"{OFFSETS}/{needed}"), f"batch {needed} has begun")
    over = max(planned - 1, -1 if done is None else done)
    if over > last:
        raise _error_of_missing(folder.path(MANIFESTS, f"{over}.json"), f"Spark has finished batch {over}")
    return begun, last


def _error_of_missing(path: str, why: str) -> CheckpointError:
    return CheckpointError(f"{path} is missing, and {why}: they do not belong together; {REMEDY}")


def check_segments(folder: StateFolder, manifest: BatchManifest) -> None:
    """Raise if a file of the state is gone or has another length; its checksum is compared when it is read."""
    lengths = folder.lengths(SEGMENTS)
    for _, _, info in manifest.segments():
        if lengths.get(info.file) != info.file_bytes:
            found = "is missing" if info.file not in lengths else f"is damaged: it has {lengths[info.file]} bytes"
            raise CheckpointError(
                f"segment file {folder.path(SEGMENTS, info.file)} of {info.file_bytes} bytes with {info.rows} rows {found}; {REMEDY}"
            )
