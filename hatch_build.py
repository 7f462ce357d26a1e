"""Puts compiled kernels into a wheel, so that the first query on a machine does not wait for a compiler.

The wheel is then for one version of Python and one platform. `HEADRACE_PURE_WHEEL=1` builds one for all of
them, without compiled kernels. An editable install compiles kernels when they are first used.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PURE = "HEADRACE_PURE_WHEEL"

OLDEST_C_LIBRARY = "2_17"
"""Compiled kernels call the functions of libm only: any glibc that NumPy and numba run on will do."""


class CompiledKernels(BuildHookInterface[Any]):
    """Compiles the kernels and adds them to the wheel."""

    made: Path | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it builds."""
        if version == "editable" or os.environ.get(PURE, "0") != "0" or sys.platform != "linux":
            return
        root = Path(self.root)
        self.made = Path(tempfile.mkdtemp(prefix="headrace-kernels-"))
        settings = _shipped(root).settings_for_building(self.made)
        if not settings:
            return
        # The packages of an isolated build are found through PYTHONPATH, too.
        paths = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, **settings, "PYTHONPATH": paths, "HEADRACE_SILENT_COMPILATION": "1"}
        subprocess.run([sys.executable, "-m", "headrace.kernels"], env=environment, check=True)
        build_data["force_include"][str(self.made)] = "headrace/kernels/compiled"
        build_data["pure_python"] = False
        python = f"cp{sys.version_info.major}{sys.version_info.minor}"
        build_data["tag"] = f"{python}-{python}-manylinux_{OLDEST_C_LIBRARY}_{platform.machine()}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Called by hatchling after it has built."""
        if self.made is not None:
            shutil.rmtree(self.made)


def _shipped(root: Path) -> Any:
    """The module that knows what to compile for, from the sources that are built."""
    spec = importlib.util.spec_from_file_location("shipped", root / "headrace" / "kernels" / "shipped.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look it up
    spec.loader.exec_module(module)
    return module
