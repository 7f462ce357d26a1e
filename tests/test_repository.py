"""The repository keeps its promises: targets, documents that run, links that lead somewhere."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import os
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
from headrace import tuning

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


def test_the_readme_shows_what_its_first_example_prints(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = blocks(ROOT / "README.md", (ROOT / "README.md").read_text())[:2]
    assert runnable(first)
    assert len(first.text.splitlines()) <= 12
    exec(compile(first.text, "README.md", "exec"), {"__name__": "__example__"})
    assert capsys.readouterr().out == second.text


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


def test_changelog_begins_with_the_version_that_is_being_made() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    released, development, _ = version.partition(".dev")
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert headings[0] == (f"Unreleased ({released})" if development else version)


def anchor(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_to_a_heading_find_it(path: Path) -> None:
    dangling = []
    for target, fragment in re.findall(r"\]\(([^)\s#]*)#([^)\s]+)\)", path.read_text()):
        page = path.parent / target if target else path
        if not re.match(r"[a-z]+:", target) and page.suffix == ".md":
            headings = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
            dangling += [f"{target}#{fragment}"] if fragment not in map(anchor, headings) else []
    assert dangling == []


def test_no_document_refers_to_papers_by_number_or_to_pages_that_are_not_here() -> None:
    elsewhere = re.compile(r"(?<![\w/-])(?:design|spark)\.md\b|\b00[0-4],? §")
    found = {str(path.relative_to(ROOT)): elsewhere.findall(path.read_text()) for path in DOCUMENTS}
    assert {path: names for path, names in found.items() if names} == {}


# --- the floor plan ---------------------------------------------------------------------------------------

ARCHITECTURE = ROOT / "docs" / "architecture.md"
FLOOR_PLANS = (ARCHITECTURE, ROOT / "CONTRIBUTING.md")
NOT_COMMITTED = {"benchmarks/out/", "experiments/out/"}


def in_code(text: str) -> list[str]:
    """What stands between single backticks."""
    return re.findall(r"`([^`\n]+)`", text)


@pytest.mark.parametrize("path", FLOOR_PLANS, ids=lambda path: path.name)
def test_every_path_on_the_floor_plan_exists(path: Path) -> None:
    named = [
        each
        for each in in_code(path.read_text())
        if re.fullmatch(
            r"(?:headrace|tests|docs|benchmarks|examples|experiments|scripts|\.ci)/[\w./-]*", each
        )
    ]
    assert len(named) > 20
    missing = {each for each in named if not list(ROOT.glob(each.replace("NAME", "*").rstrip("/")))}
    assert missing - NOT_COMMITTED == set()


def test_every_package_is_on_the_floor_plan() -> None:
    text = ARCHITECTURE.read_text()
    packages = {each.parent.name for each in (ROOT / "headrace").glob("*/__init__.py")}
    assert {name for name in packages if f"`headrace/{name}/" not in text} == set()


def test_the_layers_on_the_floor_plan_are_those_that_are_checked() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    checked = next(each["layers"] for each in contracts if each["id"] == "layers")
    here = {each.name.removesuffix(".py") for each in (ROOT / "headrace").iterdir()}
    layers = [[name.strip("() ") for name in layer.split("|")] for layer in checked]
    expected = [names for layer in layers if (names := [name for name in layer if name in here])]
    (shown,) = re.findall(r"^    cli\n(?:    .*\n)+", ARCHITECTURE.read_text(), re.M)
    assert [line.strip().replace(".py", "").split(", ") for line in shown.splitlines()] == expected


def is_there(name: str) -> bool:
    """Whether a dotted name is a module of the package, or what one of them defines."""
    parts = name.split(".")
    place, module = ROOT, []
    while parts and ((place / parts[0]).is_dir() or (place / f"{parts[0]}.py").is_file()):
        place = place / parts[0]
        module.append(parts.pop(0))
    if module == ["headrace", "spark"]:
        return not parts or parts[0] in importlib.import_module("headrace.spark").__all__
    return not parts or has(importlib.import_module(".".join(module)), parts)


@pytest.mark.parametrize(
    "path",
    [path for path in DOCUMENTS if path.name != "CHANGELOG.md"],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_names_of_the_package_in_a_document_exist(path: Path) -> None:
    named = {
        match[0] for each in in_code(path.read_text()) if (match := re.match(r"headrace(?:\.\w+)+", each))
    }
    assert {name for name in named if not is_there(name)} == set()


def has(found: object, names: list[str]) -> bool:
    """Whether an attribute, and one of that, and so on, are there."""
    for name in names:
        if not hasattr(found, name):
            return False
        found = getattr(found, name)
    return True


@pytest.mark.parametrize(
    "path",
    [path for path in DOCUMENTS if path.name != "CHANGELOG.md"],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_what_a_document_calls_on_an_engine_exists(path: Path) -> None:
    engine = headrace.Engine()
    said = [re.match(r"[eE]ngine((?:\.[a-z_]+)+)", each) for each in in_code(path.read_text())]
    called = {match[1].strip(".") for match in said if match}
    assert {names for names in called if not has(engine, names.split("."))} == set()


# --- interfaces -------------------------------------------------------------------------------------------

INSIDE = {"graph", "manager", "keeper", "orders", "adapting", "table", "rewire"}
"""Names of an engine and of its parts that are for the engine itself, for tests and for experiments."""


def inside_uses(source: str) -> list[str]:
    """Where code reads the inside of an engine, or sets an attribute of one."""

    def is_engine(node: ast.AST) -> bool:
        if isinstance(node, ast.Attribute):
            return node.attr == "engine" or is_engine(node.value)
        return isinstance(node, ast.Name) and node.id == "engine"

    return [
        ast.unparse(node)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute)
        and is_engine(node.value)
        and (node.attr in INSIDE or node.attr.startswith("_") or isinstance(node.ctx, ast.Store))
    ]


def test_what_counts_as_the_inside_of_an_engine() -> None:
    assert inside_uses("engine.graph.sources") == ["engine.graph"]
    assert inside_uses("self.engine.now = 3") == ["self.engine.now"]
    assert inside_uses("live.engine.optimizer.orders.log") == ["live.engine.optimizer.orders"]
    assert inside_uses("engine._loop.run()") == ["engine._loop"]
    assert inside_uses("self.engine = Engine(); self.engine.memory.spill(engine.now)") == []


@pytest.mark.parametrize(
    "path", sorted((ROOT / "headrace" / "runtimes").rglob("*.py")), ids=lambda path: path.stem
)
def test_a_runtime_uses_the_engine_through_its_public_interface(path: Path) -> None:
    """Which modules it may import is a contract of import-linter."""
    assert inside_uses(path.read_text()) == []


def test_the_page_about_the_engine_names_all_that_it_offers() -> None:
    engine, page = headrace.Engine(), set(in_code((ROOT / "docs" / "engine.md").read_text()))
    offered = {name for name in dir(engine) if not name.startswith("_")}
    parts = {name for name in offered if f"engine.{name}" in page}
    assert parts == {"streams", "memory", "quality", "scheduling", "optimizer"}
    assert offered - parts - page == set()


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
    assert wheel["packages"] == ["headrace"]
    assert wheel.keys() == {"packages", "hooks"}, "nothing of the package is left out"
    ignored = subprocess.run(
        ["git", "check-ignore", "headrace/py.typed"], cwd=ROOT, check=False, capture_output=True
    )
    assert ignored.returncode != 0, "hatch leaves out what git ignores"


def test_the_wheel_contains_the_mark_and_the_command(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="the build backend is not installed")
    build = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
    command = [sys.executable, "-c", build, str(tmp_path)]
    pure = {**os.environ, "HEADRACE_PURE_WHEEL": "1"}
    built = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, env=pure)
    assert built.stdout.split()[-1].endswith("-py3-none-any.whl")
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
    sent = {"runtimes/spark/worker/host.py", "runtimes/spark/worker/pickled_control.py"}
    allowed = {"aggregates/objects.py", *sent}
    assert {str(path.relative_to(ROOT / "headrace")) for path in found} == allowed


# --- tuning -----------------------------------------------------------------------------------------------


def headrace_constants_patched(text: str) -> list[int]:
    """Lines on which a test replaces a constant of the package, by dotted path or through its module."""
    tree = ast.parse(text)
    ours = {
        (alias.asname or alias.name).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        if (getattr(node, "module", None) or alias.name).partition(".")[0] == "headrace"
    }
    constant = re.compile(r"_?[A-Z][A-Z0-9_]*")
    found = []
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        called = ast.unparse(call.func)
        if not re.search(r"(^|\.)(setattr|patch|patch\.object)$", called) or not call.args:
            continue
        first, *rest = (ast.unparse(argument) for argument in call.args)
        if re.match(r"""f?['"]headrace[.{]""", first):
            name = first[:-1].rpartition(".")[2]
        elif first.partition(".")[0] in ours and rest:
            name = rest[0][1:-1]
        else:
            continue
        if constant.fullmatch(name):
            found.append(call.lineno)
    return found


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('patch.setattr("headrace.state.timeline._WORTH", 0)', [1]),
        ('\nmock.patch(f"headrace.{module}.CHUNK", 0)', [2]),
        ('from headrace.flow import sorting\npatch.setattr(sorting, "FEW", 2)', [2]),
        ('from headrace.flow import sorting as s\nmock.patch.object(s, "FEW", 2)', [2]),
        ('from tests.fuzz import run\npatch.setattr(run, "SECONDS", 2)', []),
        ('from headrace.storage import disk\nmock.patch.object(disk, "current", 2)', []),
        ('mock.patch("headrace.connectors.ahead.ThreadPoolExecutor", 2)', []),
    ],
)
def test_patched_constants_are_recognised(text: str, lines: list[int]) -> None:
    assert headrace_constants_patched(text) == lines


def test_no_test_patches_a_constant_of_the_package() -> None:
    """What tests need to change is a field of `headrace.tuning.Tuning`, and `tuning.using` changes it."""
    tests = sorted((ROOT / "tests").rglob("*.py"))
    patched = {path: headrace_constants_patched(path.read_text()) for path in tests}
    assert {f"{path.relative_to(ROOT)}:{line}" for path, lines in patched.items() for line in lines} == set()


def test_every_field_of_tuning_says_what_it_is_and_is_used() -> None:
    source = (ROOT / "headrace" / "tuning.py").read_text()
    fields = re.findall(r"^    (\w+): (?:int|float) = .*\n    (.*)", source, re.M)
    assert [name for name, _ in fields] == [each.name for each in dataclasses.fields(tuning.Tuning)]
    assert [name for name, line in fields if not line.startswith('"""')] == []
    package = "\n".join(path.read_text() for path in (ROOT / "headrace").rglob("*.py"))
    assert [
        name for name, _ in fields if not re.search(rf"\b(tuning\.current|tuned)\.{name}\b", package)
    ] == []
