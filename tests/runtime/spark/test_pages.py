"""Pages of libraries: code and constants are given back, and come again when they are needed."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import numpy as np
from watersmeet.kernels.hash_window import group_rows
from watersmeet.runtime.spark import pages

def resident(library="libllvmlite"):
    mine, total = False, 0
    for line in open("/proc/self/smaps"):
        words = line.split()
        if "-" in words[0]:
            mine = words[1] in ("r-xp", "r--p") and ".so" in line and library in line
        elif words[0] == "Rss:" and mine:
            total += int(words[1])
    return total

assert [unit for unit, _ in group_rows(np.array([2, 1, 2]))] == [1, 2]
before = resident()
pages.give_back()
assert resident() == before, "nothing is given back before it has been looked for"
pages.look_again()
pages.give_back()
after = resident()
import numba
assert numba.njit("int64(int64)")(lambda x: x + 1)(1) == 2
assert [unit for unit, _ in group_rows(np.array([2, 1, 2]))] == [1, 2]
print(before, after, resident())
everything = resident("")
pages.give_back_all()
few = resident("")
import pyarrow as pa
import pyarrow.compute as pc
assert pc.sum(pa.array([1, 2, 3])).as_py() == 6
assert [unit for unit, _ in group_rows(np.array([2, 1, 2]))] == [1, 2]
print(everything, few, resident(""))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells where libraries lie")
def test_code_is_given_back_and_comes_again():
    said = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True).stdout
    before, after, again, everything, few, used = map(int, said.split())
    assert before > 20_000
    assert after < before // 10
    assert again > after, "compiling needs the code"
    assert few < everything // 4
    assert few < used < everything, "what is used comes again, and the rest does not"
