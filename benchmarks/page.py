"""`make bench-report`: docs/benchmarks.md and its pictures, from the files in benchmarks/out.

What the page is made of is kept in benchmarks/recorded, which is committed with it: a benchmark that was not
run here is shown as it was recorded. The same files give the same bytes. One without a file is named as not
measured.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.report import OUT, Result, bound, number, verdict

DOCS = Path(__file__).parents[1] / "docs"
PICTURES = "images"
RECORDED = "recorded"

ABOUT = {
    "engine": ("The engine alone", "headrace bench engine"),
    "time": ("Watermarks and bounds", "headrace bench time"),
    "planning": ("Planning", "headrace bench planning"),
    "sequence": ("Sequences", "headrace bench sequence"),
    "pipeline": ("Pipelines", "headrace bench pipeline"),
    "spark": ("Headrace on Spark compared with Spark's own operators", "headrace bench spark"),
    "nexmark": ("NEXMark, embedded", "headrace bench nexmark"),
    "nexmark_spark": ("NEXMark on Spark", "headrace bench nexmark --runtime spark"),
    "kafka": ("From topic to topic, compared with Bytewax and Quix Streams", "make bench-peers"),
    "peers": ("Compared with other systems", "make bench-peers"),
}
"""The files in the order of the page: a title, and the command that writes it."""

TASKS = {
    "union": "filter and union of two streams",
    "tumbling": "count and sum by 1,000 keys, 10 s tumbling windows",
    "sliding": "the same, 60 s windows sliding every second",
    "join": "two streams joined on a key within the same 10 s",
    "silent": "count of two streams by key every second, one silent for 6 s",
}
SYSTEMS = ("headrace", "headrace_csv", "bytewax", "bytewax_arrow", "pathway", "spark", "flink")
COLUMNS = {
    "rows_per_s": "rows/s",
    "rows_per_cpu_s": "rows/s of CPU",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "peak_mb": "peak MB",
}

HEAD = """# Benchmarks

`make bench-report` writes this page from the last run of each benchmark; do not edit it. If a number has
a floor or a ceiling, it is shown next to it. Numbers from different runs are not comparable if the
machine was busy; ratios are always taken within one run.
"""

PEERS = """All systems run on the same machine with the same data and the same query, in one run and in
turns. A number counts only if the result equals what DuckDB computes offline. A slow system gets a prefix
of the data; rates are per row. The best turn counts, and the better of one or two workers if the system
supports both; Headrace has one thread.

What is timed: from rows in memory, in the form that the system accepts, to all results kept in memory.
For Headrace these are Arrow batches, for Bytewax Python tuples. Pathway, Spark and PyFlink go from files
to files, with their own connectors; `headrace_csv` is Headrace doing the same: a pipeline from the CSV
files that Pathway reads to a CSV file. The floors compare Headrace in memory with each system used as its
documentation describes.

Latency is measured in real time at a rate that all systems sustain, from the arrival that makes a result
certain to the result. For the silent task it shows how long results wait that the silent stream could
still have changed.

How each system is used, and what it does not do (`benchmarks/peers/NAME_peer.py`):

- **Headrace**, embedded: CQL, Arrow batches. The union is in time order, and so are all results.
- **Bytewax**: batched sources, `filter`, `merge`, `fold_window`, `join_window`: items one by one, as in
  its documentation. A merge is unordered. Windows are by key, each with its own clock; there is no clock
  per stream, so no window waits for a silent one, and rows that come later than
  `wait_for_system_duration` are late, regardless of their stream. A joined window is answered when it
  ends, and its latency counts from there. There is no join by distance in time.
- **bytewax_arrow**: the same union with Arrow batches as items, which Bytewax does not look into. This is
  the fastest way to filter and merge, but it is the user's own code: windows and joins need rows.
  Unordered.
- **Pathway**: CSV read and written by its own connectors in static mode; in real time a Python connector,
  and windows answered exactly once. A union is unordered. A window ends when a row of any stream lies
  past its end: a silent stream holds results back only by the configured grace (`shift`), and nothing
  ends the last window.
- **Spark** Structured Streaming with its own operators, `local[2]`: a union is unordered; the watermark
  is the minimum over all streams, so a silent one holds back all windows. Its minimum of 100 ms or more
  per micro-batch is measured in its own file; it has no paced run here.
