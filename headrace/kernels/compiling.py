"""How kernels are compiled: when one is first called, and kept in a cache for the next process.

A kernel is loaded or compiled when it is first needed, so an import costs nothing and a query pays only for
its own kernels. A wheel brings them along compiled (`headrace.kernels.shipped`). If numba's cache directory
cannot be written, kernels are cached in a private temporary directory, or else compiled by each process.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import numba as nb
from numba.core import config, event
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher

from headrace import tuning
from headrace.kernels import shipped

F = TypeVar("F", bound=Callable[..., Any])

SILENT: Final = "HEADRACE_SILENT_COMPILATION"
"""The environment variable that switches the message off, if it is set to anything but 0."""


_declared: list[Callable[[], Any]] = []


def kernel(signature: Any = None, *, usual: Sequence[Any] = ()) -> Callable[[F], Dispatcher[F]]:
    """Compile a function for `signature`, or for the types of its calls, when it is first called.

    `usual`: for a kernel without a signature, the types of arguments that a wheel has it compiled for.
    """

    def decorate(function: F) -> Dispatcher[F]:
        """Wrap the function for numba, with a cache and late compilation."""
        made: Dispatcher[F] = nb.njit(function)
        if hasattr(made, "py_func"):  # not with NUMBA_DISABLE_JIT
            _keep(made)
            _use_shipped(made)
            if signature is not None:
                _compile_late(made, signature)
            _declared.extend(partial(made.compile, types) for types in usual)
        return made

    return decorate


def _compile_late(dispatcher: Any, signature: Any) -> None:
    """The first call, from Python or from another kernel, compiles the declared signature and no other.

    Numba calls `compile` with the types of the arguments, and then calls the result with the arguments. The
    result is the dispatcher itself, which then finds the declared signature, as if compiled from the start.
    """

    def compile(_: Any = None) -> Any:
        """Compile the declared signature on the first call, and ignore the types of the arguments."""
        with global_compiler_lock:
            if dispatcher._can_compile:
                type(dispatcher).compile(dispatcher, signature)
                dispatcher.disable_compile()
        return dispatcher

    dispatcher.compile = compile
    _declared.append(compile)


def compile_all() -> None:
    """Load every kernel whose types are declared, and compile those that are not in the cache."""
    package = importlib.import_module("headrace.kernels")
    for module in pkgutil.iter_modules(package.__path__):
        if not module.name.startswith("_"):
            importlib.import_module(f"headrace.kernels.{module.name}")
    for compile in _declared:
        compile()


# --- the cache --------------------------------------------------------------------------------------------


def _keep(dispatcher: Any) -> None:
    """Cache a kernel: in numba's directory, else in a private temporary one, else not at all."""
    if _cached(dispatcher):
        return
    settings: Any = config
    before, settings.CACHE_DIR = settings.CACHE_DIR, _private()
    try:
        _message.again |= not _cached(dispatcher)
    finally:
        settings.CACHE_DIR = before


def _cached(dispatcher: Any) -> bool:
    """Turn on caching for a kernel; False if the cache directory cannot be written."""
    try:
        dispatcher.enable_caching()
    except (RuntimeError, OSError):  # numba finds no directory that it can write
        return False
    return True


def _use_shipped(dispatcher: Any) -> None:
    """Look for a kernel among those that came compiled with the package, before any other cache."""
    if shipped.place() is not None:
        dispatcher._cache = shipped.ShippedFirst(dispatcher.py_func, dispatcher._cache)


def _private() -> str:
    """A temporary directory that only this user can write to; empty if there is none."""
    try:
        path = Path(tempfile.gettempdir()) / f"headrace-kernels-{os.getuid()}"
        path.mkdir(mode=0o700, exist_ok=True)
        found = path.lstat()
    except OSError:
        return ""
    mine = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    return str(path) if mine and not stat.S_IMODE(found.st_mode) & 0o077 else ""


# --- the message ------------------------------------------------------------------------------------------


class _Message(event.Listener):
    """One line on standard error when kernels have been compiled for a while; loading them from the cache
    does not count."""

    def __init__(self) -> None:
        self.again = False  # whether the next process must do it again
        self._began = 0.0
        self._depth = 0
        self._spent = 0.0
        self._said = False

    def on_start(self, event: Any) -> None:
        """Start the clock when the outermost compilation begins; compilations nest."""
        if not _ours(event):
            return
        if not self._depth:
            self._began = time.monotonic()
        self._depth += 1
        self._say()

    def on_end(self, event: Any) -> None:
        """Add up the time when the outermost compilation ends."""
        if not _ours(event):
            return
        self._depth -= 1
        if not self._depth:
            self._spent += time.monotonic() - self._began
        self._say()

    def _say(self) -> None:
        """Print the message, once, when compilation has taken long enough."""
        if self._said or self._spent < tuning.current.compile_notice_seconds:
            return
        if os.environ.get(SILENT, "0") != "0":
            return
        self._said = True
        print(f"headrace: {_AGAIN if self.again else _ONCE}", file=sys.stderr, flush=True)


_ONCE: Final = "compiling kernels for this machine: this takes up to a minute, once"
_AGAIN: Final = (
    "compiling kernels, up to a minute in every process: no directory for a cache can be written; "
    "set NUMBA_CACHE_DIR to one"
)


def _ours(event: Any) -> bool:
    """Whether the event is about a kernel of Headrace."""
    dispatcher = (event.data or {}).get("dispatcher")
    module: str = getattr(getattr(dispatcher, "py_func", None), "__module__", None) or ""
    return module.startswith("headrace.kernels.")


_message = _Message()
event.register("numba:compile", _message)
