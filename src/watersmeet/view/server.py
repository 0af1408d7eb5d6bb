"""A small web server for one query: the page, its events, and the metrics.

    GET /?token=...          the page: one document, no other file, nothing from elsewhere
    GET /events?token=...    server-sent events: `about` once, then `batch` for every micro-batch, and `status` when the query ends
    GET /metrics?token=...   Prometheus

Invariant: only this machine reaches it, only who has the token is answered, and the Host of a request must be this machine's, so that no page of another site can ask through a browser. Nothing can be changed through it.
It never holds a batch up: it reads what the hub keeps, in threads of its own.
"""

from __future__ import annotations

import hmac
import json
import secrets
import threading
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs, urlsplit

from watersmeet.errors import OptionError
from watersmeet.view.hub import Hub
from watersmeet.view.metrics import CONTENT_TYPE, render
from watersmeet.view.telemetry import report_to

HOST = "127.0.0.1"
PATIENCE_S = 10.0
"""After so long without news a comment is sent, which finds out who has left."""
_HOSTS = ("127.0.0.1", "localhost")


class Page:
    """A page that is being served, until `close`; `with` closes it, too.

    >>> from watersmeet.view.hub import Hub
    >>> with Page(Hub({"title": "orders", "query": "SELECT ..."})) as page:
    ...     page.url.startswith("http://127.0.0.1:")
    True
    """

    def __init__(self, hub: Hub, port: int = 0) -> None:
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
        self._server.hub, self._server.token = hub, self._token
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
    is_closing = False

    @cached_property
    def document(self) -> str:
        return files("watersmeet.view").joinpath("page.html").read_text("utf-8")


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not printed: addresses have the token."""

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        if not self._is_allowed(parse_qs(asked.query).get("token", [""])[0]):
            self._send(403, "text/plain", "this page needs the address with its token, as serve() gives it\n")
        elif asked.path == "/":
            self._send_page()
        elif asked.path == "/metrics":
            self._send(200, CONTENT_TYPE, render(self.server.hub))
        elif asked.path == "/events":
            self._send_events()
        else:
            self._send(404, "text/plain", "there are /, /events and /metrics\n")

    def _is_allowed(self, token: str) -> bool:
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

    def _send_events(self) -> None:
        self.send_response(200)
        for name, value in (
            ("Content-Type", "text/event-stream"),
            ("Cache-Control", "no-store"),
            ("Connection", "close"),
        ):
            self.send_header(name, value)
        self.end_headers()
        hub = self.server.hub
        try:
            self._tell("about", hub.about)
            self._tell("status", {"status": hub.status})
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
