"""`make soak-hour`: a pipeline runs for an hour and must hold no more at the end than after its first third.

At first the process is killed a few times. Then, twice, a great many keys come at once, whose memory must be
given back when they have expired. The last two thirds are judged: the slope of memory, handles, threads,
checkpoint, commit record, spill and spool against a bound for each. At the end it is killed once more; the
restart must account for every row that was sent and have answered each exactly once.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.soak.judging import EXPIRED, HEAD, judge, judge_return
from tests.soak.samples import sample, told
from tests.soak.world import MOST, STREAMS, World, free_port, mistakes

TURN = 0.25
PATIENCE = 120.0
MOST_DEATHS = 5


def options() -> argparse.Namespace:
    words = argparse.ArgumentParser(prog="make soak-hour", description=__doc__)
    words.add_argument("--minutes", type=float, default=60.0, help="how long rows are sent (60)")
    words.add_argument("--rate", type=int, default=150, help="rows a second on each of three streams (150)")
    words.add_argument("--kills", type=int, default=4, help="kill -9 so often in the first third (4)")
    words.add_argument("--burst", type=int, default=100_000, help="keys that come at once (100000)")
    words.add_argument("--budget", default="1500 kB", help="memory for the state of the queries (1500 kB)")
    words.add_argument(
        "--rotate", type=float, default=45.0, help="seconds between rotations of the log; 0: never (45)"
    )
    words.add_argument("--keep-files", type=int, default=60, help="files that stay in the directory (60)")
    words.add_argument("--seed", type=int, default=16, help="of kills, late and bad rows (16)")
    words.add_argument("--samples", type=Path, default=Path("soak.json"), help="where samples go (soak.json)")
    words.add_argument(
        "--directory", type=Path, help="where it runs, and what is left there (a temporary one)"
    )
    return words.parse_args()


@dataclass
class Soak:
    """A world, the process that reads it, and what was measured."""

    world: World
    pipeline: Path
    begun: float = field(default_factory=time.monotonic)
    samples: list[dict[str, Any]] = field(default_factory=list)
    kills: list[float] = field(default_factory=list)
    deaths: list[float] = field(default_factory=list)
    bursts: list[tuple[float, float]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.root = self.pipeline.parent
        self.process = self._start()

    @property
    def now(self) -> float:
        return time.monotonic() - self.begun

    def _start(self) -> subprocess.Popen[bytes]:
        with (self.root / "stderr.txt").open("ab") as errors:
            command = [sys.executable, "-m", "headrace.cli", "run", str(self.pipeline), "--quiet"]
            return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)

    def send_until(self, end: float) -> None:
        """Send, and take a sample each second."""
        while self.now < end and self._alive():
            self.world.turn()
            if not self.samples or self.now - self.samples[-1]["at"] >= 1:
                self._sample()
            time.sleep(TURN)

    def burst(self, rows: int) -> None:
        """A great many keys, as fast as they can be written."""
        begun = self.now
        self.world.burst(rows)
        for _ in range(-(-rows // MOST)):
            self.send_until(self.now + TURN)
        self.bursts.append((begun, self.now))

    def _sample(self) -> None:
        found = sample(self.process.pid, self.root, self.begun)
        if found is None:
            return
        self.samples.append(found)
        self.world.warm |= found["promised"]
        for name, rows in found["streams"].items():
            if rows["in"] != rows["processed"] + rows["late"] + rows["rejected"]:
                self._note(f"the account of {name} does not balance: {rows}")

    def _note(self, mistake: str) -> None:
        if len(self.wrong) < 20:
            self.wrong.append(f"after {self.now:.0f} s: {mistake}")

    def _alive(self) -> bool:
        """A run that ends by itself is a mistake; it is started again a few times, for the hour to go on."""
        if self.process.poll() is None:
            return True
        if len(self.deaths) >= MOST_DEATHS:
            return False
        self._note(f"the run ended by itself with {self.process.returncode}: {self.last_words()}")
        self.deaths.append(self.now)
        self.process = self._start()
        self.world.hang_up()
        return True

    def last_words(self) -> str:
        return (self.root / "stderr.txt").read_text(errors="replace")[-600:]

    def kill(self) -> None:
        """Kill -9 and start again. What is on the wire and was not read is lost: so it is quiet then."""
        self.world.wire_is_open = False
        self._wait_for("wire", patience=20)
        self.process.kill()
        self.process.wait()
        self.kills.append(self.now)
        self.process = self._start()
        self.world.hang_up()
        self.world.wire_is_open = True

    def _wait_for(self, *streams: str, patience: float = PATIENCE) -> bool:
        """Until all that was sent on these streams has been read; the others go on."""
        end = self.now + patience
        while self.now < end and self._alive():
            status = told(self.root)
            rows = {} if status is None else {n: s["rows_in"] for n, s in status["streams"].items()}
            if all(rows.get(name) == self.world.sent[name].rows for name in streams):
                return True
            if set(streams) != set(STREAMS):
                self.world.turn()
            time.sleep(TURN)
        return False

    def finish(self) -> None:
        """Everything that was sent is read and answered, after one more kill."""
        self.kill()
        if not self._wait_for(*STREAMS):
            status = told(self.root) or {"streams": {}}
            rows = {name: s["rows_in"] for name, s in status["streams"].items()}
            sent = {name: each.rows for name, each in self.world.sent.items()}
            self._note(f"rows read {rows}, and not {sent}")
        # The last windows close: ten seconds, five for rows that may still come, and a commit.
        end = self.now + PATIENCE
        while self.now < end and self._alive() and mistakes(self.root, self.world.sent):
            time.sleep(5)
        if self._alive():
            self._sample()
            self.process.send_signal(signal.SIGTERM)
            code = self.process.wait(60)
            if code:
                self._note(f"it stopped with {code}: {self.last_words()}")
        for name, sent in self.world.sent.items():
            rows = self.samples[-1]["streams"][name]
            expected = {"in": sent.rows, "processed": sent.good, "late": sent.late, "rejected": sent.bad}
            if rows != expected:
                self._note(f"the account of {name} is {rows}, and not {expected}")
        for each in mistakes(self.root, self.world.sent):
            self._note(each)

    def close(self) -> None:
        self.world.close()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def main() -> int:
    asked = options()
    root = asked.directory or Path(tempfile.mkdtemp(prefix="headrace-soak-"))
    root.mkdir(parents=True, exist_ok=True)
    world = World(root, free_port(), asked.rate, asked.seed, asked.keep_files, asked.rotate or None)
    length = asked.minutes * 60
    soak = Soak(world, world.write_pipeline(asked.budget))
    rng = random.Random(asked.seed)
    try:
        for at in sorted(rng.uniform(0.04, 0.14) * length for _ in range(asked.kills)):
            soak.send_until(at)
            soak.kill()
        for at in (length / 6, length / 4):
            soak.send_until(at)
            soak.burst(asked.burst)
        soak.send_until(length)
        soak.finish()
    except KeyboardInterrupt:
        soak.wrong.append("interrupted")
    finally:
        soak.close()
    since = max(length / 3, soak.bursts[-1][1] + EXPIRED, *(at + length / 12 for at in soak.deaths))
    code = tell(soak, since, asked.samples)
    if asked.directory is None and code == 0:
        shutil.rmtree(root)
    else:
        print(f"what it wrote is in {root}")
    return code


def tell(soak: Soak, since: float, path: Path) -> int:
    """Print what was found, and write the samples down; the exit code."""
    until = soak.kills[-1] if soak.kills else soak.now
    judged = [each for each in soak.samples if each["at"] <= until]
    verdicts = []
    if sum(each["at"] >= since for each in judged) > 10:
        verdicts = judge(judged, since) + judge_return(judged, soak.bursts, since)
    sent = {name: asdict(each) | {"rows": each.rows} for name, each in soak.world.sent.items()}
    born = max((*soak.kills[:-1], *soak.deaths), default=0.0)
    cpu = judged[-1]["cpu"] / max(1.0, until - born) if judged else 0
    print(
        f"soak of {soak.now / 60:.1f} minutes: {sum(s['rows'] for s in sent.values()):,} rows sent, ", end=""
    )
    print(f"{len(soak.kills)} kills, {dict(soak.world.mishaps)}, {cpu:.0%} of a core")
    for name in STREAMS:
        rows = soak.samples[-1]["streams"][name] if soak.samples else {}
        print(f"  {name:<5} sent {sent[name]}; account {rows}")
    print(f"judged from {since:.0f} s to {until:.0f} s, {len(judged):,} samples; growth = slope × length")
    print(f"  {HEAD}")
    for each in verdicts:
        print(f"  {each.line()}")
    for each in soak.wrong:
        print(f"  WRONG {each}")
    failed = bool(soak.wrong) or not verdicts or not all(each.flat for each in verdicts)
    print("it does not hold" if failed else "it holds: flat, and every row accounted for")
    found = {"verdicts": [asdict(each) | {"flat": each.flat} for each in verdicts], "wrong": soak.wrong}
    whole = found | {"since": since, "kills": soak.kills, "sent": sent, "samples": soak.samples}
    path.write_text(json.dumps(whole))
    print(f"samples: {path.resolve()}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
