"""The manifest: what it refuses, and that what it writes it reads."""

from __future__ import annotations

import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.errors import CheckpointError
from watersmeet.plan.model import Plan
from watersmeet.storage.manifest import Identity, Manifest
from watersmeet.storage.segment import SegmentInfo
from watersmeet.storage.stores import BlobStore


def plan(window: str = "10 SECONDS", **options: object) -> Plan:
    stream = wm.Stream(pa.table({"k": [1], "ts": pa.array([0], pa.timestamp("us"))}), time="ts")
    return wm.sql(f"SELECT a.k FROM s a, s b WHERE a.k = b.k WINDOW = {window}", s=stream, **options).plan


def test_round_trip() -> None:
    manifest = Manifest.fresh(Identity.of(plan()))
    manifest.segments["a"].append(SegmentInfo("x", 3, 100, -5, 7))
    manifest.maxima, manifest.late, manifest.fanout, manifest.extra = (
        {"s": 9},
        {"s": 2},
        {"a>b": [10.0, 3.5]},
        {"a": [1, [2]]},
    )
    assert Manifest.from_json(manifest.to_json(), Identity.of(plan())) == manifest


@pytest.mark.parametrize("other", [plan("11 SECONDS"), plan(units=3)], ids=["window", "units"])
def test_another_plan_is_refused_naming_both(other: Plan) -> None:
    with pytest.raises(CheckpointError, match="another query or placement") as error:
        Manifest.from_json(Manifest.fresh(Identity.of(plan())).to_json(), Identity.of(other))
    assert plan().fingerprint() in str(error.value)
    assert other.fingerprint() in str(error.value)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1}', '{"format": 99}', "null"])
def test_a_damaged_manifest_is_refused(text: str) -> None:
    with pytest.raises(CheckpointError, match="checkpoint"):
        Manifest.from_json(text, Identity.of(plan()))


@pytest.mark.parametrize("blob", [None, b"", b"not arrow"], ids=["missing", "empty", "garbage"])
def test_a_damaged_segment_is_refused(blob: bytes | None) -> None:
    class Broken:
        def get(self, id: str) -> bytes | None:
            return blob

        def put(self, id: str, blob: bytes) -> None: ...
        def delete(self, id: str) -> None: ...

    with pytest.raises(CheckpointError, match="segment lost"):
        BlobStore(Broken()).read(SegmentInfo("lost", 3, 1, 0, 0, file_bytes=9, checksum=1))


def test_the_fingerprint_ignores_what_moves_nothing() -> None:
    assert plan().fingerprint() == plan(order=["b", "a"]).fingerprint() == plan(kernel="nlw").fingerprint()
