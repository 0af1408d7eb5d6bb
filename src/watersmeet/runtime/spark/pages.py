"""Pages of LLVM, given back to the machine once kernels are loaded.

LLVM loads compiled kernels, touches some 70 MB of its own code for that, and has nothing to do afterwards. The kernel of the machine leaves these pages with the process all
the same, and whoever adds up resident memory, as YARN does before it ends a container, counts them for each worker.

Invariant: only pages are given back that are as they are in the library's file: code. Who needs one again gets it from there. A machine that is no Linux keeps everything.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

LIBRARY = "llvmlite"
Ranges = Sequence[tuple[int, int]]
"""(address, bytes)"""
_ranges: Ranges = ()


def find_code(maps: Iterable[str], library: str = LIBRARY) -> Ranges:
    r"""Where the code of a library lies, by the lines of /proc/self/maps.

    >>> lines = ["1000-3000 r-xp 00000000 fe:00 7 /x/libllvmlite.so", "3000-4000 r--p 00002000 fe:00 7 /x/libllvmlite.so", "5000-6000 r-xp 00000000 fe:00 8 /x/libm.so"]
    >>> find_code(lines)
    [(4096, 8192)]
    """
    found = []
    for line in maps:
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[1] == "r-xp" and library in fields[5].rpartition("/")[2]:
            begin, end = (int(edge, 16) for edge in fields[0].split("-"))
            found.append((begin, end - begin))
    return found


def look_again() -> None:
    """Find where LLVM lies; it may have been loaded since."""
    global _ranges
    if sys.platform == "linux" and not _ranges:
        _ranges = find_code(Path("/proc/self/maps").read_text().splitlines())


def give_back() -> None:
    """Give the pages of LLVM's code back; without any that are resident this takes microseconds."""
    if _ranges:
        library = ctypes.CDLL(None)
        for address, size in _ranges:
            library.madvise(ctypes.c_void_p(address), ctypes.c_size_t(size), mmap.MADV_DONTNEED)
