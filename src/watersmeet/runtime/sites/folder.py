"""Letters in a folder that all sites reach, on any of the file systems of `rounds.systems`.

    exchange/
        sites/paris.json                what a site is: its query, its run, its watersmeet
        letters/paris/tokyo/17          the letter with this number
        letters/paris/tokyo/18.0-3      part 0 of 3 of the next one

Invariant: a file is put whole, once, and never changed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote

from watersmeet.errors import OptionError
from watersmeet.runtime.rounds.systems import check_reach, open_files
from watersmeet.runtime.sites.exchange import read_greeting, split


class FolderExchange:
    """A folder."""

    def __init__(self, address: Any) -> None:
        if not isinstance(address, (str, os.PathLike)) or not os.fspath(address):
            raise OptionError(
                f"exchange={address!r}: give a folder that all sites reach, such as 's3://bucket/query' or '/mnt/shared/query', or topics: 'kafka:PREFIX@HOST:PORT'"
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
        self._sent: dict[tuple[str, str], dict[int, list[str]]] = {}
        """By pair the files of the letters that are there, as far as this process has looked or has put them."""

    def greet(self, site: str, who: Mapping[str, Any]) -> None:
        self._files.replace(f"{self._root}/sites/{quote(site, safe='')}.json", json.dumps(who).encode(), durably=True)

    def greetings(self) -> dict[str, dict[str, Any]]:
        out = {}
        for name in self._files.lengths(f"{self._root}/sites"):
            if name.endswith(".json") and not name.startswith("."):
                blob = self._files.read(f"{self._root}/sites/{name}").to_pybytes()
                where = f"{self.address.rstrip('/')}/sites/{name}"
                out[unquote(name.removesuffix(".json"))] = read_greeting(
                    blob, where, "delete it, and start that site again, which writes it anew"
                )
        return out

    def find_unsent(self, sender: str, to: str, numbers: Collection[int]) -> list[int]:
        self._sent[sender, to] = self._list(sender, to)
        there = _find_whole(self._sent[sender, to])
        return sorted(n for n in numbers if n not in there)

    def put(self, sender: str, to: str, number: int, blob: bytes) -> None:
        folder, parts = self._folder(sender, to), split(blob)
        names = [str(number)] if len(parts) == 1 else [f"{number}.{n}-{len(parts)}" for n in range(len(parts))]
        self._files.make_folder(folder)
        for name, part in zip(names, parts, strict=True):
            self._files.create(f"{folder}/{name}", part, durably=True)
        self._sent.setdefault((sender, to), {})[number] = names

    def fetch(self, sender: str, to: str, after: int) -> Iterator[tuple[int, bytes]]:
        folder = self._folder(sender, to)
        for number, names in sorted(_find_whole(self._list(sender, to)).items()):
            if number > after:
                yield number, b"".join(self._files.read(f"{folder}/{name}").to_pybytes() for name in names)

    def forget(self, sender: str, to: str, until: int) -> None:
        known = self._sent.get((sender, to), {})
        for number in [n for n in known if n <= until]:
            for name in known.pop(number):
                self._files.delete(f"{self._folder(sender, to)}/{name}")

    def show(self, sender: str, to: str, number: int) -> str:
        return f"{self.address.rstrip('/')}/letters/{quote(sender, safe='')}/{quote(to, safe='')}/{number}"

    def _folder(self, sender: str, to: str) -> str:
        return f"{self._root}/letters/{quote(sender, safe='')}/{quote(to, safe='')}"

    def _list(self, sender: str, to: str) -> dict[int, list[str]]:
        """By number the files of letters, whole or not."""
        found: dict[int, list[str]] = {}
        for name in self._files.lengths(self._folder(sender, to)):
            if name[:1].isdigit():
                found.setdefault(int(name.partition(".")[0]), []).append(name)
        return found


def _find_whole(found: Mapping[int, list[str]]) -> dict[int, list[str]]:
    """By number the files of the letters of which all parts are there, in order."""
    ordered = {n: sorted(names, key=_part_of) for n, names in found.items()}
    return {n: names for n, names in ordered.items() if len(names) == int(names[0].partition("-")[2] or 1)}


def _part_of(name: str) -> int:
    """Which part a file is.

    >>> _part_of("18.2-3"), _part_of("17")
    (2, 0)
    """
    return int(name.partition(".")[2].partition("-")[0] or 0)
