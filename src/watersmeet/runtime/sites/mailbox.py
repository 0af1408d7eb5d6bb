"""The letters that lie in a site's checkpoint: under which names, and which of them must be there.

    run            the name of this run
    tokyo-17       taken from tokyo; it goes when a batch that takes it is committed
    to-tokyo-9     sent to tokyo; it goes when tokyo has taken it

Invariant: a letter is the one that its name says, or an error that names the file.
"""

from __future__ import annotations

import re
import zlib

from watersmeet.errors import CheckpointError
from watersmeet.runtime.rounds.checkpoint import LETTERS, StateFolder
from watersmeet.sites.letter import Letter
from watersmeet.sites.site_state import SiteState
from watersmeet.storage.document import REMEDY
from watersmeet.storage.manifest import BatchManifest

RUN = "run"
"""The file that has the name of this run, and the key of it in what sites say of themselves."""
STATE, TAKEN, RUNS = "state", "letters", "runs"
"""What manifests and intents have of a site."""


def read_taken(folder: StateFolder, sender: str, me: str, number: int) -> Letter:
    """A letter that a batch takes."""
    return _read(folder, f"{sender}-{number}", sender, me, number)[0]


def read_sent(folder: StateFolder, me: str, to: str, number: int) -> bytes:
    """The bytes of a letter that is to be sent."""
    return _read(folder, f"to-{to}-{number}", me, to, number)[1]


def _read(folder: StateFolder, name: str, sender: str, to: str, number: int) -> tuple[Letter, bytes]:
    path = folder.path(LETTERS, name)
    try:
        blob = folder.read(LETTERS, name).to_pybytes()
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing, which a batch has taken or sent; {REMEDY}") from None
    return Letter.from_bytes(blob, path).check_address(sender, to, number, path), blob


def read_run(folder: StateFolder) -> str:
    """The name of the run of a site."""
    if RUN not in folder.names(LETTERS):
        raise CheckpointError(f"{folder.path(LETTERS, RUN)} is missing; {REMEDY}")
    blob = folder.read(LETTERS, RUN).to_pybytes()
    found = re.fullmatch(rb"([0-9a-f]{32})(?: [0-9a-f]{8})?", blob)
    if found is None or (len(blob) > 32 and blob != _seal_run(found[1])):
        raise CheckpointError(f"{folder.path(LETTERS, RUN)} is damaged: it has no name of a run; {REMEDY}")
    return found[1].decode()


def write_run(folder: StateFolder, run: str) -> None:
    """Keep the name of the run, with a checksum: one with another letter would be another run's."""
    folder.write(LETTERS, RUN, _seal_run(run.encode()), durably=True)


def _seal_run(run: bytes) -> bytes:
    return run + f" {zlib.crc32(run):08x}".encode()


def list_waiting(after: BatchManifest) -> dict[str, range]:
    """By site the letters to it that it has not taken, as far as is known after a batch."""
    state = SiteState.of(after.sites.get(STATE, {}))
    return {to: range(last - len(state.batches.get(to, [])) + 1, last + 1) for to, last in sorted(state.sent.items())}
