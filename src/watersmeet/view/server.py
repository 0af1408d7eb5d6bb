"""A small web server for one query: the page, its events, and the metrics.

    GET /?token=...          the page: one document, no other file, nothing from elsewhere
    GET /events?token=...    server-sent events: `about` once, then `batch` for every micro-batch, and `status`: behind the batches that are kept, and when the query ends
    GET /metrics?token=...   Prometheus
    other paths              what an `Api` answers, if there is one: JSON in and out, or server-sent events

The token is in the address, or in a header: `Authorization: Bearer ...`.

Invariant: only this machine reaches it, only who has the token is answered, and the Host of a request must be this machine's, so that no page of another site can ask through a browser. Without an `Api` nothing can be changed through it.
It never holds a batch up: it reads what the hub keeps, in threads of its own.
"""

from __future__ import annotations

import hmac
import json
import secrets
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any, Protocol
from urllib.parse import parse_qs, unquote, urlsplit

from watersmeet.errors import OptionError
from watersmeet.view.hub import Hub
from watersmeet.view.metrics import CONTENT_TYPE, render
from watersmeet.view.telemetry import report_to

HOST = "127.0.0.1"
PATIENCE_S = 10.0
"""After so long without news a comment is sent, which finds out who has left."""
MOST_BODY = 1_000_000
"""Bytes of a request."""
MOST_DRAINED = 8 * MOST_BODY
"""Bytes that are read of one that is too long, before it is refused."""
_HOSTS = ("127.0.0.1", "localhost")


@dataclass(frozen=True)
class Request:
    """What is asked of an `Api`."""

    method: str
    path: tuple[str, ...]
    """Between slashes, decoded."""
    asked: Mapping[str, str]
    """What stands behind the question mark, less the token."""
    body: Any = None
    """JSON."""
    last_event: str | None = None
    """The id of the last event that a listener has had, by its own account."""


@dataclass(frozen=True)
class Event:
    """One server-sent event; an id is what a listener comes back with. `data` is JSON, as text."""

    kind: str
    data: str
    id: str | None = None


@dataclass(frozen=True)
class Reply:
    """An answer of an `Api`: JSON, or events until the listener leaves, with None where there is nothing new."""

    code: int
    content: Any = None
    events: Iterator[Event | None] | None = None


class Api(Protocol):
    """What the server answers besides the page."""

    def reply(self, request: Request) -> Reply:
        """The answer; errors, too."""


