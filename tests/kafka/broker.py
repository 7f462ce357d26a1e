"""A Kafka broker of its own for a test, on loopback, that can be stopped, killed and started again."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

# One node is broker and controller, so every internal topic has one copy.
PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={folder}/data
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
auto.create.topics.enable=false
"""
PATIENCE = 180


def free_port() -> int:
    """A port that nobody listens on at the moment."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@dataclass
class Broker:
    """A broker with its data in `folder`; `jars` is what `scripts/ensure-kafka` prints."""

    jars: Path
    folder: Path
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        text = PROPERTIES.format(port=self.port, controller=free_port(), folder=self.folder)
        self.properties.write_text(text)
        subprocess.run(
            [
                *self._java("kafka.tools.StorageTool"),
                "format",
                "-t",
                str(uuid.uuid4()),
                "-c",
                self.properties,
            ],
            check=True,
            capture_output=True,
            timeout=PATIENCE,
        )

    @property
    def properties(self) -> Path:
        return self.folder / "server.properties"

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and wait until it listens."""
        with open(self.folder / "log", "ab") as log:
            command = [*self._java("kafka.Kafka"), str(self.properties)]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + PATIENCE
        while not self._listens():
            assert self.process.poll() is None, f"the broker ended:\n{self.log()}"
            assert time.monotonic() < deadline, f"the broker does not listen:\n{self.log()}"
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
        home = os.environ.get("JAVA_HOME")
        java = str(Path(home, "bin", "java")) if home else "java"
        return [java, "-Xmx512m", "-cp", f"{self.jars}/broker/*", main]

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
