"""`python -m experiments`: all of them, or those named; the same as `headrace experiment`."""

from __future__ import annotations

import sys

from headrace.cli.app import app

if __name__ == "__main__":
    app(["experiment", *(sys.argv[1:] or ["all"])])