class Page:
    """A page that is being served, until `close`; `with` closes it, too.

    >>> from watersmeet.view.hub import Hub
    >>> with Page(Hub({"title": "orders", "query": "SELECT ..."})) as page:
    ...     page.url.startswith("http://127.0.0.1:")
    True
    """

    def __init__(self, hub: Hub, port: int = 0, api: Api | None = None) -> None:
        """port 0: one that is free."""
        if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port < 65_536:
            raise OptionError(f"port={port!r}: give a number from 1 to 65535, or 0 for one that is free")
        self.hub, self._token = hub, secrets.token_urlsafe(16)
        try:
            self._server = _Server((HOST, port), _Handler)
        except OSError as error:
            raise OptionError(
                f"port={port}: the page cannot be served there ({error.strerror}); give another one, or 0 for one that is free"
            ) from error
        self._server.hub, self._server.token, self._server.api = hub, self._token, api
        self._closing = threading.Event()
        threading.Thread(target=self._server.serve_forever, name="watersmeet page", daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """The address of the page, with its token."""
        return f"http://{HOST}:{self.port}/?token={self._token}"

    @property
    def token(self) -> str:
        """What a request must have, in its address or as `Authorization: Bearer ...`."""
        return self._token

    @property
    def metrics_url(self) -> str:
        """The address for Prometheus, with its token."""
        return f"http://{HOST}:{self.port}/metrics?token={self._token}"

    @property
    def is_closed(self) -> bool:
        return self._closing.is_set()

    def wait(self, seconds: float) -> None:
        """For so long, or until it is closed."""
        self._closing.wait(seconds)

    def report(self, meter: Any = None) -> Page:
        """Hand the figures of `/metrics` to OpenTelemetry, too, under the same names: to a meter of yours, or to that of the process. Needs `pip install "watersmeet[otel]"`.

        >>> handle.serve().report()  # doctest: +SKIP
        """
        report_to(self.hub, meter)
        return self

    def close(self) -> None:
        """Serve nothing more."""
        if not self._closing.is_set():
            self._closing.set()
            self._server.is_closing = True
            self._server.shutdown()
            self._server.server_close()

    def __enter__(self) -> Page:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Page of {self.hub.about['title']!r}: {self.url}"

    def _repr_html_(self) -> str:
        return f'<a href="{self.url}" target="_blank">{self.url}</a>'


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    hub: Hub
    token: str
    api: Api | None = None
    is_closing = False

    @cached_property
    def document(self) -> str:
        return files("watersmeet.view").joinpath("page.html").read_text("utf-8")


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    timeout = 60
    """Seconds that a request may take to arrive."""

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not printed: addresses have the token."""

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if not self._is_allowed():
            self._refuse()
        elif path == "/":
            self._send_page()
        elif path == "/metrics":
            self._send(200, CONTENT_TYPE, render(self.server.hub))
        elif path == "/events":
            self._send_events()
        elif self.server.api is not None:
            self._ask_api("GET")
        else:
            self._send(404, "text/plain", "there are /, /events and /metrics\n")

    def do_POST(self) -> None:
        self._change("POST")

    def do_PUT(self) -> None:
        self._change("PUT")

    def do_DELETE(self) -> None:
        self._change("DELETE")

    def _refuse(self) -> None:
        self.close_connection = True
        message = "this page needs the address with its token, as serve() gives it"
        if self.server.api is None or urlsplit(self.path).path in ("/", "/metrics", "/events"):
            self._send(403, "text/plain", f"{message}\n")
        else:
            told = {
                "error": "OptionError",
                "message": "send the token as 'Authorization: Bearer TOKEN' or ?token=TOKEN",
            }
            self._send(403, "application/json", f"{json.dumps(told)}\n")

    def _change(self, method: str) -> None:
        if self.server.api is None:
            self.close_connection = True
            self._send(501, "text/plain", "nothing can be changed here\n")
        elif not self._is_allowed():
            self._refuse()
        else:
            self._ask_api(method)

    def _ask_api(self, method: str) -> None:
        """Let the API answer; what cannot be read is refused before it is asked."""
        url = urlsplit(self.path)
        size = self.headers.get("Content-Length", "0")
        if not size.isdecimal() or int(size) > MOST_BODY or "Transfer-Encoding" in self.headers:
            self.close_connection = True
            self.rfile.read(min(int(size), MOST_DRAINED) if size.isdecimal() else 0)  # or the reply would be lost
            return self._send_json(413, _error(f"a request has at most {MOST_BODY:,} bytes, and says how many"))
        text = self.rfile.read(int(size))
        try:
            body = json.loads(text) if text else None
        except ValueError as error:
            return self._send_json(400, _error(f"the request is no JSON: {error}"))
        asked = {name: values[-1] for name, values in parse_qs(url.query).items() if name != "token"}
        path = tuple(unquote(part) for part in url.path.strip("/").split("/"))
        assert self.server.api is not None
        reply = self.server.api.reply(Request(method, path, asked, body, self.headers.get("Last-Event-ID")))
        if reply.events is None:
            self._send_json(reply.code, reply.content)
        else:
            self._stream(reply.events)

    def _send_json(self, code: int, content: Any) -> None:
        self._send(code, "application/json", json.dumps(content, default=str) + "\n")

    def _stream(self, events: Iterator[Event | None]) -> None:
        """Events until the listener leaves; a comment where there is none, which finds out who has left."""
        self._begin_events()
        try:
            for event in events:
                if self.server.is_closing:
                    return
                text = ": \n\n" if event is None else _write_event(event)
                self.wfile.write(text.encode())
                self.wfile.flush()
        except (BrokenPipeError, ConnectionError):
            return
        finally:
            getattr(events, "close", lambda: None)()

    def _is_allowed(self) -> bool:
        bearer = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        token = bearer or parse_qs(urlsplit(self.path).query).get("token", [""])[0]
        host = (self.headers.get("Host") or "").rpartition(":")[0] or (self.headers.get("Host") or "")
        return host in _HOSTS and hmac.compare_digest(token.encode(), self.server.token.encode())

    def _send(self, code: int, kind: str, text: str, **headers: str) -> None:
        body = text.encode()
        self.send_response(code)
        common = {"Content-Type": kind, "Content-Length": str(len(body)), "Cache-Control": "no-store"}
        safe = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
        for name, value in (common | safe | headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _send_page(self) -> None:
        """One document; its script and style are allowed by a word that is new every time, and nothing else is."""
        nonce = secrets.token_urlsafe(12)
        rules = f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'unsafe-inline'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        self._send(
            200,
            "text/html; charset=utf-8",
            self.server.document.replace("{{nonce}}", nonce),
            **{"Content-Security-Policy": rules},
        )

    def _begin_events(self) -> None:
        self.close_connection = True
        self.send_response(200)
        for name, value in (
            ("Content-Type", "text/event-stream"),
            ("Cache-Control", "no-store"),
            ("Connection", "close"),
        ):
            self.send_header(name, value)
        self.end_headers()

    def _send_events(self) -> None:
        self._begin_events()
        hub = self.server.hub
        try:
            self._tell("about", hub.about)
            for event in hub.listen(PATIENCE_S):
                if self.server.is_closing:
                    return
                if event is None:
                    self._tell("status", {"status": hub.status})
                else:
                    self._tell("batch", event)
        except (BrokenPipeError, ConnectionError):
            return  # the browser has left

    def _tell(self, kind: str, content: Any) -> None:
        self.wfile.write(f"event: {kind}\ndata: {json.dumps(content)}\n\n".encode())
        self.wfile.flush()


def _write_event(event: Event) -> str:
    """An event as it travels.

    >>> _write_event(Event("batch", '{"batch": 7}', "7"))
    'event: batch\\nid: 7\\ndata: {"batch": 7}\\n\\n'
    """
    id = "" if event.id is None else f"id: {event.id}\n"
    return f"event: {event.kind}\n{id}data: {event.data}\n\n"


def _error(message: str) -> dict[str, str]:
    return {"error": "OptionError", "message": message}
