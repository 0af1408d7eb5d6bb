"""Where sites leave letters for each other: a folder that all of them reach, on any of the file systems of `rounds.systems`.

    exchange/
        sites/paris.json                what a site is: its query, its run, its watersmeet
        letters/paris/tokyo/17          the letter with this number

Invariant: a letter is put whole, once, and never changed; its sender deletes it when the receiver has said that it has taken it for good.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import quote, unquote

from watersmeet.errors import OptionError
from watersmeet.runtime.rounds.systems import check_reach, open_files


class Exchange(Protocol):
    """A carrier of letters."""

    def greet(self, site: str, who: Mapping[str, Any]) -> None:
        """Say who a site is."""

    def greetings(self) -> dict[str, dict[str, Any]]:
        """Who the sites are that have been here."""

    def put(self, sender: str, to: str, number: int, blob: bytes) -> None:
        """Send a letter; one that is there already stays."""

    def numbers(self, sender: str, to: str) -> list[int]:
        """The letters of a pair of sites that are there, in order."""

    def get(self, sender: str, to: str, number: int) -> bytes:
        """A letter; a FileNotFoundError if it is not there."""

    def drop(self, sender: str, to: str, number: int) -> None:
        """Delete a letter that has been taken."""

    def show(self, sender: str, to: str, number: int) -> str:
        """Where a letter lies, for errors."""


class FolderExchange:
    """A folder."""

    def __init__(self, address: Any) -> None:
        if not isinstance(address, (str, os.PathLike)) or not os.fspath(address):
            raise OptionError(
                f"exchange={address!r}: give a folder that all sites reach, such as 's3://bucket/query' or '/mnt/shared/query'"
            )
        self.address = os.fspath(address)
        self._files, self._root = open_files(self.address)
        try:
            self._files.make_folder(f"{self._root}/sites")
        except OSError as error:
            raise OptionError(
                f"exchange={self.address!r} cannot be written ({error}); give a folder that all sites reach"
            ) from error
        check_reach(self._files, self._root, f"exchange={self.address!r}")

    def greet(self, site: str, who: Mapping[str, Any]) -> None:
        self._files.replace(f"{self._root}/sites/{quote(site, safe='')}.json", json.dumps(who).encode(), durably=True)

    def greetings(self) -> dict[str, dict[str, Any]]:
        out = {}
        for name in self._files.lengths(f"{self._root}/sites"):
            if name.endswith(".json") and not name.startswith("."):
                blob = self._files.read(f"{self._root}/sites/{name}").to_pybytes()
                out[unquote(name.removesuffix(".json"))] = json.loads(blob)
        return out

    def put(self, sender: str, to: str, number: int, blob: bytes) -> None:
        self._files.make_folder(self._folder(sender, to))
        self._files.create(self._path(sender, to, number), blob, durably=True)

    def numbers(self, sender: str, to: str) -> list[int]:
        return sorted(int(name) for name in self._files.lengths(self._folder(sender, to)) if name.isdigit())

    def get(self, sender: str, to: str, number: int) -> bytes:
        return self._files.read(self._path(sender, to, number)).to_pybytes()  # type: ignore[no-any-return]

    def drop(self, sender: str, to: str, number: int) -> None:
        self._files.delete(self._path(sender, to, number))

    def show(self, sender: str, to: str, number: int) -> str:
        return f"{self.address.rstrip('/')}/letters/{quote(sender, safe='')}/{quote(to, safe='')}/{number}"

    def _folder(self, sender: str, to: str) -> str:
        return f"{self._root}/letters/{quote(sender, safe='')}/{quote(to, safe='')}"

    def _path(self, sender: str, to: str, number: int) -> str:
        return f"{self._folder(sender, to)}/{number}"
