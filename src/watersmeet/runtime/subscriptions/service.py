"""A registry over HTTP: what `watersmeet subscribe` serves beside the live page, on the same server (`view.server`).

    GET    /queries              all queries with their figures         GET  /queries/ID     one, with all its versions
    POST   /queries              {"sql", "id", "params", "backfill"}    -> {"id"}
    PUT    /queries/ID           {"sql", "params", "backfill"}          another query in its place
    DELETE /queries/ID
    POST   /ask                  {"sql"} -> {"columns", "rows"}         a one-time query over what is kept
    GET    /answers?query=ID     server-sent events: `answer` for each one, then `batch`, whose id a listener comes back with

Invariant: every error is a reply that names what is wrong; no request ends the job. A listener that comes back with the id of the last whole batch gets all answers after it, each once.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from watersmeet.errors import OptionError, QueryError, WatersmeetError
from watersmeet.registry.faults import is_of_the_machine
from watersmeet.registry.plan import ANSWER, QUERY, VERSION, YOUNGEST
from watersmeet.runtime.progress import show_moment
from watersmeet.runtime.subscriptions.answer_log import AnswerLog
from watersmeet.runtime.subscriptions.entries import Entry
from watersmeet.runtime.subscriptions.front import RegistryFront
from watersmeet.view.server import Event, Reply, Request

POLL_S = 0.25
PATIENCE_S = 10.0
"""After so long without an answer a listener gets a comment."""
MOST_LISTENERS = 64
MOST_ROWS = 10_000
"""Rows of one reply."""


class Service:
    """The requests of one registry; called from many threads."""

    def __init__(
        self, registry: RegistryFront, answers: AnswerLog, find_end: Callable[[], str | None] = lambda: None
    ) -> None:
        """find_end: why the job does not run any more; None while it does."""
        self.registry, self.answers, self.find_end = registry, answers, find_end
        self._listeners = threading.BoundedSemaphore(MOST_LISTENERS)
        self._asking = threading.Lock()

    def reply(self, request: Request) -> Reply:
        """The answer to a request; what is wrong is one, too."""
        try:
            return self._route(request)
        except QueryError as error:
            known = {e.id for e in self.registry.list()}
            is_absent = len(request.path) == 2 and request.path[1] not in known
            return _refuse(404 if is_absent else 400, error)
        except WatersmeetError as error:
            return _refuse(400, error)
        except Exception as error:
            if is_of_the_machine(error):
                return _refuse(500, error)
            return _refuse(400, error)

    def _route(self, request: Request) -> Reply:
        match request.method, request.path:
            case "GET", ("queries",):
                return Reply(200, [_show(entry) for entry in self.registry.list()])
            case "GET", ("queries", id):
                return self._show_one(id)
            case "POST", ("queries",):
                return self._add(_read_body(request.body, "sql", "id", "params", "backfill"))
            case "PUT", ("queries", id):
                body = _read_body(request.body, "sql", "params", "backfill")
                self._require_alive()
                self.registry.replace(id, body["sql"], body.get("params"), backfill=bool(body.get("backfill")))
                return Reply(200, {"id": id})
            case "DELETE", ("queries", id):
                self.registry.remove(id)
                return Reply(200, {"id": id})
            case "POST", ("ask",):
                return self._ask(_read_body(request.body, "sql")["sql"])
            case "GET", ("answers",):
                return self._listen(request)
        return Reply(
            404, _say("OptionError", "there are /queries, /queries/ID, /ask and /answers, /, /events, /metrics")
        )

    def _add(self, body: Mapping[str, Any]) -> Reply:
        self._require_alive()
        id = self.registry.add(body["sql"], body.get("id"), body.get("params"), backfill=bool(body.get("backfill")))
        return Reply(201, {"id": id})

    def _show_one(self, id: str) -> Reply:
        found = [_show(entry) for entry in self.registry.list() if entry.id == id]
        versions = [
            {"version": v.version, "sql": v.sql, "columns": dict(v.columns)} for v in self.registry.versions(id)
        ]
        if not found and not versions:
            raise QueryError(f"no query {id!r} is or was registered")
        return Reply(200, {**(found[0] if found else {"id": id, "state": "removed"}), "versions": versions})

    def _ask(self, sql: str) -> Reply:
        with self._asking:  # one at a time: it runs in this process
            found = self.registry.ask(sql)  # type: ignore[attr-defined]
        columns = [{"name": f.name, "type": str(f.type)} for f in found.schema]
        return Reply(200, {"columns": columns, "count": found.num_rows, "rows": found.slice(0, MOST_ROWS).to_pylist()})

    def _require_alive(self) -> None:
        ended = self.find_end()
        if ended is not None:
            raise OptionError(f"the job has ended ({ended}), so the query would not be answered: start it again first")

    def _listen(self, request: Request) -> Reply:
        since = request.asked.get("since", request.last_event)
        if since is not None and not since.isdecimal():
            raise OptionError(f"since={since!r}: give the number of the last batch that you have had")
        id = request.asked.get("query")
        if id is not None and not self.registry.versions(id):
            return Reply(404, _say("QueryError", f"no query {id!r} is or was registered: it would never be answered"))
        if not self._listeners.acquire(blocking=False):
            return Reply(503, _say("OptionError", f"{MOST_LISTENERS} listeners are here already; come back later"))
        after = self.answers.latest() if since is None else int(since)
        return Reply(200, events=self._follow(after, id))

    def _follow(self, after: int, id: str | None) -> Iterator[Event | None]:
        try:
            yield None  # so that the listener knows that it is heard
            quiet = time.monotonic()
            while True:
                latest = self.answers.latest()
                for batch in range(after + 1, latest + 1):
                    yield from self._tell(batch, id)
                    after, quiet = batch, time.monotonic()
                ended = self.find_end()
                if ended is not None and self.answers.latest() == after:
                    yield Event("end", json.dumps({"reason": ended}))
                    return
                if time.monotonic() - quiet > PATIENCE_S:
                    yield None
                    quiet = time.monotonic()
                time.sleep(POLL_S)
        finally:
            self._listeners.release()

    def _tell(self, batch: int, id: str | None) -> Iterator[Event]:
        for table in self.answers.read(batch):
            columns = [table.column(name).to_pylist() for name in (QUERY, VERSION, YOUNGEST, ANSWER)]
            for query, version, ts, answer in zip(*columns, strict=True):
                if id in (None, query):
                    head = {"query": query, "version": version, "ts": ts.isoformat()}
                    yield Event("answer", f'{json.dumps(head)[:-1]}, "answer": {answer}}}')
        yield Event("batch", json.dumps({"batch": batch}), str(batch))


def _show(entry: Entry) -> dict[str, Any]:
    """An entry of the list as JSON."""
    out = {name: value for name, value in vars(entry).items() if name != "figures"}
    if entry.figures is not None:
        figures = entry.figures._asdict() | {"last_answer": show_moment(entry.figures.last_answer)}
        out["figures"] = {name: figures[name] for name in figures if name not in ("id", "batch_answers")}
    return out


def _read_body(body: Any, *names: str) -> Mapping[str, Any]:
    """The fields of a request, which must have the first of the names."""
    if not isinstance(body, dict) or not isinstance(body.get(names[0]), str):
        raise OptionError(f'send a JSON object with "{names[0]}", a text; it may have {", ".join(names)}')
    other = next((name for name in body if name not in names), None)
    if other is not None:
        raise OptionError(f'"{other}" is not known here; there are {", ".join(names)}')
    return body


def _refuse(code: int, error: Exception) -> Reply:
    return Reply(code, _say(type(error).__name__, str(error)))


def _say(kind: str, message: str) -> dict[str, str]:
    return {"error": kind, "message": message}
