"""A PostgreSQL server of Debian's packages in a temporary directory, run by the user `postgres`."""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

USER = "postgres"
PASSWORD = "a-secret-of-the-test"


class CannotStart(Exception):
    """There is no server here, and why."""


@contextmanager
def postgres() -> Iterator[str]:
    """Start a server that listens on the loopback interface only; yields the URL of its database."""
    binaries = _binaries()
    prefix = _as_another_user()
    folder = Path(tempfile.mkdtemp(prefix="headrace-postgres-"))
    try:
        if prefix:
            shutil.chown(folder, USER)
        secret = folder / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        data, port = folder / "data", _free_port()
        setup = ["--auth=scram-sha-256", f"--username={USER}", f"--pwfile={secret}", "--no-sync"]
        _call([*prefix, str(binaries / "initdb"), "-D", str(data), "-E", "UTF8", *setup])
        options = f"-p {port} -c listen_addresses=127.0.0.1 -k {folder} -c max_connections=30"
        control = [*prefix, str(binaries / "pg_ctl"), "-D", str(data)]
        _call([*control, "-w", "-t", "60", "-l", str(folder / "log"), "-o", options, "start"])
        try:
            yield f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{port}/postgres"
        finally:
            _call([*control, "-w", "-m", "immediate", "stop"])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _binaries() -> Path:
    """The folder of the newest server that is installed."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"))
    if not found:
        raise CannotStart("PostgreSQL is not installed: apt-get install postgresql")
    return Path(found[-1]).parent


def _as_another_user() -> list[str]:
    """What runs a command as a user that is not root: PostgreSQL refuses root."""
    if os.geteuid() != 0:
        return []
    try:
        pwd.getpwnam(USER)
    except KeyError:
        raise CannotStart(f"PostgreSQL refuses root, and there is no user {USER!r}") from None
    return ["runuser", "-u", USER, "--"]


def _call(command: list[str]) -> None:
    """Run a command; its failure is the reason why there is no server."""
    try:
        done = subprocess.run(
            command,
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotStart(f"PostgreSQL does not start: {error}") from error
    if done.returncode:
        raise CannotStart(f"PostgreSQL does not start: {done.stderr.strip() or done.stdout.strip()}")


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
