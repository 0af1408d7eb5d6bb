"""The HTTP API of a registry: a real server on loopback, a real client, a registry in process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.properties.test_subscriptions import PAIR, stream, two
from watersmeet.runtime.rounds.results.folder import SinkFolder
from watersmeet.runtime.rounds.results.log import SinkLog
from watersmeet.runtime.rounds.results.parts import Part
from watersmeet.runtime.subscriptions import service as service_module
from watersmeet.runtime.subscriptions.answer_log import FolderAnswers, KeptAnswers
from watersmeet.runtime.subscriptions.service import Service
from watersmeet.view.hub import Hub
from watersmeet.view.server import MOST_BODY, Page, Request


class Client:
    """Requests to a service over a registry in process."""

    def __init__(self) -> None:
        self.subs, self.log, self.ended = two(), KeptAnswers(), None
        self.page = Page(Hub({"title": "s", "query": ""}), api=Service(self.subs, self.log, lambda: self.ended))

    def open(self, method: str, path: str, body: Any = None, **headers: str) -> HTTPResponse:
        connection = HTTPConnection("127.0.0.1", self.page.port, timeout=20)
        text = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        sent = {"Authorization": f"Bearer {self.page.token}", **headers}
        connection.request(method, path, text, {name.replace("_", "-"): value for name, value in sent.items()})
        return connection.getresponse()

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        answer = self.open(method, path, body, **headers)
        return answer.status, json.loads(answer.read())

    def push(self, **tables: pa.Table) -> None:
        self.log.put(self.subs.push(tables))

    def listen(self, path: str, **headers: str) -> Iterator[tuple[str, str, Any]]:
        """(kind, id, data) of events."""
        kind = id = ""
        for line in self.open("GET", path, **headers):
            name, _, rest = line.decode().rstrip("\n").partition(": ")
            if name == "event":
                kind, id = rest, ""
            elif name == "id":
                id = rest
            elif name == "data":
                yield kind, id, json.loads(rest)


@pytest.fixture
def client() -> Iterator[Client]:
    made = Client()
    with made.page:
        yield made


def test_queries_come_and_go_over_http(client: Client) -> None:
    assert client.ask("POST", "/queries", {"sql": PAIR, "id": "007"}) == (201, {"id": "007"})
    limited = {"sql": "SELECT r.id FROM r WHERE r.k > :least", "id": "a/b ü", "params": {"least": 0}}
    assert client.ask("POST", "/queries", limited) == (201, {"id": "a/b ü"})
    client.push(r=stream((1, 1, 0)), s=stream((2, 1, 0)))
    code, told = client.ask("GET", "/queries")
    assert (code, [(q["id"], q["state"], q["figures"]["answers"]) for q in told]) == (
        200,
        [("007", "running", 1), ("a/b ü", "running", 1)],
    )
    assert client.ask("PUT", "/queries/007", {"sql": PAIR.replace("10", "20")}) == (200, {"id": "007"})
    assert [v["version"] for v in client.ask("GET", "/queries/007")[1]["versions"]] == [3, 1]
    assert client.ask("DELETE", "/queries/a%2Fb%20%C3%BC") == (200, {"id": "a/b ü"})
    assert client.ask("GET", "/queries/a%2Fb%20%C3%BC")[1]["state"] == "removed"
    assert [e.id for e in client.subs.list()] == ["007"]
    assert client.ask("POST", "/ask", {"sql": "SELECT count(*) AS n FROM r, s WHERE r.k = s.k"}) == (
        200,
        {"columns": [{"name": "n", "type": "int64"}], "count": 1, "rows": [{"n": 1}]},
    )


def test_a_query_over_http_may_fill_back(client: Client) -> None:
    client.ask("POST", "/queries", {"sql": PAIR})
    client.push(r=stream((1, 1, 0)), s=stream((2, 1, 0)))
    client.ask("POST", "/queries", {"sql": PAIR, "id": "late", "backfill": True})
    client.push()
    assert [row["query"] for row in client.log.read(1)[0].to_pylist()] == ["late"]


@pytest.mark.parametrize(
    ("method", "path", "body", "code", "said"),
    [
        ("POST", "/queries", {"sql": "SELECT nonsense"}, 400, "FROM"),
        ("POST", "/queries", {"sql": PAIR, "ID": "x"}, 400, '"ID" is not known here'),
        ("POST", "/queries", {"id": "x"}, 400, 'a JSON object with "sql"'),
        ("POST", "/queries", {"sql": PAIR, "id": 7}, 400, "a text that is not empty"),
        ("POST", "/queries", {"sql": PAIR, "params": {"a": 1}}, 400, "a"),
        ("POST", "/queries", {"sql": PAIR, "params": 5}, 400, ""),
        ("POST", "/queries", b"{", 400, "no JSON"),
        ("POST", "/queries", None, 400, "a JSON object"),
        ("POST", "/queries", b"x" * (MOST_BODY + 1), 413, "at most 1,000,000 bytes"),
        ("PUT", "/queries/none", {"sql": PAIR}, 404, "no query 'none'"),
        ("DELETE", "/queries/none", None, 404, "no query 'none'"),
        ("GET", "/queries/none", None, 404, "no query 'none'"),
        ("POST", "/ask", {"sql": PAIR}, 400, "no tuples of 'r' are kept"),
        ("GET", "/answers?since=x", None, 400, "since='x'"),
        ("GET", "/answers?query=none", None, 404, "no query 'none' is or was registered"),
        ("GET", "/elsewhere", None, 404, "there are /queries"),
        ("PUT", "/queries", {"sql": PAIR}, 404, "there are /queries"),
    ],
)
def test_what_is_wrong_is_said(client: Client, method: str, path: str, body: Any, code: int, said: str) -> None:
    found, told = client.ask(method, path, body)
    assert (found, said in told["message"]) == (code, True), told
    assert client.subs.list() == []
    assert client.ask("GET", "/queries") == (200, []), "the server goes on"


def test_nobody_without_the_token_and_no_other_host(client: Client) -> None:
    for method, path in (("GET", "/queries"), ("POST", "/queries"), ("DELETE", "/queries/x"), ("GET", "/answers")):
        for headers in ({"Authorization": "Bearer x"}, {"Authorization": ""}, {"Host": "evil.example"}):
            answer = client.open(method, path, {"sql": PAIR} if method == "POST" else None, **headers)
            assert answer.status == 403
            assert "token" in json.loads(answer.read())["message"]
    assert client.open("GET", f"/queries?token={client.page.token}", Authorization="").status == 200
    assert client.subs.list() == []


def test_answers_are_told_batch_by_batch_and_a_listener_comes_back(client: Client) -> None:
    client.subs.add(PAIR, id="pair")
    client.subs.add("SELECT r.id FROM r", id="one")
    for n in range(3):
        client.push(r=stream((n, 1, n)), s=stream((n, 1, n)))
    heard = client.listen("/answers?since=0")
    first = [next(heard) for _ in range(6 + 2)]
    assert [kind for kind, _, _ in first] == ["answer"] * 4 + ["batch"] + ["answer"] * 3
    assert next(data for kind, _, data in first if kind == "batch") == {"batch": 1}
    one = next(data for _, _, data in first if data.get("query") == "one")
    assert (one["version"], one["ts"]) == (2, "1970-01-01T00:00:01+00:00")
    assert one["answer"] == {"id": 1}
    again = client.listen("/answers?query=one", Last_Event_ID="1")
    assert [next(again)[2].get("answer", {}).get("id") for _ in range(2)] == [2, None]
    client.push(r=stream((3, 1, 3)))
    kind, _, data = next(again)
    assert (kind, data["answer"]["id"]) == ("answer", 3)
    assert next(again)[:2] == ("batch", "3")


def test_a_dead_job_is_said_and_listeners_are_let_go(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    client.subs.add(PAIR, id="pair")
    client.push(r=stream((1, 1, 0)), s=stream((1, 1, 0)))
    client.ended = "OSError: the disk is full"  # type: ignore[assignment]
    for method, path in (("POST", "/queries"), ("PUT", "/queries/pair")):
        code, told = client.ask(method, path, {"sql": PAIR})
        assert (code, told["error"]) == (400, "OptionError")
        assert "the job has ended (OSError: the disk is full)" in told["message"]
    assert [kind for kind, *_ in client.listen("/answers?since=0")] == ["end"]
    monkeypatch.setattr(service_module, "MOST_LISTENERS", 1)
    client.ended = None
    full = Service(client.subs, client.log)
    assert full.reply(Request("GET", ("answers",), {})).code == 200
    assert full.reply(Request("GET", ("answers",), {})).code == 503


def test_answers_of_any_batch_are_found_in_a_folder(tmp_path: Path) -> None:
    folder = SinkFolder(str(tmp_path))
    log = FolderAnswers(folder)
    assert log.latest() == -1
    for batch in range(7):
        name = f"part-{batch}-abc-0-0.parquet"
        pq.write_table(pa.table({"n": [batch]}), tmp_path / name)
        pq.write_table(pa.table({"n": [-1]}), tmp_path / f"part-{batch}-failed-0-0.parquet")
        size = (tmp_path / name).stat().st_size
        SinkLog(folder, 3).put(batch, [Part(name, 1, size)])
    assert log.latest() == 6
    assert [t["n"].to_pylist() for batch in range(7) for t in log.read(batch)] == [[n] for n in range(7)]
