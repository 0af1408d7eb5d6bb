"""A checkpoint of `start()` handed over to a changed query, all at once, and handed back.

    segments    the rows in their new form, which nobody names yet
    upgrades/3  the record: manifest and intent before and after, and Spark's files if there are more sources       <- from here on it is done
    offsets/17, intents/17, manifests/17    replaced by what the record says; then it says that they are

Whoever starts a query first ends what a record has begun. The record keeps the state before until as many batches have followed as `start(keep=...)` keeps; so long `undo` goes back.

Spark reads the sources of a query by their places in its log. Added streams come after those that were there, and their offset is `-`: Spark reads them from their beginning.

Invariant: at any death the checkpoint is the old query's or the new one's, and the next start knows which. Results that the sink has are never made again by the other query.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from watersmeet.errors import CheckpointError
from watersmeet.plan.model import Plan, list_required
from watersmeet.runtime.checkpoints.convert import convert
from watersmeet.runtime.checkpoints.restore import restore
from watersmeet.runtime.checkpoints.stored import Stored, open_checkpoint, open_folder
from watersmeet.runtime.checkpoints.verdicts import Judgement, judge, show_instant
from watersmeet.runtime.rounds.check import check_state, find_latest
from watersmeet.runtime.rounds.checkpoint import INTENTS, MANIFESTS, OFFSETS, UPGRADES, SparkLogs, StateFolder
from watersmeet.runtime.rounds.results.folder import SinkFolder
from watersmeet.runtime.rounds.upgrades import UpgradeRecord
from watersmeet.storage.manifest import BatchManifest, Identity, Intent

NO_OFFSET = "-"
"""What Spark's log has for a source that has brought nothing yet."""


@dataclass(frozen=True)
class Told:
    """What `start(upgrade=True)` has done."""

    batch: int
    lines: tuple[str, ...]
    since: int | None = None

    def __str__(self) -> str:
        return "\n".join(self.lines)


@dataclass(frozen=True)
class Sinks:
    """Where results and dropped rows go, as far as that can be looked at."""

    results: SinkFolder | None = None
    lost: SinkFolder | None = None

    def find_later(self, batch: int) -> str | None:
        """The address of one that has results of a batch after this."""
        for folder in (self.results, self.lost):
            latest = None if folder is None else folder.latest()
            if folder is not None and latest is not None and latest > batch:
                return folder.address
        return None


def upgrade(
    plan: Plan, folder: StateFolder, sinks: Sinks | None = None, added: Mapping[str, Callable[[], int]] | None = None
) -> Told | None:
    """Hand a checkpoint over to a plan; None if there is nothing to do. `added` tells by alias how many sources Spark reads for it: one, if it does not."""
    end_upgrade(folder)
    logs = SparkLogs.beside(folder)
    _, last = find_latest(folder, logs, logs.query_id())
    if last < 0:
        return None
    stored = open_checkpoint(folder.beside())
    judged = judge(stored, plan)
    if judged.is_same:
        return None
    refuse_impossible(stored, judged)
    _check_before(stored, sinks or Sinks())
    made = convert(stored, plan, judged, f"{stored.batch}-{uuid.uuid4().hex[:12]}")
    spark = dict(_add_sources(stored, plan, logs, added or {}))
    made.spark = made.spark | {name: _digest(texts[1]) for name, texts in spark.items() if name in made.spark}
    intent = _describe_intent(stored.intent, plan, made)
    lines = tuple(tell(stored, judged))
    record = UpgradeRecord(
        stored.batch,
        stored.manifest.query_id,
        _raw(stored.manifest),
        _raw(made),
        _raw(stored.intent),
        _raw(intent),
        spark,
        list(lines),
    )
    folder.make_folder(UPGRADES)
    number = 1 + max(folder.numbers(UPGRADES), default=0)
    folder.save(UPGRADES, number, record, is_new=True)
    _carry_out(folder, number, record)
    return Told(stored.batch, lines, judged.since)


def undo(checkpoint: Any, *, sink: Any, late: Any = None) -> int:
    """Hand a checkpoint back to the query that it had before the latest upgrade; the batch that it is after. The query must be stopped.

    Batches since then are undone with it, as by `restore`: `sink` and `late` are those of `start()`, and one that has later batches is refused.

    >>> from watersmeet.runtime.checkpoints.upgrade import undo
    >>> undo("checkpoints/q", sink=write_batch)  # doctest: +SKIP
    17
    """
    folder = open_folder(checkpoint)
    end_upgrade(folder)
    number = max(folder.numbers(UPGRADES), default=None)
    if number is None:
        raise CheckpointError(
            f"{folder.beside()} has no upgrade that can be undone: there was none, or as many batches have followed as start(keep=...) keeps"
        )
    record = folder.load(UPGRADES, number, UpgradeRecord)
    restore(checkpoint, record.batch, sink=sink, late=late, is_finished=False)
    record = replace(record, is_undone=True, is_done=False)
    folder.save(UPGRADES, number, record)
    _carry_out(folder, number, record)
    return record.batch


