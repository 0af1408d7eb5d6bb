"""The sockets by which Spark's JVM sends rows to a Python worker: what has come is acknowledged at once.

The JVM's kernel holds a small piece back until the small piece before it is acknowledged (Nagle's algorithm). The worker's kernel waits up to 40 ms with that, for an
answer to send it along (delayed acknowledgement), and a worker has no answer before all pieces are there. Half of the tasks of a few thousand rows waited these 40 ms out.

    JVM     orders, rows       held back: end of rows                 end of rows
    worker               reads                       acknowledges --^             works, answers
                              <------ 40 ms ------->

Invariant: nothing is sent or read here. A machine that is no Linux, and sockets that are no TCP, are left as they are.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from typing import TypeVar

_OPEN = "/proc/self/fd"
_PROMPT = getattr(socket, "TCP_QUICKACK", None)
_T = TypeVar("_T")


def read_promptly(rows: Iterable[_T]) -> Iterator[_T]:
    """What a task is given, as it comes: before each item is waited for, what has come is acknowledged."""
    with ExitStack() as opened:
        sockets = [opened.enter_context(one) for one in _open_sockets()]
        acknowledge(sockets)
        for row in rows:
            yield row
            acknowledge(sockets)


def acknowledge(sockets: Iterable[socket.socket]) -> None:
    """Acknowledge what has come. The kernel forgets the wish when something is sent, so it is asked again and again."""
    for one in sockets:
        with suppress(OSError):  # the other end may have gone
            one.setsockopt(socket.IPPROTO_TCP, _PROMPT or 0, 1)


def _open_sockets() -> Iterator[socket.socket]:
    """The TCP connections of this process, under descriptors of their own."""
    if _PROMPT is None or not os.path.isdir(_OPEN):
        return
    for number in map(int, os.listdir(_OPEN)):
        with suppress(OSError):  # closed by now: the listing's own
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                found = socket.socket(fileno=os.dup(number))
                if _is_connected(found):
                    yield found
                else:
                    found.close()


def _is_connected(found: socket.socket) -> bool:
    if found.family not in (socket.AF_INET, socket.AF_INET6) or found.type != socket.SOCK_STREAM:
        return False
    with suppress(OSError):
        found.getpeername()
        return True
    return False