- **PyFlink**: SQL on window table functions, in the JVM, parallelism 2, CSV files; its time includes
  starting the job. A union is unordered. A silent stream holds back windows until the idle timeout, if
  one is set. It has no paced run here: in its pip package, files are the only source that Python can feed
  in real time.
"""

KAFKA = """JSON messages of 200 bytes in a topic with one partition, keyed by 100 keys, are counted in
tumbling windows of 10 s, and the counts go to another topic. All use the same broker in one run, in turns,
and their counts are compared with the input. CPU time is that of the client's process, without the broker.
Bytewax and Quix Streams are used as their documentation describes (`benchmarks/peers/kafka_NAME.py`), without
recovery or changelog topics; Headrace writes transactions and checkpoints. A peer reads fewer messages, and
rates are per message.
"""
EXPLAINED = {"kafka": KAFKA}
"""What is measured, for files whose names of results do not say it."""


@dataclass(frozen=True)
class Measured:
    """A file of results."""

    name: str
    machine: dict[str, Any]
    versions: dict[str, str]
    results: list[Result]

    def value(self, name: str) -> float | None:
        """A number, if it was measured."""
        return next((each["value"] for each in self.results if each["name"] == name), None)


def measured(out: Path) -> dict[str, Measured]:
    """All files, those of the table first."""
    names = [*ABOUT, *sorted({path.stem for path in out.glob("*.json")} - set(ABOUT))]
    paths = {name: out / f"{name}.json" for name in names}
    found = {name: json.loads(path.read_text()) for name, path in paths.items() if path.exists()}
    return {
        name: Measured(name, *(run[k] for k in ("machine", "versions", "results")))
        for name, run in found.items()
    }


# --- tables -----------------------------------------------------------------------------------------------


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table in Markdown, numbers to the right."""
    first, *rest = list(head)
    lines = [[first, *rest], ["---", *("---:" for _ in rest)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def plain(file: Measured) -> str:
    """Name, value and bound of each result."""
    rows = [
        (f"`{each['name']}`", f"{number(each['value'])} {each['unit']}".strip(), bound(each), verdict(each))
        for each in file.results
    ]
    return table(("name", "value", "bound", ""), rows)


def nexmark(files: dict[str, Measured]) -> str:
    """A row for each query: events a second on both runtimes, and whether the rows were equal."""
    both = {"embedded": files.get("nexmark"), "spark": files.get("nexmark_spark")}
    names = {
        each["name"].split(".")[1]
        for runtime, file in both.items()
        for each in (file.results if file else ())
        if each["name"].startswith(f"{runtime}.q")
    }

    def row(query: str) -> list[str]:
        values = [file and file.value(f"{kind}.{query}.events_per_s") for kind, file in both.items()]
        equal = both["spark"] and both["spark"].value(f"spark.{query}.equal")
        return [query, *map(shown, values), {None: "", 1.0: "yes"}.get(equal, "NO")]

    rows = [row(query) for query in sorted(names, key=lambda name: int(name[1:]))]
    return table(("query", "embedded, events/s per core", "on Spark, events/s", "rows equal"), rows)


def peers(file: Measured) -> str:
    """A table for each task, then the ratios."""
    parts = []
    for task, meaning in TASKS.items():
        rows = [
            [system, *(shown(file.value(f"{task}.{system}.{column}")) for column in COLUMNS)]
            for system in SYSTEMS
            if any(file.value(f"{task}.{system}.{column}") is not None for column in COLUMNS)
        ]
        if rows:
            wrong = [system for system in SYSTEMS if file.value(f"{task}.{system}.wrong")]
            note = (
                f"\n\nIn real time, some results were missing or extra: {', '.join(wrong)}." if wrong else ""
            )
            parts.append(f"**{task}**: {meaning}\n\n{table(('', *COLUMNS.values()), rows)}{note}")
    ratios = [each for each in file.results if ".vs_" in each["name"] or "p99_vs" in each["name"]]
    others = [each for each in file.results if each["name"].startswith("spark.")]
    kept = Measured(file.name, file.machine, file.versions, ratios + [e for e in others if e not in ratios])
    return "\n\n".join([*parts, "Headrace compared with each, and on Spark:", plain(kept)])


def shown(value: float | None) -> str:
    """A number, or nothing."""
    return "" if value is None else number(value)


# --- pictures ---------------------------------------------------------------------------------------------


def bars(title: str, unit: str, groups: dict[str, dict[str, float]], into: Path) -> None:
    """Bars side by side on a logarithmic axis: a group for each task, a bar for each system."""
    import matplotlib

    from experiments.plotting import COLOURS, SETTINGS

    matplotlib.use("Agg")
    from matplotlib import pyplot

    systems = [name for name in SYSTEMS if any(name in group for group in groups.values())]
    width = 0.8 / len(systems)
    with pyplot.rc_context(SETTINGS):
        figure, axis = pyplot.subplots(figsize=(8.4, 3.8), layout="constrained")
        for i, system in enumerate(systems):
            at = [
                n + (i - (len(systems) - 1) / 2) * width for n, g in enumerate(groups.values()) if system in g
            ]
            heights = [group[system] for group in groups.values() if system in group]
            axis.bar(at, heights, width * 0.92, label=system, color=COLOURS[SYSTEMS.index(system)])
        axis.set_yscale("log")
        axis.set_xticks(range(len(groups)), list(groups))
        axis.set_ylabel(unit)
        axis.set_title(title)
        axis.grid(axis="x", visible=False)
        axis.legend(ncols=len(systems), loc="upper center", bbox_to_anchor=(0.5, -0.08))
        into.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(into, metadata={"Date": None})
        pyplot.close(figure)


DRAWN = {
    "rows_per_s": ("peers-rates.svg", "Rows per second, more is better", "rows/s"),
    "p99_ms": ("peers-latency.svg", "p99 latency at a rate that all sustain, less is better", "ms"),
}


def pictures(file: Measured, docs: Path) -> list[str]:
    """Draw the peers; the lines that show the pictures."""
    lines = []
    for column, (name, title, unit) in DRAWN.items():
        groups = {
            task: {system: value for system in SYSTEMS if (value := file.value(f"{task}.{system}.{column}"))}
            for task in TASKS
        }
        groups = {task: group for task, group in groups.items() if group}
        if groups:
            bars(title, unit, groups, docs / PICTURES / name)
            lines.append(f"![{title}]({PICTURES}/{name})")
    return lines


# --- the page ---------------------------------------------------------------------------------------------


def where(file: Measured) -> str:
    """Machine and versions, in a line."""
    told = file.machine
    on = f"{told['cores']} cores of {told['processor']}, {told['memory_gib']} GiB, {told['system']}"
    busy = f", load average {told['load']} when it was written" if "load" in told else ""
    return f"On {on}{busy}; {', '.join(f'{name} {version}' for name, version in file.versions.items())}."


def page(files: dict[str, Measured], docs: Path) -> str:
    """The whole page."""
    parts = [HEAD]
    for name in dict.fromkeys([*reversed(ABOUT), *files]):
        title, command = ABOUT.get(name, (name, f"headrace bench {name}"))
        if name == "nexmark" and "nexmark_spark" in files:
            continue
        parts.append(f"## {title}\n\n`{command}`")
        if name not in files:
            parts[-1] += ": not measured here."
            continue
        file = files[name]
        if name == "peers":
            parts += [PEERS.strip(), *pictures(file, docs), peers(file), where(file)]
        elif name.startswith("nexmark"):
            rest = [each for each in file.results if ".q" not in each["name"]]
            parts += [nexmark(files), *([plain(Measured(name, {}, {}, rest))] if rest else []), where(file)]
        else:
            parts += [*([EXPLAINED[name]] if name in EXPLAINED else []), plain(file), where(file)]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def record(out: Path, recorded: Path) -> None:
    """Keep the newest run of each benchmark."""
    recorded.mkdir(exist_ok=True)
    for path in out.glob("*.json"):
        shutil.copyfile(path, recorded / path.name)


def main(out: Path = OUT, docs: Path = DOCS) -> int:
    """Record what was measured, and write the page from all that is recorded."""
    recorded = out.parent / RECORDED
    record(out, recorded)
    path = docs / "benchmarks.md"
    path.write_text(page(measured(recorded), docs))
    print(f"{path}: written from {len(list(recorded.glob('*.json')))} files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
