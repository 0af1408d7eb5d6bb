"""Where sites run, and who counts what crosses their lines.

    `HostLines`     a network namespace for each site, joined with the hub, where the exchange is, by a veth pair: the kernel counts, and shapes
    `ProxyLines`    processes on loopback, each with a proxy of its own before the exchange: the proxy counts; for machines without root

Invariant: what `sent` counts has left a site for its line: letters, with all that the carrier adds to them.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Literal, Protocol

import watersmeet
from watersmeet_lab.machines import jars, store
from watersmeet_lab.machines.broker import find_free_port, running_broker
from watersmeet_lab.machines.hosts import HUB, Hosts
from watersmeet_lab.machines.hosts import find_missing as find_missing_hosts

Carrier = Literal["s3", "kafka", "folder"]
KERNELS = Path("/var/tmp/watersmeet-kernels")
"""Compiled kernels, for all hosts: each has a cache of its own, and would compile them all again."""
_CODE = [Path(watersmeet.__file__).parents[1], Path(__file__).parents[3]]


class Lines(Protocol):
    """The lines of some sites, and an exchange that they reach."""

    kind: str

    def exchange(self, site: str, name: str) -> tuple[str, dict[str, str]]:
        """A new exchange as a site names it, and the settings of Spark that reach it."""

    def start(self, site: str, command: Sequence[str | Path], log: Path) -> subprocess.Popen[bytes]:
        """A process of a site, in a session of its own."""

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """SIGKILL to a process and all that it has started."""

    def count_sent(self, site: str) -> int:
        """The bytes that a site has sent over its line so far."""


def why_not(carrier: Carrier, *, has_hosts: bool) -> str | None:
    """Why a carrier cannot be measured here; None if it can."""
    if carrier == "kafka":
        return jars.find_missing() or (
            None if has_hosts else "a broker names its own address, past a proxy; it needs hosts"
        )
    if carrier == "s3":
        try:
            import moto.server  # noqa: F401
        except ImportError:
            return 'no object store: pip install "moto[server]"'
    return None


@contextmanager
def open_lines(root: Path, sites: Sequence[str], carrier: Carrier, bits_per_s: int | None) -> Iterator[Lines]:
    """Lines of the best kind that this machine has."""
    why = find_missing_hosts()
    refused = why_not(carrier, has_hosts=why is None)
    if refused is not None:
        raise SystemExit(refused)
    with ExitStack() as stack:
        if why is None:
            yield stack.enter_context(HostLines(root, sites, carrier, bits_per_s))
        else:
            yield stack.enter_context(ProxyLines(root, sites))


class HostLines:
    """Every site is a host; the exchange is at the hub."""

    kind = "network namespaces, `ip -s link`"

    def __init__(self, root: Path, sites: Sequence[str], carrier: Carrier, bits_per_s: int | None) -> None:
        self.root, self.sites, self.carrier, self._bits = root, sites, carrier, bits_per_s
        self._stack = ExitStack()

    def __enter__(self) -> HostLines:
        installed = [Path(sys.prefix), *_CODE]
        self.hosts = self._stack.enter_context(Hosts(self.sites, self.root / "hosts", installed))
        if self._bits is not None:
            for site in self.sites:
                self.hosts.shape(site, self._bits)
        address = self.hosts.addresses[HUB]
        if self.carrier == "kafka":
            self._broker = self._stack.enter_context(
                running_broker(self.root / "broker", host=address, start=self._start_at_hub)
            )
        elif self.carrier == "s3":
            self._store = self._stack.enter_context(store.Store(address, self._start_at_hub))
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def _start_at_hub(self, command: Sequence[str | Path], log: Path) -> subprocess.Popen[bytes]:
        return self.hosts.start(HUB, command, log)

    def exchange(self, site: str, name: str) -> tuple[str, dict[str, str]]:
        if self.carrier == "kafka":
            return f"kafka:{name}@{self._broker}", {}
        if self.carrier == "s3":
            return f"s3://{store.BUCKET}/{name}", self._store.reach()
        return str(self.root / "exchange" / name), {}

    def start(self, site: str, command: Sequence[str | Path], log: Path) -> subprocess.Popen[bytes]:
        return self.hosts.start(site, command, log, {"NUMBA_CACHE_DIR": str(KERNELS)})

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        self.hosts.kill(process)

    def count_sent(self, site: str) -> int:
        return self.hosts.count_bytes(site)[0]

    def set_line(self, site: str, *, is_up: bool) -> None:
        self.hosts.set_line(site, is_up=is_up)


class ProxyLines:
    """Sites on loopback, an object store, and a proxy for each site."""

    kind = "loopback, a counting proxy"

    def __init__(self, root: Path, sites: Sequence[str]) -> None:
        self.root, self.sites, self._stack = root, sites, ExitStack()
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> ProxyLines:
        self._store = self._stack.enter_context(store.Store())
        port = int(self._store.endpoint.rpartition(":")[2])
        self._proxies = {site: self._stack.enter_context(CountingProxy(port)) for site in self.sites}
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._processes:
            self.kill(process)
        self._stack.close()

    def exchange(self, site: str, name: str) -> tuple[str, dict[str, str]]:
        own = {"spark.hadoop.fs.s3a.endpoint": f"http://127.0.0.1:{self._proxies[site].port}"}
        return f"s3://{store.BUCKET}/{name}", self._store.reach() | own

    def start(self, site: str, command: Sequence[str | Path], log: Path) -> subprocess.Popen[bytes]:
        with log.open("ab") as out:
            words = [str(word) for word in command]
            process = subprocess.Popen(words, stdout=out, stderr=out, start_new_session=True)
        self._processes.append(process)
        return process

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def count_sent(self, site: str) -> int:
        return self._proxies[site].sent


class CountingProxy:
    """Passes connections of loopback on to a port, and counts what clients send: the bytes of TCP's payload."""

    def __init__(self, to: int) -> None:
        self.port, self._to, self.sent = find_free_port(), to, 0
        self._server = socket.create_server(("127.0.0.1", self.port))

    def __enter__(self) -> CountingProxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._server.accept()
                threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self._to)) as server, suppress(OSError):
            while True:
                for ready in select.select([client, server], [], [])[0]:
                    found = ready.recv(65536)
                    if not found:
                        return
                    if ready is client:
                        self.sent += len(found)
                    (server if ready is client else client).sendall(found)
