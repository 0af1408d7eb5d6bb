"""Kernels are compiled when they are called, kept where that is safe, and nothing else is loaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from watersmeet.kernels import code_cache, compiled
from watersmeet.kernels.compiled import Notice, kernel

PROGRAM = """if True:
    import json, sys
    import numpy as np
    from watersmeet.kernels import hash_window, merge_window
    from watersmeet.kernels.code_cache import kernel_folder
    lazy = not hash_window._build.signatures
    one = np.array([1], np.int64)
    index = hash_window.build(one, one)
    first, count = hash_window.probe(index, one, one, one)
    hits = sum(hash_window._build.stats.cache_hits.values())
    print(json.dumps([lazy, count.tolist(), hits, len(merge_window._run.signatures), str(kernel_folder())]))
"""


def run(**environment: str) -> tuple[list[object], str]:
    """What the program says, and its standard error."""
    base = {k: v for k, v in os.environ.items() if k not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**base, **environment}, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout), done.stderr


def test_a_kernel_is_compiled_once_for_a_user_and_only_when_it_is_called(tmp_path: Path):
    (lazy, count, hits, other, folder), _ = run(XDG_CACHE_HOME=str(tmp_path))
    assert (lazy, count, hits, other) == (True, [1], 0, 0)
    assert Path(folder).parent == tmp_path / "watersmeet" / "kernels"
    assert (tmp_path / "watersmeet").stat().st_mode & 0o777 == 0o700
    (_, count, hits, _, again), said = run(XDG_CACHE_HOME=str(tmp_path))
    assert (count, hits, again, said) == ([1], 1, folder, "")
    for file in Path(folder).rglob("*.nbc"):
        file.write_bytes(b"damaged")
    (_, count, hits, _, _), _ = run(XDG_CACHE_HOME=str(tmp_path))
    assert (count, hits) == ([1], 0)
    (tmp_path / "watersmeet").chmod(0o777)
    (tmp_path / "temporary").mkdir()
    (_, count, hits, _, elsewhere), _ = run(XDG_CACHE_HOME=str(tmp_path), TMPDIR=str(tmp_path / "temporary"))
    assert (count, hits) == ([1], 0)
    assert Path(elsewhere).is_relative_to(tmp_path / "temporary")


def test_folders_that_others_may_write_to_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert code_cache.is_own(tmp_path / "new" / "deep")
    assert (tmp_path / "new" / "deep").stat().st_mode & 0o777 == 0o700
    for mode in (0o777, 0o775, 0o702):
        (tmp_path / "open").mkdir(exist_ok=True)
        (tmp_path / "open").chmod(mode)
        assert not code_cache.is_own(tmp_path / "open")
    (tmp_path / "file").write_text("")
    assert not code_cache.is_own(tmp_path / "file" / "below")
    (tmp_path / "link").symlink_to(tmp_path / "new")
    assert code_cache.is_own(tmp_path / "link"), "a link of the user's own to a folder of the user's own"
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert code_cache.is_own(tmp_path / "new") == (tmp_path.stat().st_uid == 0), "root's folders are trusted"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"NUMBA_CACHE_DIR": "/chosen", "XDG_CACHE_HOME": "/xdg"}, ["/chosen/watersmeet"]),
        ({"XDG_CACHE_HOME": "/xdg"}, ["/xdg/watersmeet", "/tmp/watersmeet-7"]),
        ({"HOME": "/home/me"}, ["/home/me/.cache/watersmeet", "/tmp/watersmeet-7"]),
        ({"XDG_CACHE_HOME": "relative"}, ["/tmp/watersmeet-7"]),
    ],
)
def test_where_kernels_may_be_kept(environment, expected, monkeypatch: pytest.MonkeyPatch):
    for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(os, "geteuid", lambda: 7)
    monkeypatch.setattr(code_cache.tempfile, "gettempdir", lambda: "/tmp")
    assert [str(base) for base in code_cache._bases()] == expected


def test_the_digest_of_a_kernel_covers_what_it_calls(monkeypatch: pytest.MonkeyPatch):
    """Also across distributions: a and b may be of the laboratory, c of the product."""
    imports = {"a": "from watersmeet_lab.kernels.b import f", "b": "import watersmeet.kernels.c"}
    texts = {"c": "x = 1", "d": "", **imports}
    monkeypatch.setattr(code_cache, "_text", lambda name: texts[name.rpartition(".")[2]])
    found = []
    for name, text in [("d", "changed"), ("c", "x = 2"), ("a", "y = 1")]:
        code_cache.source.cache_clear()
        found.append(code_cache.source("watersmeet_lab.kernels.a"))
        texts[name] = text
    code_cache.source.cache_clear()
    assert found[0] == found[1] != found[2] != code_cache.source("watersmeet_lab.kernels.a")
    code_cache.source.cache_clear()
    monkeypatch.undo()
    assert code_cache.source("watersmeet.kernels.hash_window") != code_cache.source("watersmeet.kernels.hashing")
    with pytest.raises(OSError, match="__main__ is in no package"):
        code_cache.source("__main__")


@kernel(["int64(int64)", "float64(float64)"])
def double(x):
    return x + x


@kernel("int64(int64, int64)")
def twice(x, n):
    return n if n < 1 else double(x) + twice(x, n - 1)


def test_declared_signatures_and_no_others(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(code_cache, "_text", lambda name: "")
    assert double.signatures == []
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda n: twice(3, n), [2] * 16)) == [12] * 16
    assert double(1.5) == 3.0
    assert len(double.signatures) == 2
    with pytest.raises(TypeError, match="No matching definition"):
        double(np.array([1]))
    with pytest.raises(TypeError, match="No matching definition"):
        double("text")


def test_without_a_folder_kernels_are_compiled_and_not_kept(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(code_cache, "kernel_folder", lambda: None)

    @kernel("int64(int64)")
    def triple(x):
        return 3 * x

    assert triple(2) == 6
    assert triple.stats.cache_path is None


@pytest.mark.parametrize(
    ("spent_s", "worker", "told"),
    [((0.0,), False, 0), ((0.2,), False, 1), ((0.06, 0.06, 0.2), False, 1), ((0.2,), True, 0)],
)
def test_compilation_is_told_once_if_it_takes_long(spent_s, worker, told, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(compiled, "PATIENCE_S", 0.1)
    if worker:
        monkeypatch.setitem(sys.modules, "pyspark.worker", compiled)
    else:
        monkeypatch.delitem(sys.modules, "pyspark.worker", raising=False)
    said: list[str] = []
    notice = Notice(said.append)
    for seconds in spent_s:
        notice.on_start(None)
        notice.on_start(None)
        notice.on_end(None)
        time.sleep(seconds)
        notice.on_end(None)
    assert len(said) == told
    assert all(text.startswith("watersmeet: compiling join kernels") for text in said)
