"""`headrace top`: a running pipeline, watched from another terminal."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console
from rich.live import Live

from headrace.cli.status import read
from headrace.cli.view import as_table


def watch(file: Path, once: bool) -> None:
    """Show the newest status until the run ends, or once."""
    console = Console()
    status = read(file)
    if once or status["state"] != "running":
        console.print(as_table(status))
        return
    with Live(as_table(status), console=console, refresh_per_second=4) as live:
        while status["state"] == "running":
            time.sleep(0.5)
            status = read(file)
            live.update(as_table(status))
