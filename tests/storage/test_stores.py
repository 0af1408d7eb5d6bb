"""The host's copies of segments: right, or as if they were not there."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import pytest

from watersmeet.storage.stores import HostCache

BLOB = b"the bytes of a segment" * 10
SUM = zlib.crc32(BLOB)


def found(cache: HostCache) -> bytes | None:
    blob = cache.read("one", len(BLOB), SUM)
    return None if blob is None else blob.to_pybytes()


def test_what_is_written_is_read(tmp_path: Path) -> None:
    cache = HostCache(tmp_path / "cache")
    cache.write("one", BLOB)
    assert found(cache) == BLOB
    cache.remove("one")
    assert found(cache) is None


@pytest.mark.parametrize("damage", ["flip", "cut", "longer", "link", "writable", "folder"])
def test_a_copy_that_is_not_as_it_should_be_is_not_used(tmp_path: Path, damage: str) -> None:
    cache = HostCache(tmp_path / "cache")
    cache.write("one", BLOB)
    path = tmp_path / "cache" / "one"
    if damage == "link":
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
    elif damage == "writable":
        path.chmod(0o666)
    elif damage == "folder":
        path.unlink()
        path.mkdir()
    else:
        changed = {"flip": b"T" + BLOB[1:], "cut": BLOB[:-1], "longer": BLOB + b"."}[damage]
        path.write_bytes(changed)
    assert found(cache) is None


@pytest.mark.parametrize("folder", ["open to others", "link", "file"])
def test_a_folder_that_is_not_ours_alone_is_neither_read_nor_written(tmp_path: Path, folder: str) -> None:
    root, real = tmp_path / "cache", tmp_path / "real"
    HostCache(real).write("one", BLOB)
    if folder == "link":
        root.symlink_to(real)
    elif folder == "file":
        root.write_text("in the way")
    else:
        real.rename(root)
        root.chmod(0o755)
    cache = HostCache(root)
    assert found(cache) is None
    cache.write("two", BLOB)
    cache.remove("one")
    held = real if folder == "link" else root
    assert folder == "file" or os.listdir(held) == ["one"]
