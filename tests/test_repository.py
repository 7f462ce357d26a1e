"""The repository keeps its promises: targets, documents that run, links that lead somewhere."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

import headrace

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
# Pages on Spark, and blocks marked `python spark`, share the session of tests/spark, and are run there.
EXAMPLES_IN = [
    path
    for path in DOCUMENTS
    if path.name == "README.md" or path.is_relative_to(ROOT / "docs")
    if not path.is_relative_to(ROOT / "docs" / "spark")
]


# --- documents --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Block:
    """A fenced block of a document: where it starts, its info string, its text."""

    path: Path
    line: int
    info: str
    text: str

    def __str__(self) -> str:
        return f"{self.path.name}:{self.line}"


def blocks(path: Path, text: str) -> list[Block]:
    found = []
    fence = re.compile(r"^(?P<fence>```+|~~~+)(?P<info>[^\n]*)\n(?P<text>.*?)^(?P=fence)[ \t]*$", re.M | re.S)
    for match in fence.finditer(text):
        line = text.count("\n", 0, match.start()) + 2
        found.append(Block(path, line, match["info"].strip(), match["text"]))
    return found


def runnable(block: Block) -> bool:
    words = block.info.split()
    return words[:1] == ["python"] and not {"no-run", "spark"} & set(words)


def test_blocks_are_found_with_their_line_and_info() -> None:
    text = "a\n\n```python\nx = 1\n```\n\n```python no-run\ny\n```\n\n```sh\nmake\n```\n"
    found = blocks(Path("page.md"), text)
    assert [(str(b), b.info) for b in found] == [
        ("page.md:4", "python"),
        ("page.md:8", "python no-run"),
        ("page.md:12", "sh"),
    ]
    assert [b.text for b in found if runnable(b)] == ["x = 1\n"]


@pytest.mark.parametrize(
    "block",
    [b for path in EXAMPLES_IN for b in blocks(path, path.read_text()) if runnable(b)],
    ids=str,
)
def test_example_runs(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = "\n" * (block.line - 1) + block.text  # so that a traceback names the document's own line
    code = compile(source, str(block.path), "exec", dont_inherit=True)
    exec(code, {"__name__": "__example__"})


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_inside_the_repository_lead_somewhere(path: Path) -> None:
    targets = re.findall(r"\]\(([^)\s]+)\)", path.read_text())
    local = [t.partition("#")[0] for t in targets if not re.match(r"[a-z]+:|#", t)]
    assert [t for t in local if not (path.parent / t).exists()] == []


def test_every_decision_is_in_the_index() -> None:
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text()
    pages = {page.name for page in folder.glob("*.md")} - {"README.md"}
    assert {page for page in pages if f"({page})" not in index} == set()


def test_changelog_has_a_place_for_what_is_not_released() -> None:
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert headings[0] == "[Unreleased]"


# --- package ----------------------------------------------------------------------------------------------


def test_package_and_project_agree_on_the_version() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert getattr(headrace, "__version__", declared) == declared


# --- make -------------------------------------------------------------------------------------------------


def test_bare_make_lists_every_target_with_a_description() -> None:
    makefile = (ROOT / "Makefile").read_text()
    phony = " ".join(re.findall(r"^\.PHONY:(.*)$", makefile, re.M)).split()
    listing = subprocess.run(
        ["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    listed = dict(re.findall(r"^  make (\S+) +(\S.*)$", listing, re.M))
    assert set(listed) == set(phony)
    assert {"test", "lint", "bench", "demo", "clean"} <= set(listed)


# --- set-up scripts, in a world made of fakes --------------------------------------------------------------


@dataclass(frozen=True)
class Machine:
    """A machine whose programs are only those in `bin`, to try the set-up scripts on."""

    root: Path

    @property
    def bin(self) -> Path:
        return self.root / "bin"

    def program(self, path: Path, script: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def java(self, home: str, version: str) -> Path:
        self.program(self.root / home / "bin" / "java", f"""echo 'openjdk version "{version}"' >&2""")
        return self.root / home

    def run(self, script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [ROOT / "scripts" / script, *arguments],
            env={"PATH": str(self.bin), "JVM_ROOT": str(self.root / "jvm"), **environment},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def bare(tmp_path: Path) -> Machine:
    """A machine with a shell and its usual tools, no Java, no Python and no right to install."""
    machine = Machine(tmp_path)
    machine.bin.mkdir()
    for tool in ("sh", "dirname", "sed", "head", "readlink", "cat", "env", "id"):
        found = shutil.which(tool)
        assert found is not None
        (machine.bin / tool).symlink_to(found)
    return machine


def test_java_home_comes_first(bare: Machine) -> None:
    mine, other = bare.java("mine", "21.0.2"), bare.java("other", "17.0.1")
    (bare.bin / "java").symlink_to(other / "bin" / "java")
    assert bare.run("ensure-java", JAVA_HOME=str(mine)).stdout.strip() == str(mine)
    assert bare.run("ensure-java").stdout.strip() == str(other)


def test_java_too_old_for_spark_is_passed_over(bare: Machine) -> None:
    old, good = bare.java("old", "1.8.0_392"), bare.java("jvm/java-17", "17.0.1")
    assert bare.run("ensure-java", JAVA_HOME=str(old)).stdout.strip() == str(good)


def test_java_is_installed_where_that_is_allowed(bare: Machine) -> None:
    home = bare.root / "jvm" / "java-17"
    prepared = bare.java("prepared", "17.0.1")
    (home.parent).mkdir()
    (bare.bin / "id").unlink()
    bare.program(bare.bin / "id", "echo 0")
    (bare.bin / "ln").symlink_to(shutil.which("ln") or "")
    bare.program(bare.bin / "apt-get", f"ln -s {prepared} {home}")
    done = bare.run("ensure-java")
    assert (done.returncode, done.stdout.strip()) == (0, str(home)), done.stderr


def test_no_java_and_no_way_to_it_ends_in_words(bare: Machine) -> None:
    done = bare.run("ensure-java")
    assert (done.returncode, done.stdout) == (1, "")
    assert "apt-get install default-jre-headless" in done.stderr


@pytest.fixture
def maven(bare: Machine) -> Machine:
    """A machine whose Maven puts one jar where it is asked to, and writes down each call."""
    for tool in ("mkdir", "rm"):
        (bare.bin / tool).symlink_to(shutil.which(tool) or "")
    bare.program(
        bare.bin / "mvn",
        f"""echo "$@" >>{bare.root}/calls
        for each; do case $each in -DoutputDirectory=*) folder=${{each#*=}};; esac; done
        mkdir "$folder" && echo jar >"$folder/one.jar\"""",
    )
    return bare


def test_the_jars_of_kafka_are_taken_once(maven: Machine) -> None:
    home = maven.root / "jars"
    for _ in range(2):
        done = maven.run("ensure-kafka", KAFKA_JARS=str(home))
        assert (done.returncode, done.stdout.strip()) == (0, str(home)), done.stderr
    assert (home / "broker" / "one.jar").exists()
    assert (home / "connector" / "one.jar").exists()
    assert len((maven.root / "calls").read_text().splitlines()) == 2, "one call for each folder"


def test_jars_of_kafka_that_are_not_all_there_are_taken_again(maven: Machine) -> None:
    home = maven.root / "jars"
    (home / "broker").mkdir(parents=True)
    (home / "kept").touch()
    assert maven.run("ensure-kafka", KAFKA_JARS=str(home)).returncode == 0
    assert (home / "broker" / "one.jar").exists()
    assert (home / "kept").exists(), "only its own folders are replaced"


@pytest.mark.parametrize("has_maven", [False, True])
def test_no_jars_of_kafka_and_no_way_to_them_ends_in_words(maven: Machine, has_maven: bool) -> None:
    (maven.bin / "mvn").unlink()
    if has_maven:
        maven.program(maven.bin / "mvn", "exit 1")
    done = maven.run("ensure-kafka", KAFKA_JARS=str(maven.root / "jars"))
    assert (done.returncode, done.stdout) == (1, "")
    assert "apt-get install maven" in done.stderr
    assert not (maven.root / "jars" / "complete").exists()


def test_an_old_python_ends_in_words(bare: Machine) -> None:
    bare.program(bare.bin / "python3", "exit 1")
    done = bare.run("ensure-venv", str(bare.root / "venv"))
    assert done.returncode == 1
    assert "Python 3.11 or later" in done.stderr


def test_a_python_without_ensurepip_ends_in_words(bare: Machine) -> None:
    bare.program(
        bare.bin / "python3",
        f'case "$*" in *ensurepip*) exit 1;; esac\nexec {sys.executable} "$@"',
    )
    done = bare.run("ensure-venv", str(bare.root / "venv"))
    assert done.returncode == 1
    assert re.search(r"apt-get install python3\.\d+-venv", done.stderr)


def test_a_good_environment_is_left_alone(bare: Machine) -> None:
    venv = bare.root / "venv"
    bare.program(venv / "bin" / "python", "exit 0")
    assert bare.run("ensure-venv", str(venv)).returncode == 0
    assert [str(path.relative_to(venv)) for path in venv.rglob("*")] == ["bin", "bin/python"]


# --- the package ------------------------------------------------------------------------------------------


def test_the_package_is_marked_as_typed() -> None:
    """PEP 561: without the file, type checkers ignore the annotations of an installed package."""
    assert (ROOT / "headrace" / "py.typed").is_file()
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel == {"packages": ["headrace"]}, "nothing of the package is left out"
    ignored = subprocess.run(
        ["git", "check-ignore", "headrace/py.typed"], cwd=ROOT, check=False, capture_output=True
    )
    assert ignored.returncode != 0, "hatch leaves out what git ignores"


def test_the_wheel_contains_the_mark_and_the_command(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="the build backend is not installed")
    build = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
    command = [sys.executable, "-c", build, str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    with zipfile.ZipFile(tmp_path / built.stdout.split()[-1]) as wheel:
        names = wheel.namelist()
        entry = next(name for name in names if name.endswith("entry_points.txt"))
        assert "headrace/py.typed" in names
        assert "headrace = headrace.cli.__main__:main" in wheel.read(entry).decode()


# --- security ---------------------------------------------------------------------------------------------


def test_07_nothing_is_unpickled_but_what_the_users_own_code_made() -> None:
    """States of aggregates that allow it, and what Spark's driver sends to its workers."""
    reading = re.compile(r"pickle\.loads?\(|\bUnpickler\b|allow_pickle=True")
    found = {path for path in (ROOT / "headrace").rglob("*.py") if reading.search(path.read_text())}
    allowed = {"operators/accumulators/objects.py", "runtimes/spark/host.py"}
    assert {str(path.relative_to(ROOT / "headrace")) for path in found} == allowed
