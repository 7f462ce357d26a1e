"""Kernels that a wheel brings along compiled, so that the first query on a machine compiles nothing.

They are compiled for a common processor of the platform (`TARGETS`), not for the machine that built the
wheel. A kernel of the wheel is used only if everything it depends on is as it was: the sources of all
kernels, the versions of numba and Python, and a processor with the features it needs. Otherwise it is
compiled on the machine, as without a wheel.
"""

from __future__ import annotations

import hashlib
import os
import platform
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import llvmlite.binding as llvm
from numba.core.caching import CompileResultCacheImpl, FunctionCache


@dataclass(frozen=True)
class Target:
    """A processor to compile for, in LLVM's words, and the features that it takes."""

    cpu: str
    features: frozenset[str]


TARGETS: Final = {
    "x86_64": Target(
        "x86-64-v3",
        frozenset(
            [
                "avx",
                "avx2",
                "bmi",
                "bmi2",
                "cx16",
                "f16c",
                "fma",
                "lzcnt",
                "movbe",
                "popcnt",
                "sse4.2",
                "xsave",
            ]
        ),
    ),
    "aarch64": Target("generic", frozenset()),
}
"""Machine → what wheels for it are compiled for. x86-64-v3 is Intel since 2013 and AMD since 2015."""

COMPILED: Final = Path(__file__).parent / "compiled"
"""Where a wheel has its compiled kernels. A checkout has none."""

BUILDING: Final = "HEADRACE_COMPILE_INTO"
"""The environment variable that names a directory for compiled kernels, set only while a wheel is built."""


def settings_for_building(directory: Path) -> dict[str, str]:
    """Environment variables for `python -m headrace.kernels` to compile for a wheel; empty if it cannot."""
    target = TARGETS.get(platform.machine())
    if target is None:
        return {}
    return {BUILDING: str(directory), "NUMBA_CPU_NAME": target.cpu, "NUMBA_CPU_FEATURES": ""}


@cache
def place() -> Path | None:
    """The directory of compiled kernels that this process uses or fills; None if there is none for it."""
    if building := os.environ.get(BUILDING):
        return Path(building)
    target = TARGETS.get(platform.machine())
    if target is None or not COMPILED.is_dir():
        return None
    host = {name for name, has in llvm.get_host_cpu_features().items() if has}
    return COMPILED if target.features <= host else None


@cache
def _stamp() -> str:
    """A checksum of the sources of all kernels: a kernel contains the code of those that it calls."""
    found = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        found.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()


class _Locator:
    """What numba asks of the place of a cache."""

    def __init__(self, function: Any) -> None:
        self._py_file = function.__code__.co_filename
        self._line = function.__code__.co_firstlineno

    @classmethod
    def from_function(cls, function: Any, path: str) -> _Locator:
        """Numba's constructor of locators."""
        return cls(function)

    def ensure_cache_path(self) -> None:
        """Make the directory: numba calls it before it writes, which is only while a wheel is built."""
        Path(self.get_cache_path()).mkdir(parents=True, exist_ok=True)

    def get_cache_path(self) -> str:
        """The directory of the files."""
        return str(place())

    def get_source_stamp(self) -> str:
        """What must be equal for a file to be used."""
        return _stamp()

    def get_disambiguator(self) -> str:
        """What makes two kernels of one name different."""
        return str(self._line)


class _Files(CompileResultCacheImpl):
    _locator_classes: Any = (_Locator,)


class _ForTarget:
    """What describes the code of a wheel, where numba describes the code that it would make here."""

    def __init__(self, codegen: Any) -> None:
        triple = codegen.magic_tuple()[0]
        self._described = (triple, TARGETS[platform.machine()].cpu, "")

    def magic_tuple(self) -> tuple[str, str, str]:
        return self._described


class _Wheel(FunctionCache):
    """The compiled kernels of a wheel as one of numba's caches."""

    _impl_class = _Files

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        base: Any = super()
        return base._index_key(sig, _ForTarget(codegen))


class ShippedFirst:
    """A cache that looks in the wheel first, and then in `own`, where what was compiled is kept."""

    def __init__(self, function: Any, own: Any) -> None:
        wheel: Any = _Wheel
        self._own, self._wheel = own, wheel(function)
        self._keep: Any = self._wheel if BUILDING in os.environ else own

    @property
    def cache_path(self) -> str | None:
        """The directory of the machine's own cache."""
        path: str | None = self._own.cache_path
        return path

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled kernel for these types, if there is one."""
        found = self._wheel.load_overload(sig, target_context)
        return found if found is not None else self._own.load_overload(sig, target_context)

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a kernel that was compiled."""
        self._keep.save_overload(sig, data)

    def enable(self) -> None:
        """Turn caching on."""
        self._own.enable()

    def disable(self) -> None:
        """Turn caching off."""
        self._own.disable()

    def flush(self) -> None:
        """Forget what the machine's own cache has."""
        self._own.flush()
