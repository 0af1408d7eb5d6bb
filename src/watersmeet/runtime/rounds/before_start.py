"""What can be known of a checkpoint before Spark runs its query.

    Spark        metadata   offsets ..., n      commits ..., c
    watersmeet              intents ..., n      manifests ..., m         n = m or n = m + 1, and c = m or c = m - 1

Invariant: a checkpoint that passes goes on from the state, the input and the results that it had; one that does not is refused by
`start()`, with the file or the difference named, and nothing has been changed.
"""

from __future__ import annotations

from watersmeet.errors import CheckpointError
from watersmeet.plan.model import Plan
from watersmeet.runtime.rounds.folder import INTENTS, MANIFESTS, SEGMENTS, StateFolder
from watersmeet.runtime.rounds.manifest import BatchManifest, read_intent, read_manifest
from watersmeet.runtime.rounds.sealed import REMEDY
from watersmeet.runtime.rounds.sink_folder import SinkFolder
from watersmeet.runtime.rounds.spark_logs import COMMITS, METADATA, OFFSETS, SparkLogs


def check_checkpoint(plan: Plan, folder: StateFolder, results: SinkFolder | None = None) -> None:
    """Raise if a plan cannot go on, or begin, with a checkpoint, and with a folder of results if that is its sink."""
    logs, where = SparkLogs.beside(folder), folder.beside()
    query_id = logs.query_id()
    begun, last = _latest(folder, logs, query_id)
    if query_id is None or begun is None:
        if results is not None:
            results.check_new(where)
        return
    manifest = None
    if last >= 0:
        manifest = read_manifest(folder, last)
        manifest.check(plan, query_id, folder.path(MANIFESTS, f"{last}.json"))
        logs.check(manifest.spark)
        check_segments(folder, manifest)
    if folder.has(INTENTS, last + 1):
        intent = read_intent(folder, last + 1)
        intent.check(plan, query_id, last, folder.path(INTENTS, f"{last + 1}.json"))
        logs.check(intent.spark)
    if results is not None:
        results.check_goes_on(last, manifest.sink if manifest else None, where)


def _latest(folder: StateFolder, logs: SparkLogs, query_id: str | None) -> tuple[int | None, int]:
    """The latest batch that Spark has begun, and the latest that is committed here; all that must be there is."""
    manifests, intents = folder.numbers(MANIFESTS), folder.numbers(INTENTS)
    begun, done = logs.latest(OFFSETS), logs.latest(COMMITS)
    if query_id is None and (manifests or intents or begun is not None):
        raise _missing(logs.path(METADATA), f"{folder.path()} holds the state of {len(manifests)} batches")
    last, planned = max(manifests, default=-1), -1 if begun is None else begun
    needed = max(last, -1 if done is None else done, *intents, -1)
    if needed > planned:
        raise _missing(logs.path(f"{OFFSETS}/{needed}"), f"batch {needed} has begun")
    over = max(planned - 1, -1 if done is None else done)
    if over > last:
        raise _missing(folder.path(MANIFESTS, f"{over}.json"), f"Spark has finished batch {over}")
    return begun, last


def _missing(path: str, why: str) -> CheckpointError:
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
