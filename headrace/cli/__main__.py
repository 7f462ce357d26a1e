"""The entry point of `headrace` and of `python -m headrace.cli`; it imports nothing that may be missing."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line, or explain how to install what it needs."""
    try:
        import rich  # noqa: F401

        from headrace.cli.app import main as run
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in ("", "headrace"):
            raise
        print(f"headrace: {missing} is not installed; pip install 'headrace[cli]'", file=sys.stderr)
        raise SystemExit(2) from None
    run()


if __name__ == "__main__":
    main()