def end_upgrade(folder: StateFolder) -> None:
    """Carry out what a record has begun, before a death."""
    for number in folder.numbers(UPGRADES):
        record = folder.load(UPGRADES, number, UpgradeRecord)
        if not record.is_done:
            _carry_out(folder, number, record)


def read_sources(folder: StateFolder) -> list[str]:
    """The aliases in the order in which Spark's logs have them; empty if that is the order of FROM. A manifest that cannot be read is for the check to refuse."""
    end_upgrade(folder)
    with suppress(CheckpointError):
        last = max(folder.numbers(MANIFESTS), default=-1)
        return folder.load(MANIFESTS, last, BatchManifest).sources if last >= 0 else []
    return []


def refuse_impossible(stored: Stored, judged: Judgement) -> None:
    """Raise if a plan cannot go on from a state."""
    if judged.impossible:
        said = "\n  ".join(str(change) for change in judged.impossible)
        raise CheckpointError(
            f"upgrade=True: this query cannot go on from {stored.folder.beside()}, which was written by\n  {' '.join(stored.manifest.query.split())}\n"
            f"what is impossible:\n  {said}\nkeep that part as it was, or start with a new checkpoint and backfill what it needs of the past"
        )


def tell(stored: Stored, judged: Judgement) -> Iterator[str]:
    """What becomes of a state, in lines."""
    yield f"the query of {stored.folder.beside()} was changed after batch {stored.batch}"
    yield from (f"{change.verdict}: {change}" for change in judged.changes if change.why)
    if judged.since is None:
        yield "all answers are those of a run that had the query from the start"
    else:
        yield f"answers of rows from {show_instant(judged.since)} on are those of a run that had the query from the start; of older rows some may be missing"


def _check_before(stored: Stored, sinks: Sinks) -> None:
    """Raise if the old query could not go on from here, or if the sink has results that it has not committed."""
    whose = Identity(stored.manifest.fingerprint, stored.manifest.query, stored.manifest.parts, 0, ())
    check_state(whose, stored.folder, sinks.results, sinks.lost)
    has = sinks.find_later(stored.batch)
    if has is not None:
        raise CheckpointError(
            f"{has} has results of batch {stored.batch + 1}, which the query as it was has not committed: start that one until the batch is over, then upgrade"
        )


def _describe_intent(intent: Intent, plan: Plan, made: BatchManifest) -> Intent:
    """The intent of the same batch, as the new query would have written it."""
    return replace(
        intent,
        fingerprint=made.fingerprint,
        query=made.query,
        plan=plan.description(),
        spark=made.spark,
        required={source.alias: list_required(source) for source in plan.inputs},
        routing=made.routing and intent.routing,
        spread=intent.spread if made.spread else [],
        shipping=intent.shipping if made.shipping else [],
    )


def _add_sources(
    stored: Stored, plan: Plan, logs: SparkLogs, added: Mapping[str, Callable[[], int]]
) -> Iterator[tuple[str, list[str]]]:
    """Spark's files that need an offset for every new source: (name, before and after)."""
    known = {i[0] for i in stored.intent.plan["inputs"]}
    count = sum(added[i.alias]() if i.alias in added else 1 for i in plan.inputs if i.alias not in known)
    if not count:
        return
    begun = logs.latest(OFFSETS)
    for number in (stored.batch - 1, stored.batch, *([begun] if begun is not None and begun > stored.batch else [])):
        blob = logs.read(f"{OFFSETS}/{number}") if number >= 0 else None
        if blob is None:
            continue
        text = blob.decode()
        if not text.startswith("v1\n"):
            raise CheckpointError(
                f"{logs.path(f'{OFFSETS}/{number}')} is in another format than v1: streams cannot be added; start with a new checkpoint"
            )
        yield f"{OFFSETS}/{number}", [text, text + f"\n{NO_OFFSET}" * count]


def _carry_out(folder: StateFolder, number: int, record: UpgradeRecord) -> None:
    """Make the checkpoint what a record says; to do it twice is no harm."""
    logs = SparkLogs.beside(folder)
    folder.delete(INTENTS, f"{record.batch + 1}.json")
    for name, (before, after) in record.spark.items():
        path, _, entry = logs.path(name).rpartition("/")
        if logs.read(name) is not None:
            folder.files.delete(f"{path}/.{entry}.crc")
            folder.files.replace(logs.path(name), (before if record.is_undone else after).encode(), durably=True)
    manifest, intent = (
        (record.before, record.intent_before) if record.is_undone else (record.after, record.intent_after)
    )
    where = folder.path(UPGRADES, f"{number}.json")
    folder.save(INTENTS, record.batch, Intent.parse(json.dumps(intent), where))
    folder.save(MANIFESTS, record.batch, BatchManifest.parse(json.dumps(manifest), where))
    if record.is_undone:
        folder.delete(UPGRADES, f"{number}.json")
    else:
        folder.save(UPGRADES, number, replace(record, is_done=True))


def _raw(document: BatchManifest | Intent) -> dict[str, Any]:
    raw: dict[str, Any] = json.loads(document.to_json())
    return raw


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
