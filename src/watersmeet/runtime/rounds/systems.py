"""The file systems that checkpoints lie on: whole files, written once, by any of two clients.

    a path, file:, hdfs:             Arrow's file systems    a new file is written beside its place and linked or renamed
    s3:, s3a:, gs:, abfs:, az:       obstore                 a new object is put on the condition that there is none (If-None-Match: *)

Both clients of an object store, this one and Hadoop's, which writes Spark's own logs, must reach it by the same account. So what Spark was told of it
(`spark.hadoop.fs.s3a.*`) is lent to this process and to Spark's Python workers, as the variables of the environment that every client of S3 reads.

Invariant: a file is seen whole or not at all. `create` never replaces one: of two drivers that create the same file one is told so.
Why not Arrow's client of S3: it puts without conditions, and read a file of 32 MB in 6 s where this one took 0.1 (decision 0045).
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Protocol

import pyarrow as pa
from pyarrow import fs as pafs

from watersmeet.errors import OptionError

_SCHEMES = ("s3", "s3a", "s3n", "gs", "abfs", "abfss", "az")
REMEDY = (
    "make the bucket, and give the driver and all executors credentials, an endpoint and a region: spark.hadoop.fs.s3a.access.key, .secret.key, .endpoint and .endpoint.region, "
    "or AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL and AWS_REGION in their environment"
)
_RETRIES: Any = {"max_retries": 4, "retry_timeout": timedelta(seconds=20)}


class Writer(Protocol):
    """A file that grows, and is there when it is closed."""

    def write(self, blob: Any, /) -> object: ...
    def close(self) -> None: ...


class Files(Protocol):
    """What a checkpoint needs of a file system. What is not there is a FileNotFoundError, what cannot be reached another OSError."""

    is_local: bool

    def read(self, path: str) -> pa.Buffer:
        """A whole file."""

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        """Parts of a file, by (begin, bytes); what lies behind its end is cut off."""

    def open_writer(self, path: str) -> Writer:
        """A new file that grows."""

    def replace(self, path: str, blob: bytes, *, durably: bool) -> None:
        """Write a file all at once; one of that name is replaced."""

    def create(self, path: str, blob: bytes, *, durably: bool) -> bool:
        """Write a file all at once, if there is none of that name; whether that is so."""

    def lengths(self, folder: str) -> dict[str, int]:
        """The files of a folder by name, with their lengths, and its folders; empty if there is none."""

    def has(self, path: str) -> bool: ...

    def delete(self, path: str) -> None:
        """Delete a file; one that is gone already is no error."""

    def make_folder(self, path: str) -> None: ...


class ArrowFiles:
    """A file system of Arrow's that can rename."""

    def __init__(self, system: pafs.FileSystem) -> None:
        self.system = system
        self.is_local = isinstance(system, pafs.LocalFileSystem)

    def read(self, path: str) -> pa.Buffer:
        with self.system.open_input_file(path) as file:
            return file.read_buffer(file.size())

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        with self.system.open_input_file(path) as file:
            return [pa.py_buffer(file.read_at(size, begin)) for begin, size in ranges]

    def open_writer(self, path: str) -> Writer:
        return self.system.open_output_stream(path, compression=None)  # type: ignore[no-any-return]

    def replace(self, path: str, blob: bytes, *, durably: bool) -> None:
        self.system.move(self._write_beside(path, blob, durably), path)

    def create(self, path: str, blob: bytes, *, durably: bool) -> bool:
        beside = self._write_beside(path, blob, durably)
        try:
            return self._link(beside, path)
        finally:
            self.delete(beside)

    def _link(self, beside: str, path: str) -> bool:
        if self.is_local:
            try:
                os.link(beside, path)
                return True
            except FileExistsError:
                return False
            except OSError:  # a file system without hard links
                pass
        if self.has(path):
            return False
        self.system.move(beside, path)
        return True

    def _write_beside(self, path: str, blob: bytes, durably: bool) -> str:
        folder, _, name = path.rpartition("/")
        beside = f"{folder}/.{name}.{uuid.uuid4().hex}.part"
        with self.system.open_output_stream(beside, compression=None) as file:
            file.write(blob)
        if durably and self.is_local:
            _sync(beside)
        return beside

    def lengths(self, folder: str) -> dict[str, int]:
        found = self.system.get_file_info(pafs.FileSelector(folder, allow_not_found=True))
        return {f.base_name: f.size for f in found}

    def has(self, path: str) -> bool:
        return bool(self.system.get_file_info(path).type == pafs.FileType.File)

    def delete(self, path: str) -> None:
        with suppress(FileNotFoundError):
            self.system.delete_file(path)

    def make_folder(self, path: str) -> None:
        self.system.create_dir(path, recursive=True)


