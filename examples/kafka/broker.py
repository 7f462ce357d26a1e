"""A Kafka broker of its own, on loopback, that can be stopped, killed and started again."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE = 180
ATTEMPTS = 3
"""A port that was free a moment ago may be taken: then others are tried."""

# One node is broker and controller, so every internal topic has one copy. Messages are kept: those of a test
# may have timestamps of years ago, and retention would remove them at any moment.
PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}{listeners}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL
log.dirs={folder}/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
log.retention.ms=-1
"""
QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""For a broker that lives for a minute: starts with less CPU time, and is slower later."""


class CannotStart(Exception):
    """There is no broker here, and why."""


def jars() -> Path:
    """Where `scripts/ensure-kafka` has put the jars."""
    home = Path(os.environ.get("KAFKA_JARS", ROOT / ".kafka"))
    if not (home / "complete").is_file():
        raise CannotStart("the Kafka jars are not here; scripts/ensure-kafka downloads them")
    return home


def java() -> str:
    """The Java that runs the broker."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if found is None:
        raise CannotStart("a Kafka broker needs Java, and none was found; scripts/ensure-java installs one")
    return found


def free_port() -> int:
    """A port that nobody listens on at the moment."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@dataclass
class Broker:
    """A broker with its data in `folder`; `jars` is what `scripts/ensure-kafka` prints.

    `secure` are properties of a second listener with TLS and SASL, if there is to be one.
    """

    jars: Path
    folder: Path
    flags: tuple[str, ...] = QUICK
    secure: str = ""
    port: int = 0
    secure_port: int = 0
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        self._choose_ports()
        tool = [*self._java("kafka.tools.StorageTool"), "format", "-t", str(uuid.uuid4())]
        done = subprocess.run(
            [*tool, "-c", self.properties], capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        if done.returncode:
            raise CannotStart(f"the storage of the broker cannot be made: {done.stderr[-2000:]}")

    def _choose_ports(self) -> None:
        self.port, self.secure_port = free_port(), free_port()
        listeners = f",SECURE://127.0.0.1:{self.secure_port}" if self.secure else ""
        text = PROPERTIES.format(
            port=self.port, controller=free_port(), folder=self.folder, listeners=listeners
        )
        self.properties.write_text(text + self.secure)

    @property
    def properties(self) -> Path:
        return self.folder / "server.properties"

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def begin(self) -> None:
        """Start it for the first time, on ports that are free."""
        for attempt in range(ATTEMPTS):
            try:
                return self.start()
            except CannotStart:
                self.kill()
                if attempt == ATTEMPTS - 1 or "Address already in use" not in self.log():
                    raise
                self._choose_ports()

    def start(self) -> None:
        """Start it, and wait until it listens."""
        with open(self.folder / "log", "ab") as log:
            command = [*self._java("kafka.Kafka"), str(self.properties)]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + PATIENCE
        while not self._listens():
            if self.process.poll() is not None:
                raise CannotStart(f"the broker ended:\n{self.log()}")
            if time.monotonic() > deadline:
                raise CannotStart(f"the broker does not listen:\n{self.log()}")
            time.sleep(0.2)

    def stop(self) -> None:
        """Ask it to end, and wait for that."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        self._end(signal.SIGKILL)

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-3000:]

    def _java(self, main: str) -> list[str]:
        return [java(), "-Xmx512m", *self.flags, "-cp", f"{self.jars}/broker/*", main]

    def _listens(self) -> bool:
        with socket.socket() as trial:
            trial.settimeout(1)
            return trial.connect_ex(("127.0.0.1", self.port)) == 0

    def _end(self, how: signal.Signals) -> None:
        if self.process is None:
            return
        self.process.send_signal(how)
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None
