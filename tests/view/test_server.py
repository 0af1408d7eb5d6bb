"""The server: only this machine, only with the token; events in order, each once, also for who comes late."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from http.client import HTTPConnection
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.view.batches import batches, hub, query
from watersmeet.errors import OptionError
from watersmeet.runtime.observing import Events, tell_all, waits_of
from watersmeet.view.hub import KEPT, Hub
from watersmeet.view.metrics import render
from watersmeet.view.server import Page


def get(url: str, **headers: str) -> tuple[int, str, Any]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as answer:
            return answer.status, answer.read().decode(), answer.headers
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), error.headers


def listen(page: Page) -> Iterator[tuple[str, Any]]:
    """The events of a page, as a browser gets them."""
    with urllib.request.urlopen(page.url.replace("/?", "/events?"), timeout=10) as answer:
        kind = ""
        for line in answer:
            name, _, rest = line.decode().rstrip("\n").partition(": ")
            if name == "event":
                kind = rest
            elif name == "data":
                yield kind, json.loads(rest)


def test_page_and_metrics_need_the_token() -> None:
    with Page(hub()) as page:
        assert get(page.url)[0] == 200
        assert get(page.metrics_url)[:2] == (200, render(page.hub))
        for url in (page.url, page.metrics_url, page.url.replace("/?", "/events?")):
            for wrong in (url.partition("?")[0], url[:-1], url + "x"):
                code, said, _ = get(wrong)
                assert (code, "token" in said) == (403, True)
        assert get(page.url.replace("/?", "/other?"))[0] == 404


def test_another_host_is_refused() -> None:
    """A page of another site, whose name leads to this machine, gets nothing."""
    with Page(hub()) as page:
        assert get(page.url, Host="evil.example")[0] == 403
        assert get(page.url, Host=f"localhost:{page.port}")[0] == 200
        assert urlsplit(page.url).hostname == "127.0.0.1"
        asked = HTTPConnection("127.0.0.1", page.port, timeout=10)
        asked.request("POST", page.url)
        assert asked.getresponse().status == 501, "nothing can be changed"


def test_the_page_is_one_document_that_asks_nobody_else() -> None:
    with Page(hub()) as page:
        _, text, headers = get(page.url)
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    nonce = headers["Content-Security-Policy"].partition("'nonce-")[2].partition("'")[0]
    assert f'nonce="{nonce}"' in text
    assert "http://" not in text.replace("http://www.w3.org/", "")
    assert "https://" not in text
    assert not [part for part in ('rel="stylesheet"', "<script src", "@import", "url(", "fetch(") if part in text]


def test_events_are_told_in_order_each_once_also_to_who_comes_late() -> None:
    plan = query().plan
    made, told = Hub({"title": "q"}), batches(30, 20)
    events = Events(waits_of(plan))
    with Page(made) as page:
        tell_all(made, events, told[:10])
        found: list[int] = []

        def hear() -> None:
            found.extend(e["batch"] for kind, e in listen_batches(page, 30) if kind == "batch")

        early = threading.Thread(target=hear)
        early.start()
        for progress in told[10:]:
            tell_all(made, events, [progress], progress.batch_id - 1)
        early.join(20)
        assert found == list(range(30))
        assert [e["batch"] for _, e in listen_batches(page, 30)] == list(range(30))


def listen_batches(page: Page, count: int) -> list[tuple[str, Any]]:
    return list(islice((e for e in listen(page) if e[0] == "batch"), count))


def test_who_comes_late_gets_what_is_kept() -> None:
    made = Hub({"title": "q"})
    tell_all(made, Events(), batches(KEPT + 5, 20))
    with Page(made) as page:
        assert [e["batch"] for _, e in listen_batches(page, KEPT)] == list(range(5, KEPT + 5))


def test_who_comes_late_gets_totals_of_all_batches() -> None:
    made, told = Hub({"title": "q"}), batches(KEPT + 5, 20)
    tell_all(made, Events(), told)
    with Page(made) as page:
        *_, (_, last) = listen_batches(page, KEPT)
    assert last["late_total"] == {"clicks": sum(p.late.get("clicks", 0) for p in told)}


def test_metrics_are_of_one_moment() -> None:
    """Counters are sums up to the batch that the gauges are of, whatever comes while they are read."""
    made, events, told = Hub({"title": "q"}), Events(), batches(3, 1)
    tell_all(made, events, told[:2], -1)
    event, totals = made.read()
    tell_all(made, events, told[2:], 1)
    assert event is not None
    assert (event["batch"], totals.batches, totals.late) == (1, 2, Counter(told[0].late) + Counter(told[1].late))


def test_the_end_is_told() -> None:
    with Page(hub()) as page:
        page.hub.end("failed")
        assert next(e for kind, e in listen(page) if kind == "status") == {"status": "failed"}


def test_who_comes_after_the_end_hears_of_every_batch_before_it() -> None:
    made = Hub({"title": "q"})
    tell_all(made, Events(), batches(3, 20))
    made.end("ended")
    with Page(made) as page:
        assert [kind for kind, _ in islice(listen(page), 5)] == ["about", "batch", "batch", "batch", "status"]


def test_an_end_that_comes_with_the_last_batch_is_told_at_once() -> None:
    made = Hub({"title": "q"})
    heard = made.listen(patience_s=60)
    assert next(heard) is None, "the first status"
    tell_all(made, Events(), batches(1, 20))
    made.end("ended")
    assert next(heard)["batch"] == 0
    assert next(heard) is None, "not only when patience is over"


@pytest.mark.parametrize("port", [-1, 70_000, "80", True])
def test_a_port_that_is_none(port: Any) -> None:
    with pytest.raises(OptionError, match=r"port=.*from 1 to 65535, or 0"):
        Page(hub(1), port)


def test_a_port_that_is_taken() -> None:
    with Page(hub(1)) as page, pytest.raises(OptionError, match=rf"port={page.port}.*give another one"):
        Page(hub(1), page.port)
