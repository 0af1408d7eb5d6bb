"""`@kernel`: a function that Numba compiles when it is first called, for the declared signatures and no others.

Compiling all kernels takes most of a minute, and a query needs few of them. Kernels that call kernels compile what they call, and what is
compiled is kept, see `code_cache`. Compilation that takes long prints a notice, once, where a user may be waiting for it.

Invariant: a kernel has the declared signatures only; other arguments are an error and never a compilation.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from numba import njit
from numba.core import typeinfer
from numba.core.caching import NullCache
from numba.core.compiler_lock import global_compiler_lock
from numba.core.event import Listener, register, unregister

from watersmeet.kernels.code_cache import KernelCache, kernel_folder

PATIENCE_S = 1.0
"""A notice is printed for compilation that takes longer."""


def kernel(signatures: Any, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Declare a kernel: `@kernel("int64(int64[::1])")`; several signatures are a list, options are Numba's."""
    declared = signatures if isinstance(signatures, list) else [signatures]

    def declare(function: Callable[..., Any]) -> Any:
        dispatcher = njit(**options)(function)
        if hasattr(dispatcher, "disable_compile"):  # NUMBA_DISABLE_JIT leaves functions as they are
            _postpone(dispatcher, declared)
        return dispatcher

    return declare


def _postpone(dispatcher: Any, signatures: Sequence[Any]) -> None:
    """Have the signatures compiled when Python calls the function, or when a kernel that calls it is compiled."""

    def compile_declared() -> None:
        with global_compiler_lock:
            if "_compile_for_args" not in vars(dispatcher):
                return
            dispatcher._cache = _cache_of(dispatcher.py_func)
            with typeinfer.register_dispatcher(dispatcher), NOTICE.watch():
                for signature in signatures:
                    dispatcher.compile(signature)
            dispatcher.disable_compile()
            del dispatcher._compile_for_args, dispatcher.get_call_template

    def compile_for_call(*args: Any, **kwargs: Any) -> Any:
        compile_declared()
        return dispatcher

    def compile_for_caller(args: Any, kwargs: Any) -> Any:
        compile_declared()
        return dispatcher.get_call_template(args, kwargs)

    dispatcher._compile_for_args, dispatcher.get_call_template = compile_for_call, compile_for_caller


def _cache_of(function: Callable[..., Any]) -> Any:
    try:
        return KernelCache(function)
    except (RuntimeError, OSError):  # no folder, or no source to make a digest of
        return NullCache()


class Notice(Listener):
    """Says once that kernels are being compiled, if that takes long; Spark's workers keep silent."""

    def __init__(self, say: Callable[[str], None] | None = None) -> None:
        self._say = say or (lambda text: print(text, file=sys.stderr, flush=True))
        self._told, self._spent_s, self._depth = False, 0.0, 0
        self._began = 0.0
        self._timer: threading.Timer | None = None

    @contextmanager
    def watch(self) -> Iterator[None]:
        """While it lasts, Numba tells of compilations."""
        register("numba:compile", self)
        try:
            yield
        finally:
            unregister("numba:compile", self)

    def on_start(self, event: Any) -> None:
        self._depth += 1
        if self._depth == 1 and not self._told and "pyspark.worker" not in sys.modules:
            self._began = time.monotonic()
            self._timer = threading.Timer(max(PATIENCE_S - self._spent_s, 0.0), self._tell)
            self._timer.daemon = True
            self._timer.start()

    def on_end(self, event: Any) -> None:
        self._depth -= 1
        if self._depth == 0 and self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._spent_s += time.monotonic() - self._began

    def _tell(self) -> None:
        self._told = True
        folder = kernel_folder()
        kept = f"once; they are kept in {folder}" if folder else "in every process: no cache folder is this user's own"
        self._say(f"watersmeet: compiling join kernels for this machine ({kept})")


NOTICE = Notice()
