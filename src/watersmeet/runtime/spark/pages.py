"""Pages of libraries' code, given back to the machine once a worker has started.

Libraries touch most of their code while they are loaded, and little of it later: LLVM loads compiled kernels and has nothing to do afterwards. The kernel of the machine leaves these pages with the process all
the same, and whoever adds up resident memory, as YARN does before it ends a container, counts them for each worker. LLVM's are given back after every task, which may have loaded a kernel, and those of all libraries once:
what of them is used comes again and stays.

Invariant: only pages are given back that are as they are in the library's file: code. Who needs one again gets it from there. A machine that is no Linux keeps everything.
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


def find_code(maps: Iterable[str], library: str = "") -> Ranges:
    r"""Where the code of libraries lies, or of those of a name, by the lines of /proc/self/maps.

    >>> lines = ["1000-3000 r-xp 00000000 fe:00 7 /x/libllvmlite.so", "3000-4000 r--p 00002000 fe:00 7 /x/libllvmlite.so", "5000-6000 r-xp 00000000 fe:00 8 /x/libm.so.6", "7000-8000 r-xp 00000000 00:00 0 [vdso]"]
    >>> find_code(lines)
    [(4096, 8192), (20480, 4096)]
    >>> find_code(lines, "libllvmlite")
    [(4096, 8192)]
    """
    found = []
    for line in maps:
        fields = line.split(maxsplit=5)
        name = fields[5].rpartition("/")[2] if len(fields) == 6 else ""
        if fields[1] == "r-xp" and ".so" in name and library in name:
            begin, end = (int(edge, 16) for edge in fields[0].split("-"))
            found.append((begin, end - begin))
    return found


def look_again() -> None:
    """Find where LLVM lies; it may have been loaded since."""
    global _llvm
    _llvm = _llvm or find_code(_read_maps(), LLVM)


def give_back() -> None:
    """Give the pages of LLVM's code back; without any that are resident this takes microseconds."""
    _give_back(_llvm)


def give_back_all() -> None:
    """Give the pages of all libraries' code back: call it once, when a process has settled. It takes a millisecond, and then some as pages come again."""
    _give_back(find_code(_read_maps()))


def _read_maps() -> list[str]:
    return Path("/proc/self/maps").read_text().splitlines() if sys.platform == "linux" else []


def _give_back(ranges: Ranges) -> None:
    if ranges:
        library = ctypes.CDLL(None)
        for address, size in ranges:
            library.madvise(ctypes.c_void_p(address), ctypes.c_size_t(size), mmap.MADV_DONTNEED)
