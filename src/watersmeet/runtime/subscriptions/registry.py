"""The registry: queries that are added and removed while streams run, as a sequence of versions (`registry.versions`).

    add, remove, take_in      users and the feed
    intend      a new batch: the version of the registry
    amend       a batch that is repeated: its own version, less the queries that have failed or were removed since
    strike      a query that breaks the batch: it leaves the registry, and the list says why; suspend: queries that take more than their quota

Invariant: a version never changes. What is refused or has failed is said, and takes no part; one bad query never touches another. A
batch that is repeated answers the queries of its intent, or fewer; never one that was added since.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from watersmeet.dataflow.report import Report
from watersmeet.errors import CheckpointError, OptionError, QueryError, WatersmeetError
from watersmeet.query.join import Join
from watersmeet.query.session import IN_UTC, Session
from watersmeet.query.stream import StreamSpec
from watersmeet.registry.bind import why_not_shared
from watersmeet.registry.faults import is_of_the_machine
from watersmeet.registry.limits import check_id, check_text
from watersmeet.registry.rjoin.shape import Shape, index_columns
from watersmeet.registry.shared.compiled import find_own_places
from watersmeet.registry.subscription import Registered, Subscription
from watersmeet.registry.versions import (
    BEFORE,
    BREAKS,
    LEAVES,
    STRUCK,
    Change,
    Log,
    QueryVersion,
    RegistryState,
    RegistryView,
    read_version,
)
from watersmeet.runtime.progress import QueryFigures
from watersmeet.runtime.subscriptions.binding import Binder
from watersmeet.runtime.subscriptions.entries import Entry, list_entries
from watersmeet.runtime.subscriptions.figures import FigureBook, Stored
from watersmeet.storage.document import REMEDY

_MOST_SHOWN = 1_000
Changes = list[Change]
Read = dict[str, Any]
"""What a batch decides by its queries: the streams that they `read`, with the columns that they compare, and by stream where those that share nothing take the `whole` of it."""


class Registry:
    """The registry as its owner sees it; all methods may be called from any thread. It travels as its log: who gets it reads that, and what others write there later."""

    def __init__(
        self,
        specs: Mapping[str, StreamSpec],
        log: Log,
        accept: Callable[[Subscription, bool], None] | None = None,
        session: Session = IN_UTC,
        book: FigureBook | None = None,
        why_apart: Callable[[Join], str] = why_not_shared,
    ) -> None:
        """accept: raises if those who answer cannot answer a query, or not from stored tuples first. session: where queries are bound. why_apart: see `Binder`."""
        self._why_apart = why_apart
        self._session, self._book, self._binder = session, book, Binder(specs, session, why_apart)
        self._specs, self.log, self._identity, self._accept = dict(specs), log, log.identity(), accept
        self._lock = threading.RLock()
        self._state = RegistryState(log.snapshot(log.latest()))
        self._base = self._state.version
        """The latest snapshot that is known to be there."""
        for version, changes, feed in log.changes(self._base):
            self._state.apply(version, changes, feed)
        self._view = RegistryView(log)
        self._read: tuple[Mapping[str, Any], Read] = {}, {}
        self._live: Mapping[str, Registered] = {}

    @property
    def version(self) -> int:
        return self._state.version

    @property
    def feed(self) -> int:
        """The last batch of the feed that has been taken in."""
        return self._state.feed

    def bind(self, sql: str, backfill: bool = False) -> Subscription:
        """The query, or an error with the reason why it cannot be one."""
        check_text(sql)
        query = self._binder.bind(sql)
        if self._accept is not None:
            self._accept(query, backfill)
        return query

    def __reduce__(self) -> tuple[Any, ...]:
        return Registry, (self._specs, self.log, self._accept, self._session, self._book, self._why_apart)

    def refresh(self) -> None:
        """Take in what other processes have written."""
        with self._lock:
            if not self.log.is_behind(self.version):
                return
            base = self.log.latest()
            if base > self.version:
                self._state, self._base = RegistryState(self.log.snapshot(base)), base
            for version, changes, feed in self.log.changes(self.version):
                self._state.apply(version, changes, feed)

    def add_all(self, queries: Sequence[tuple[str | None, str]], backfill: bool = False) -> list[str]:
        """Add queries in one version, all or none; their ids."""
        bound = [(None if id is None else check_id(id), sql, self.bind(sql, backfill)) for id, sql in queries]

        def plan() -> list[Change]:
            changes: list[Change] = []
            taken: set[str] = set()
            fresh, known = _names(self.version + 1), self._state.queries
            for id, sql, query in bound:
                named = self._choose_id(id, lambda name: name in taken or name in known, fresh)
                taken.add(named)
                changes.append(_add(named, sql, query, backfill))
            return changes

        return [change["id"] for change in self._write(plan)]

    def remove(self, id: str) -> None:
        """Remove a query: the next batch does not answer it. One that was refused or has failed leaves the list."""

        def plan() -> list[Change]:
            if id not in self._state.queries and id not in self._state.said:
                raise QueryError(f"no query {id!r} is registered; list() shows those that are")
            return [{"action": "remove", "id": id}]

        self._write(plan)

    def replace(self, id: str, sql: str, backfill: bool = False) -> None:
        """Another query in the place of one, in one version."""
        query = self.bind(sql, backfill)

        def plan() -> list[Change]:
            if id not in self._state.queries:
                raise QueryError(f"no query {id!r} is registered; list() shows those that are, add() takes new ones")
            return [{"action": "remove", "id": id}, _add(id, sql, query, backfill)]

        self._write(plan)

    def put_out(self, action: str, ids: Sequence[str], reason: str, version: int) -> None:
        """Queries of a version leave because of what they did, and the list says why. Later ones of these ids have not done it."""

        def plan() -> list[Change]:
            found = (self._state.queries.get(id) for id in ids)
            gone = [known for known in found if known is not None and known.version <= version]
            return [{"action": action, "id": known.id, "sql": known.sql, "reason": reason} for known in gone]

        self._write(plan)

    def take_in(self, rows: Sequence[tuple[Any, Any, Any]], batch: int) -> None:
        """Rows (id, action, sql) of a batch of the feed; a batch that has been taken in already changes nothing."""

        def plan() -> list[Change] | None:
            if batch <= self.feed:
                return None
            changes: list[Change] = []
            taken = set(self._state.queries)
            for id, action, sql in rows:
                change = self._read_fed(id, action, sql, taken)
                changes.append(change)
                if change["action"] == "add":
                    taken.add(change["id"])
                elif change["action"] == "remove":
                    taken.discard(change["id"])
            return changes

        self._write(plan, batch)

    def _read_fed(self, id: Any, action: Any, sql: Any, taken: set[str]) -> Change:
        """A row of the feed as a change; a bad one is refused with the reason, whatever it is."""
        try:
            check_id(id)
            if action == "remove":
                if id not in taken and id not in self._state.said:
                    raise QueryError(f"no query {id!r} is registered")
                return {"action": "remove", "id": id}
            if action != "add":
                raise OptionError(f"action {action!r}: a row of the feed says 'add' or 'remove'")
            return _add(
                self._choose_id(id, taken.__contains__, _names(self.version + 1)), sql, self.bind(sql), backfill=False
            )
        except Exception as error:
            if is_of_the_machine(error):
                raise
            said = str(error) if isinstance(error, WatersmeetError) else f"it cannot be read: {error!r}"
            return {"action": "refuse", "id": _show(id), "sql": _show(sql), "reason": said}

    def list(self) -> list[Entry]:
        """All registered queries, then what the feed was refused, what has failed and what was suspended lately."""
        with self._lock:
            self.refresh()
            return [*list_entries(self._state, self._book)]

    def versions(self, id: str) -> Sequence[QueryVersion]:
        """The queries that have been registered under an id, the latest first: those that have left, too."""
        with self._lock:
            self.refresh()
            known = self._state.queries.get(id)
            found = [] if known is None else [QueryVersion.of(known)]
            found += [q for q in (*reversed(self._state.past), *self.log.past()) if q.id == id]
        return [*{q.version: q for q in found}.values()]

    def find_version(self, id: str, version: int | None = None) -> QueryVersion:
        """One of them: the latest, or that of a version."""
        with self._lock:
            self.refresh()
            known = self._state.queries.get(id)
        if known is not None and version in (None, known.version):
            return QueryVersion.of(known)
        found = self.versions(id)
        if not found:
            raise QueryError(f"no query {id!r} is or was registered; list() shows those that are")
        for query in found:
            if version in (None, query.version):
                return query
        there = ", ".join(str(q.version) for q in found)
        raise QueryError(f"query {id!r} has no version {version}: it has {there}")

    # ---------------------------------------------------------------- as those who run batches see it

    def intend(self, before: Mapping[str, Any], batch: int) -> dict[str, Any]:
        """The queries of a batch as its intent names them, after what the batch before did."""
        with self._lock:
            self.refresh()
            since = [list(pair) for pair in before.get("since", [])]
            if before.get("version", 0) != self.version:
                since.append([batch, self.version])
            snapshot, last = before.get("snapshot", 0), before.get("version", 0)
            said = {"registry": self._identity, "version": self.version, "since": since, "snapshot": snapshot}
            newer = self.version != last and bool(before)
            if not newer or not any(q.backfill and q.version > last for q in self._state.queries.values()):
                return said
            return {**said, BEFORE: {name: what for name, what in before.items() if name != BEFORE}}

    def amend(self, queries: Mapping[str, Any], *, is_written: bool) -> dict[str, Any]:
        """What a batch that is repeated answers. One that has been written keeps queries that were removed: their answers are out."""
        with self._lock:
            self.refresh()
            later = [] if queries["version"] == self.version else self.log.changes(queries["version"])
            actions = BREAKS if is_written else LEAVES
            gone = {change["id"] for _, changes, _ in later for change in changes if change["action"] in actions}
        return _strike_out(queries, [id for id in self.ids(queries) if id in gone]) if gone else dict(queries)

    def ids(self, queries: Mapping[str, Any]) -> Sequence[str]:
        """The queries of a batch, in the order in which they were added."""
        return list(self._view.at(queries))

    def strike(self, queries: Mapping[str, Any], id: str, reason: str) -> dict[str, Any]:
        """A query has broken a batch: it fails; the batch without it."""
        self.put_out("fail", [id], reason, queries["version"])
        return _strike_out(queries, [id])

    def suspend(self, queries: Mapping[str, Any], ids: Sequence[str], reason: str) -> dict[str, Any]:
        """Queries have taken more than their quota: they are suspended; the batch without them."""
        self.put_out("suspend", ids, reason, queries["version"])
        return _strike_out(queries, ids)

    def stop_one(self, id: str, reason: str) -> None:
        """A query of the batch that runs fails for what happens to its answers; the batch keeps it, the next one does without."""
        self.put_out("fail", [id], reason, self._read[0]["version"])

    def read(self, queries: Mapping[str, Any]) -> Read:
        """What a batch decides by its queries."""
        if self._read[0] != queries:
            self._live = self._view.at(queries)
            columns = index_columns(Shape.of(q.query) for q in self._live.values())
            self._read = dict(queries), {"read": columns, "whole": find_own_places(self._live.values())}
        return self._read[1]

    def find(self, id: str) -> QueryVersion:
        """A query of the batch that runs."""
        return QueryVersion.of(self._live[id])

    def measure(self, reports: Iterable[Report], stored: Stored, maxima: Mapping[str, int], units: int) -> None:
        """Take in what units told of the batch's queries, of which there are so many."""
        with self._lock:
            if self._book is not None:
                self._book.take(reports, self._live, stored, maxima, units)

    @property
    def dearest(self) -> Sequence[QueryFigures]:
        """The queries that took the most CPU time in the latest batch, the dearest first."""
        with self._lock:
            return [] if self._book is None else self._book.show_dearest()

    @property
    def answered(self) -> int:
        """How many queries the batch answers."""
        return len(self._live)

    @property
    def refusals(self) -> Mapping[str, str]:
        """What was refused lately: reasons by id."""
        return self._reasons("refuse")

    @property
    def failures(self) -> Mapping[str, str]:
        """What has failed lately: reasons by id."""
        return self._reasons("fail")

    @property
    def suspensions(self) -> Mapping[str, str]:
        """What was suspended lately: reasons by id."""
        return self._reasons("suspend")

    def _reasons(self, action: str) -> dict[str, str]:
        with self._lock:
            return {id: change["reason"] for id, change in self._state.said.items() if change["action"] == action}

    def commit(self, queries: Mapping[str, Any]) -> dict[str, Any]:
        """A batch has been committed: effects are known, and old versions may go. What the next batch starts from."""
        self.resume(queries)
        with self._lock:
            if not self.log.is_due(queries["version"]):
                return dict(queries)
            state = read_version(self.log, queries)
            self.log.compact(state.to_snapshot(), state.past)
            self._base = queries["version"]
            return {**queries, "since": [], "snapshot": queries["version"]}

    def resume(self, queries: Mapping[str, Any]) -> None:
        """A batch was committed with these queries: they have taken effect."""
        with self._lock:
            self.refresh()
            self._check(queries)
            self._state.take_effect(queries["version"], queries["since"])

    def _check(self, queries: Mapping[str, Any]) -> None:
        """Raise if a batch has not answered this registry, or a later version of it than there is."""
        if queries["registry"] != self._identity or queries["version"] > self.version:
            raise CheckpointError(
                f"the latest batch answered version {queries['version']} of registry {queries['registry']}, and the checkpoint has version "
                f"{self.version} of {self._identity} under registry/ and snapshots/; {REMEDY}"
            )
        if queries.get("snapshot", 0) > self._base:
            self._base = self.log.snapshot(queries["snapshot"]).version

    def _choose_id(self, id: str | None, is_taken: Callable[[str], bool], fresh: Iterator[str]) -> str:
        """The id of a new query; without one, the next of the fresh names that is free."""
        if id is None:
            return next(name for name in fresh if not is_taken(name))
        if is_taken(id):
            raise QueryError(f"a query {id!r} is registered already; remove it first, or give another id")
        return id

    def _write(self, plan: Callable[[], Changes | None], feed: int | None = None) -> Changes:
        """Write the next version as planned; after each that another process has written first, it is planned anew. `feed`: the batch of the feed that it takes in."""
        with self._lock:
            while True:
                self.refresh()
                changes, fed = plan(), self.feed if feed is None else feed
                if not changes and (feed is None or changes is None):
                    return []
                assert changes is not None
                if self.log.append(self.version + 1, changes, fed):
                    self._state.apply(self.version + 1, changes, fed)
                    return changes


def _add(id: str, sql: str, query: Subscription, backfill: bool) -> Change:
    said = {"action": "add", "id": id, "sql": sql, "query": query.to_json()}
    return {**said, "backfill": True} if backfill else said


def _strike_out(queries: Mapping[str, Any], ids: Sequence[str]) -> dict[str, Any]:
    """What an intent says of a batch without some of its queries."""
    struck = [*queries.get(STRUCK, ()), *ids]
    return {**queries, STRUCK: struck} if struck else dict(queries)


def _show(value: Any) -> str:
    """What a row of the feed says, as far as it can be kept."""
    return str(value)[:_MOST_SHOWN].encode(errors="replace").decode()


def _names(version: int) -> Iterator[str]:
    """Names for queries of a version that have none.

    >>> names = _names(7)
    >>> next(names), next(names), next(names)
    ('q7', 'q7-2', 'q7-3')
    """
    yield f"q{version}"
    yield from (f"q{version}-{n}" for n in count(2))
