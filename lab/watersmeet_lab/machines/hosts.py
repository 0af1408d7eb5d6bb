"""Hosts on one machine: network namespaces joined by a bridge, each with a /tmp and a home of its own.

    hub 10.77.0.1 ---- bridge ---- w1 10.77.0.11, w2 10.77.0.12, ...       veth pairs; nothing leads out of them

A process of a host runs in its network namespace and in a private mount namespace, where folders of the host's own lie over /tmp and the
home folder's cache. Folders elsewhere are shared, as on a network file system. A host's line can be made narrow, cut and mended, and its bytes are counted by the kernel.

Invariant: what `Hosts` has made is gone when it is left, also by an error or SIGTERM: processes, links, namespaces, and with the processes their mounts. What a process left that
was killed by SIGKILL, the next one sweeps. It needs root and iproute2; `missing` says what is not there.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

HUB = "hub"


def find_missing() -> str | None:
    """Why there can be no hosts here; None if there can."""
    tools = [tool for tool in ("ip", "tc", "unshare", "mount") if shutil.which(tool) is None]
    if tools:
        return f"no {', '.join(tools)}"
    if os.geteuid() != 0:
        return "only root makes network namespaces"
    made = subprocess.run(["unshare", "--net", "--mount", "true"], capture_output=True, check=False)
    return None if made.returncode == 0 else "this machine makes no namespaces"


class Hosts:
    """Some hosts; the first, the hub, has the bridge. What is `installed` on all of them is seen by all, also if it lies below /tmp."""

    def __init__(self, names: Sequence[str], root: Path, installed: Sequence[Path] = ()) -> None:
        self.root, self._prefix = root, f"wm{os.getpid()}"
        self.addresses = {HUB: "10.77.0.1"} | {name: f"10.77.0.{11 + n}" for n, name in enumerate(names)}
        self._processes: list[subprocess.Popen[bytes]] = []
        self._covers: dict[str, dict[Path, Path]] = {}
        self._installed = [path for path in installed if path.is_relative_to("/tmp")]

    def __enter__(self) -> Hosts:
        sweep()
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))  # so that it is left
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
        mounts = [f'mount --rbind "{path}" "{own}{path}"' for path in self._installed]
        mounts += [
            f'mount --rbind "{own}/tmp" /tmp',
            f'mkdir -p "$HOME/.cache" && mount --bind "{own}/cache" "$HOME/.cache"',
        ]
        mounts += [f'mount --bind "{folder}" "{path}"' for path, folder in self._covers.get(host, {}).items()]
        inside = " && ".join([*mounts, 'exec "$@"'])
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

    def shape(self, host: str, bits_per_s: int) -> None:
        """Let a host's line carry so much, each way."""
        how = ["root", "tbf", "rate", f"{bits_per_s}bit", "burst", "64kb", "latency", "500ms"]
        for namespace, device in ((host, "eth0"), (HUB, self._port(host))):
            _run("tc", "-n", self.namespace(namespace), "qdisc", "replace", "dev", device, *how)

    def count_bytes(self, host: str) -> tuple[int, int]:
        """What a host has sent and received over its line so far, by `ip -s link`."""
        shown = _ip("-n", self.namespace(host), "-s", "-j", "link", "show", "dev", "eth0")
        (link,) = json.loads(shown)
        return int(link["stats64"]["tx"]["bytes"]), int(link["stats64"]["rx"]["bytes"])

    def set_line(self, host: str, *, is_up: bool) -> None:
        """Cut a host's line, or mend it."""
        _ip("-n", self.namespace(host), "link", "set", "eth0", "up" if is_up else "down")

    def cover(self, host: str, path: Path, folder: Path | None) -> None:
        """Let processes of a host that start from now on see a folder where others see a path; None: let them see it again."""
        self._covers[host] = {} if folder is None else {path: folder}

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """SIGKILL to a process and all that it has started in its session."""
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def close(self) -> None:
        for process in self._processes:
            self.kill(process)
        for host in self.addresses:
            _end(self.namespace(host))

    def kill_members(self, host: str) -> None:
        """SIGKILL to all processes of a host: executors are in sessions of their own."""
        _kill_members(self.namespace(host))

    def _make(self, host: str) -> None:
        for folder in ("tmp", "cache", *(str(path)[1:] for path in self._installed)):
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
        port = self._port(host)
        _ip("-n", hub, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("-n", hub, "link", "set", port, "master", "bridge", "up")
        _ip("-n", name, "address", "add", f"{self.addresses[host]}/24", "dev", "eth0")
        _ip("-n", name, "link", "set", "eth0", "up")

    def _port(self, host: str) -> str:
        """The hub's end of a host's line."""
        return f"p{self.addresses[host].rpartition('.')[2]}"


def sweep() -> None:
    """End the hosts of processes that are gone."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False).stdout
    for namespace, maker in re.findall(r"^(wm(\d+)-\w+)", listed, re.MULTILINE):
        if not Path(f"/proc/{maker}").exists():
            _end(namespace)


def _end(namespace: str) -> None:
    _kill_members(namespace)
    subprocess.run(["ip", "netns", "delete", namespace], capture_output=True, check=False)


def _kill_members(namespace: str) -> None:
    """Until none is left: one may be starting another."""
    while found := _members(namespace):
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _members(namespace: str) -> list[int]:
    found = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True, check=False)
    return [int(pid) for pid in found.stdout.split()]


def _ip(*arguments: str) -> str:
    return _run("ip", *arguments)


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
