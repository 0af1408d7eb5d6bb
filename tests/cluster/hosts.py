"""Hosts on one machine: network namespaces joined by a bridge, each with a /tmp and a home of its own.

    hub 10.77.0.1 ---- bridge ---- w1 10.77.0.11, w2 10.77.0.12, ...       veth pairs; nothing leads out of them

A process of a host runs in its network namespace and in a private mount namespace, where folders of the host's own lie over /tmp and the
home folder's cache. Folders elsewhere are shared, as on a network file system.

Invariant: what `Hosts` has made is gone when it is left: processes, links, namespaces. It needs root and iproute2; `missing` says what is not there.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

HUB = "hub"


def missing() -> str | None:
    """Why there can be no hosts here; None if there can."""
    tools = [tool for tool in ("ip", "unshare", "mount") if shutil.which(tool) is None]
    if tools:
        return f"no {', '.join(tools)}"
    if os.geteuid() != 0:
        return "only root makes network namespaces"
    made = subprocess.run(["unshare", "--net", "--mount", "true"], capture_output=True, check=False)
    return None if made.returncode == 0 else "this machine makes no namespaces"


class Hosts:
    """Some hosts; the first, the hub, has the bridge."""

    def __init__(self, names: Sequence[str], root: Path) -> None:
        self.root, self._prefix = root, f"wm{os.getpid()}"
        self.addresses = {HUB: "10.77.0.1"} | {name: f"10.77.0.{11 + n}" for n, name in enumerate(names)}
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Hosts:
        try:
            for host in self.addresses:
                self._make(host)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def namespace(self, host: str) -> str:
        return f"{self._prefix}-{host}"

    def start(
        self, host: str, command: Sequence[str | Path], log: Path, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """A process of a host, in a session of its own."""
        own = self.root / host
        inside = f'mount --bind "{own}/tmp" /tmp && mkdir -p "$HOME/.cache" && mount --bind "{own}/cache" "$HOME/.cache" && exec "$@"'
        wrapped = ["ip", "netns", "exec", self.namespace(host), "unshare", "--mount", "--propagation", "private"]
        with log.open("ab") as out:
            process = subprocess.Popen(
                [*wrapped, "sh", "-c", inside, "sh", *map(str, command)],
                stdout=out,
                stderr=out,
                start_new_session=True,
                env={**os.environ, **(env or {})},
            )
        self._processes.append(process)
        return process

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """SIGKILL to a process and all that it has started in its session."""
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def close(self) -> None:
        for process in self._processes:
            self.kill(process)
        for host in self.addresses:
            for pid in self.members(host):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            subprocess.run(["ip", "netns", "delete", self.namespace(host)], capture_output=True, check=False)

    def members(self, host: str) -> list[int]:
        """The processes that are left in a namespace that this object has made: executors are in sessions of their own."""
        found = subprocess.run(
            ["ip", "netns", "pids", self.namespace(host)], capture_output=True, text=True, check=False
        )
        return [int(pid) for pid in found.stdout.split()]

    def _make(self, host: str) -> None:
        for folder in ("tmp", "cache"):
            (self.root / host / folder).mkdir(parents=True, exist_ok=True)
        (self.root / host / "tmp").chmod(0o1777)
        name, hub = self.namespace(host), self.namespace(HUB)
        _ip("netns", "add", name)
        _ip("-n", name, "link", "set", "lo", "up")
        if host == HUB:
            _ip("-n", name, "link", "add", "bridge", "type", "bridge")
            _ip("-n", name, "link", "set", "bridge", "up")
            _ip("-n", name, "address", "add", f"{self.addresses[host]}/24", "dev", "bridge")
            return
        port = f"p{self.addresses[host].rpartition('.')[2]}"
        _ip("-n", hub, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("-n", hub, "link", "set", port, "master", "bridge", "up")
        _ip("-n", name, "address", "add", f"{self.addresses[host]}/24", "dev", "eth0")
        _ip("-n", name, "link", "set", "eth0", "up")


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
