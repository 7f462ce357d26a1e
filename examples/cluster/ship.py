"""Headrace packed for executors that do not have it: an archive that Spark unpacks beside each of them.

An archive and not a zip for `--py-files`, because of the compiled kernels: numba finds them again only
beside the unpacked sources, with the times that these had. From a zip each new executor would compile anew.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import headrace

ALIAS = "shipped"
"""The folder in which an executor finds the archive, in its own working directory."""


def archive(target: Path) -> Path:
    """The package that this Python imports, with its kernels as far as they are compiled here."""
    package = Path(headrace.__file__).parent
    with tarfile.open(target, "w:gz", format=tarfile.PAX_FORMAT, compresslevel=1) as packed:
        for path in sorted(package.rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                packed.add(path, Path(package.name) / path.relative_to(package))
    return target


def settings(packed: Path) -> dict[str, str]:
    """What a session needs so that its executors import the archive's Headrace."""
    return {
        "spark.archives": f"{packed}#{ALIAS}",
        "spark.executorEnv.PYTHONPATH": ALIAS,
    }
