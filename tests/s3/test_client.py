"""The client of object stores against the store itself, without Spark: conditions, parts, and what cannot be reached."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from watersmeet.errors import OptionError
from watersmeet.runtime.rounds.systems import check_reach, open_files
from watersmeet.runtime.spark.stores import _S3A
from watersmeet_lab.machines.store import BUCKET, Store

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.thorough]
LONGEST_S = 45.0
"""The rest of a minute is Spark's start."""


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    pytest.importorskip("moto.server")
    with Store() as running:
        yield running


@pytest.fixture
def reached(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment that `lend_settings` makes."""
    for name in _S3A.values():
        monkeypatch.delenv(name, raising=False)
    known = store.settings()
    for name, variable in _S3A.items():
        if f"spark.hadoop.fs.s3a.{name}" in known:
            monkeypatch.setenv(variable, known[f"spark.hadoop.fs.s3a.{name}"])


def test_the_contract_of_files(reached: None) -> None:
    files, root = open_files(f"s3a://{BUCKET}/ck/watersmeet")
    assert (root, files.is_local) == ("ck/watersmeet", False)
    check_reach(files, root, "checkpoint")
    assert files.lengths(root) == {}, "the probe is gone"
    assert files.create(f"{root}/manifests/3.json", b"first", durably=True)
    assert files.create(f"{root}/manifests/3.json", b"first", durably=True), "the same again is its own"
    assert not files.create(f"{root}/manifests/3.json", b"second", durably=True)
    writer = files.open_writer(f"{root}/mail/big")
    for n in range(12):
        writer.write(bytes([n]) * 2**20)
    writer.close()
    parts = files.read_ranges(f"{root}/mail/big", [(2**20 - 1, 2), (11 * 2**20, 1)])
    assert [part.to_pybytes() for part in parts] == [b"\0\1", b"\x0b"]
    assert files.lengths(root) == {"manifests": 0, "mail": 0}
    assert files.lengths(f"{root}/mail") == {"big": 12 * 2**20}
    assert files.read(f"{root}/manifests/3.json").to_pybytes() == b"first"
    files.replace(f"{root}/manifests/3.json", b"third", durably=True)
    assert files.read(f"{root}/manifests/3.json").to_pybytes() == b"third"
    for name in ("manifests/3.json", "mail/big", "mail/none"):
        files.delete(f"{root}/{name}")
    assert not files.has(f"{root}/manifests/3.json")
    with pytest.raises(FileNotFoundError):
        files.read(f"{root}/manifests/3.json")


@pytest.mark.parametrize("wrong", ["bucket", "endpoint", "credentials"])
def test_what_cannot_be_written_is_told_in_time(reached: None, monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    if wrong == "endpoint":
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    if wrong == "credentials":
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    bucket, began = "nowhere" if wrong == "bucket" else BUCKET, time.monotonic()
    with pytest.raises(OptionError, match=r"checkpoint='.*' cannot be written \(.*fs\.s3a\.access\.key") as raised:
        check_reach(*open_files(f"s3a://{bucket}/ck"), f"checkpoint='s3a://{bucket}/ck'")
    assert ("NoSuchBucket" in str(raised.value)) == (wrong == "bucket")
    assert "\n" not in str(raised.value)
    assert time.monotonic() - began < LONGEST_S
