"""Pages of libraries, given back to the machine once a worker has started.

Libraries touch most of their code and constants while they are loaded, and little of them later: LLVM loads compiled kernels and has nothing to do afterwards. The kernel of the machine leaves these pages with the process
all the same, and whoever adds up resident memory, as YARN does before it ends a container, counts them for each worker. So those of all libraries are given back before a worker's first task, which is when most of it has been
loaded, and once more when it has settled; what is used comes again and stays. LLVM's are given back after every task, which may have loaded a kernel.

Invariant: only pages are given back that are as they are in the library's file: code and constants that nobody can write, and nobody has written while the library was loaded. Who needs one again gets it from there. A machine
that is no Linux keeps everything.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

LLVM = "libllvmlite"
Ranges = Sequence[tuple[int, int]]
"""(address, bytes)"""
_llvm: Ranges = ()


def find_unwritten(smaps: Iterable[str], library: str = "") -> Ranges:
    r"""Where libraries, or those of a name, have pages that are as in their files, by the lines of /proc/self/smaps.

    >>> lines = ["1000-3000 r-xp 00000000 fe:00 7 /x/libllvmlite.so", "Anonymous: 0 kB", "3000-4000 r--p 00002000 fe:00 7 /x/libllvmlite.so", "Anonymous: 4 kB"]
    >>> lines += ["5000-6000 r--p 00000000 fe:00 8 /x/libm.so.6", "Anonymous: 0 kB", "6000-7000 rw-p 00001000 fe:00 8 /x/libm.so.6", "Anonymous: 0 kB", "7000-8000 r-xp 00000000 00:00 0 [vdso]", "Anonymous: 0 kB"]
    >>> find_unwritten(lines)
    [(4096, 8192), (20480, 4096)]
    >>> find_unwritten(lines, "libllvmlite")
    [(4096, 8192)]
    """
    found, place = [], None
    for line in smaps:
        fields = line.split(maxsplit=5)
        if "-" in fields[0]:
            name = fields[5].rpartition("/")[2] if len(fields) == 6 else ""
            is_asked = fields[1] in ("r-xp", "r--p") and ".so" in name and library in name
            place = fields[0] if is_asked else None
        elif fields[0] == "Anonymous:" and fields[1] == "0" and place is not None:
            begin, end = (int(edge, 16) for edge in place.split("-"))
            found.append((begin, end - begin))
    return found


def look_again() -> None:
    """Find where LLVM lies; it may have been loaded since."""
    global _llvm
    _llvm = _llvm or find_unwritten(_read_smaps(), LLVM)


def give_back() -> None:
    """Give LLVM's pages back; without any that are resident this takes microseconds."""
    _give_back(_llvm)


def give_back_all() -> None:
    """Give the pages of all libraries back. It takes some milliseconds, and then some as pages come again."""
    _give_back(find_unwritten(_read_smaps()))


def _read_smaps() -> list[str]:
    return Path("/proc/self/smaps").read_text().splitlines() if sys.platform == "linux" else []


def _give_back(ranges: Ranges) -> None:
    if ranges:
        library = ctypes.CDLL(None)
        for address, size in ranges:
            library.madvise(ctypes.c_void_p(address), ctypes.c_size_t(size), mmap.MADV_DONTNEED)
