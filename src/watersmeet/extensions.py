"""What other distributions add to this one: pieces that they announce as entry points, loaded when somebody asks for them.

    group                 name                    piece
    watersmeet.kernels    what `kernel=` says     a kernel over a `kernels.problem.Problem`
    watersmeet.commands   the command's word      a `typer.Typer` with one command
    watersmeet.lab        local                   a module: what `wm.local` simulates

All pieces that this distribution knows by name come with the laboratory, `watersmeet-lab`. Spark is optional, too: platforms bring their own.

Invariant: only this module asks what is installed, and no piece is imported before it is asked for. A piece that is not there is an
error that names the distribution to install.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Any, Literal

from watersmeet.errors import OptionError

LAB = "watersmeet-lab"
Group = Literal["watersmeet.kernels", "watersmeet.commands", "watersmeet.lab"]


@cache
def find_pieces(group: Group) -> Mapping[str, EntryPoint]:
    """The pieces of a group that installed distributions announce, by name."""
    return {entry.name: entry for entry in entry_points(group=group)}


def require(group: Group, name: str, wanted: str) -> EntryPoint:
    """The piece, not loaded; if nobody announces it, an error that begins with what the user asked for."""
    if name not in find_pieces(group):
        raise OptionError(explain_missing(wanted))
    return find_pieces(group)[name]


def explain_missing(wanted: str) -> str:
    """What to say if a piece is not there.

    >>> explain_missing("kernel='ripple'")
    "kernel='ripple' comes with another distribution: pip install watersmeet-lab"
    """
    return f"{wanted} comes with another distribution: pip install {LAB}"


def load(group: Group, name: str, wanted: str) -> Any:
    """The piece itself."""
    return require(group, name, wanted).load()


def require_spark(wanted: str) -> None:
    """An error that begins with what the user asked for, if there is no Spark."""
    if find_spec("pyspark") is None:
        raise OptionError(
            f"{wanted} needs Spark, and this Python has no pyspark: pip install 'watersmeet[spark]'; wm.local runs without it"
        )


def require_extra(wanted: str, package: str, extra: str) -> None:
    """An error that begins with what the user asked for, if a package that comes with an extra is not there."""
    if find_spec(package) is None:
        raise OptionError(
            f"{wanted} needs the package {package}, and this Python has none: pip install 'watersmeet[{extra}]'"
        )