class ObjectFiles:
    """An object store, by a store of obstore's: an object becomes visible when it is complete."""

    is_local = False

    def __init__(self, store: Any) -> None:
        import obstore

        self._store, self._client = store, obstore

    def read(self, path: str) -> pa.Buffer:
        with _errors_of_system():
            return pa.py_buffer(self._client.get(self._store, path).bytes())

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        with _errors_of_system():
            starts, sizes = zip(*ranges, strict=True)
            parts = self._client.get_ranges(self._store, path, starts=starts, lengths=sizes)
        return [pa.py_buffer(part) for part in parts]

    def open_writer(self, path: str) -> Writer:
        return _ObjectWriter(self._client.open_writer(self._store, path))

    def replace(self, path: str, blob: bytes, *, durably: bool) -> None:
        with _errors_of_system():
            self._client.put(self._store, path, blob)

    def create(self, path: str, blob: bytes, *, durably: bool) -> bool:
        """A put whose answer was lost is repeated by the client, and finds what it has put itself."""
        from obstore.exceptions import AlreadyExistsError

        with _errors_of_system():
            try:
                self._client.put(self._store, path, blob, mode="create")
                return True
            except AlreadyExistsError:
                return bool(self.read(path).to_pybytes() == blob)

    def lengths(self, folder: str) -> dict[str, int]:
        with _errors_of_system():
            found = self._client.list_with_delimiter(self._store, folder)
        names = {prefix.rpartition("/")[2]: 0 for prefix in found["common_prefixes"]}
        return names | {one["path"].rpartition("/")[2]: one["size"] for one in found["objects"]}

    def has(self, path: str) -> bool:
        try:
            with _errors_of_system():
                self._client.head(self._store, path)
                return True
        except FileNotFoundError:
            return False

    def delete(self, path: str) -> None:
        with suppress(FileNotFoundError), _errors_of_system():
            self._client.delete(self._store, path)

    def make_folder(self, path: str) -> None:
        """An object store has no folders."""


class _ObjectWriter:
    """A file of the client's, which takes bytes without a sign: Arrow's buffers have one."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, blob: Any, /) -> None:
        with _errors_of_system():
            self._file.write(memoryview(blob).cast("B"))

    def close(self) -> None:
        with _errors_of_system():
            self._file.close()


class _errors_of_system:
    """What the client of object stores raises becomes an OSError of one line."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, at: Any) -> None:
        from obstore.exceptions import BaseError

        if isinstance(error, BaseError):
            raise OSError(_say(error)) from error


def _say(error: BaseException) -> str:
    """What an error of the client's says, in one line."""
    return " ".join(str(error).split("\n\nDebug")[0].split())


def open_files(address: str) -> tuple[Files, str]:
    """The file system of an address, and the path there."""
    scheme, colon, rest = address.partition("://")
    if scheme in _SCHEMES and colon:
        return _open_bucket(scheme, rest)
    if not colon:
        return ArrowFiles(pafs.LocalFileSystem()), os.path.abspath(address.removeprefix("file:"))
    system, path = pafs.FileSystem.from_uri(address)
    return ArrowFiles(system), path


def is_object_store(address: str) -> bool:
    """Whether an address is of an object store.

    >>> is_object_store("s3a://bucket/ck"), is_object_store("hdfs://host/ck"), is_object_store("/tmp/ck")
    (True, False, False)
    """
    scheme, colon, _ = address.partition("://")
    return bool(colon) and scheme in _SCHEMES


def _open_bucket(scheme: str, rest: str) -> tuple[Files, str]:
    try:
        from obstore.store import S3Store, from_url
    except ImportError:
        raise OptionError(
            f'{scheme}://{rest}: checkpoints on object stores need obstore; pip install "watersmeet[s3]" on the driver and all executors'
        ) from None
    bucket, _, path = rest.partition("/")
    if not scheme.startswith("s3"):
        return ObjectFiles(from_url(f"{scheme}://{bucket}", retry_config=_RETRIES)), path
    endpoint = os.environ.get("AWS_ENDPOINT_URL")
    http: Any = {"allow_http": _is_plain(endpoint), "connect_timeout": "5s"}
    where: dict[str, Any] = {"endpoint": endpoint} if endpoint else {}
    return ObjectFiles(S3Store(bucket, client_options=http, retry_config=_RETRIES, **where)), path


def _is_plain(endpoint: str | None) -> bool:
    """Whether an endpoint is reached without TLS."""
    return endpoint is not None and endpoint.startswith("http://")


def options_for_tables(address: str) -> dict[str, str] | None:
    """What other clients of object stores have to be told besides the environment; None where there is nothing to say."""
    plain = is_object_store(address) and _is_plain(os.environ.get("AWS_ENDPOINT_URL"))
    return {"allow_http": "true"} if plain else None


def check_reach(files: Files, path: str, given: str) -> None:
    """Raise if nothing can be written below a path of an object store; `given` is the option, for the error."""
    if not isinstance(files, ObjectFiles):
        return
    probe = f"{path}/probe-{uuid.uuid4().hex}"
    try:
        if not (files.create(probe, b"?", durably=False) and not files.create(probe, b"!", durably=False)):
            raise OptionError(
                f"{given}: this store ignores the condition of a put (If-None-Match), so two drivers could not be kept apart; take one that knows it"
            )
        files.delete(probe)
    except OSError as error:
        raise OptionError(f"{given} cannot be written ({_say(error)}); {REMEDY}") from error


def _sync(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
