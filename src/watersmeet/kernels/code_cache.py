"""Where compiled kernels are kept: in the user's cache folder, for all environments of the user.

    ~/.cache/watersmeet/kernels/<machine>/<source>/     NUMBA_CACHE_DIR and XDG_CACHE_HOME are obeyed

<machine> is a digest of the processor and of the versions that decide the code, <source> one of a kernel's module and of all
kernels that it imports: Numba itself looks at the function's own file only, and would run a callee of yesterday. The folder can be
deleted at any time. Without a home the folder is in the temporary one; without any, kernels are compiled in every process.

Invariant: code is loaded only from folders that belong to this user or to root and that nobody else may write to. What cannot
be read is compiled again, what cannot be written is not kept. Writers of one folder write the same bytes: they have one processor,
one source, and compile the declared signatures in their order.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.registry import cpu_target

_IMPORT = re.compile(r"^\s*(?:from|import) (watersmeet\w*\.kernels(?:\.\w+)+)", re.MULTILINE)
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


@cache
def kernel_folder() -> Path | None:
    """The folder of this machine's compiled kernels; None if no place is fit."""
    for base in _bases():
        if is_own(base) and is_own(base / "kernels") and is_own(base / "kernels" / machine()):
            return base / "kernels" / machine()
    return None


def _bases() -> Iterator[Path]:
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen:
        yield Path(chosen) / "watersmeet"
        return
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if os.path.isabs(home):
        yield Path(home) / "watersmeet"
    user = os.geteuid() if hasattr(os, "geteuid") else ""
    yield Path(tempfile.gettempdir()) / f"watersmeet-{user}"


def is_own(folder: Path) -> bool:
    """Whether code may be loaded from a folder, which is made if it is not there."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return all(_is_safe(at) for at in (folder.lstat(), folder.stat()))
    except OSError:
        return False


def _is_safe(at: os.stat_result) -> bool:
    if not hasattr(os, "geteuid"):
        return True
    open_to_others = bool(at.st_mode & _OTHERS_WRITE) and not stat.S_ISLNK(at.st_mode)
    return at.st_uid in (os.geteuid(), 0) and not open_to_others


@cache
def machine() -> str:
    """A digest of the processor and the versions that decide the code."""
    versions = [sys.implementation.cache_tag, numba.__version__, np.__version__]
    return _digest(repr([*versions, cpu_target.target_context.codegen().magic_tuple()]))


@cache
def source(module: str) -> str:
    """A digest of a kernel module and of all kernels that it imports."""
    texts = {module: _text(module)}
    todo = [module]
    while todo:
        for name in _IMPORT.findall(texts[todo.pop()]):
            if name not in texts:
                texts[name] = _text(name)
                todo.append(name)
    return _digest(repr(sorted(texts.items())))


def _text(module: str) -> str:
    package, _, name = module.rpartition(".")
    if not package:
        raise OSError(f"{module} is in no package")
    return (files(package) / f"{name}.py").read_text()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class _Place:
    """Where Numba keeps one function, in the form in which it asks."""

    def __init__(self, folder: Path, function: Callable[..., Any]) -> None:
        self._stamp = source(function.__module__)
        self._folder = folder / f"{function.__module__.rpartition('.')[2]}-{self._stamp}"
        self._line = function.__code__.co_firstlineno

    @classmethod
    def from_function(cls, function: Callable[..., Any], _: str) -> _Place | None:
        folder = kernel_folder()
        return None if folder is None else cls(folder, function)

    def ensure_cache_path(self) -> None:
        if not is_own(self._folder):
            raise OSError(f"{self._folder} is not this user's own")

    def get_cache_path(self) -> str:
        return str(self._folder)

    def get_source_stamp(self) -> str:
        return self._stamp

    def get_disambiguator(self) -> str:
        return str(self._line)


class _Kept(CompileResultCacheImpl):
    _locator_classes = (_Place,)


class KernelCache(FunctionCache):
    """Numba's cache of one function; what is wrong with it costs a compilation, never the query."""

    _impl_class = _Kept

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            self._impl.locator.ensure_cache_path()
            return super().load_overload(sig, target_context)
        except Exception:
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except OSError:
            self.disable()
