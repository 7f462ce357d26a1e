"""Python objects that a pipeline file names as `module:name`.

Only the modules that the file names are imported: from the folder of the file, or else as Python finds them.
Checkpoints, recorded runs and commands never cause an import.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from headrace.errors import HeadraceError, PipelineError


@dataclass(frozen=True)
class Functions:
    """Finds Python objects by name: those given by the caller, and those of modules, if `imports`."""

    root: Path
    given: Mapping[str, Any] = field(default_factory=dict)
    imports: bool = True
    found: dict[str, Any] = field(default_factory=dict)
    """What the file names, once it was imported."""

    def only_known(self) -> Functions:
        """Finds what was given or found before, and imports nothing."""
        return Functions(self.root, {**self.given, **self.found}, imports=False)

    def find(self, written: str) -> Any:
        """The object that is written as `module:name`, or that the caller gave under this name."""
        if written in self.given:
            return self.given[written]
        if written not in self.found:
            self.found[written] = self._imported(written)
        return self.found[written]

    def modules(self) -> list[str]:
        """The modules that were imported from the folder of the pipeline file."""
        names = {written.partition(":")[0] for written in self.found}
        root = self.root.resolve()
        files = {name: getattr(sys.modules.get(name), "__file__", None) for name in names}
        return sorted(name for name, file in files.items() if file and root in Path(file).resolve().parents)

    def _imported(self, written: str) -> Any:
        """The object `module:name`, imported."""
        module, separator, name = written.partition(":")
        if not separator:
            raise PipelineError(
                "HR-F160",
                f"there is no function {written!r}",
                hint='write "module:name", or pass the function: load(path, functions={"NAME": …})',
            )
        if not self.imports:
            raise PipelineError(
                "HR-F161",
                f"{written!r} is not imported: only a pipeline file can name modules, not a checkpoint, a "
                "recorded run or a command",
                hint="name it in the pipeline file, or pass it from Python: functions={…}",
            )
        return self._attribute(self._module(module, written), name, written)

    def _module(self, name: str, written: str) -> ModuleType:
        """The module, imported from the folder of the pipeline file or from where Python finds it."""
        folder = str(self.root.resolve())
        _forget_namesake(name, self.root.resolve())
        sys.path.insert(0, folder)
        try:
            importlib.invalidate_caches()
            found = importlib.import_module(name)
        except HeadraceError:
            raise
        # The module is the user's code: whatever it raises is a problem of this key of the file.
        except Exception as error:
            raise PipelineError(
                "HR-F160",
                f"cannot import {written!r}: {type(error).__name__}: {error}",
                hint=f"modules are looked for in {folder}, and then as Python does",
            ) from error
        finally:
            sys.path.remove(folder)
        if folder not in sys.path:
            sys.path.append(folder)  # for modules that it imports later
        return found

    def _attribute(self, module: ModuleType, name: str, written: str) -> Any:
        """An object in a module; the name may have dots."""
        found: Any = module
        for part in name.split("."):
            if not hasattr(found, part):
                raise PipelineError(
                    "HR-F160",
                    f"cannot import {written!r}: there is no {part!r} in {module.__name__}",
                    hint=f"the module is {getattr(module, '__file__', None) or 'a namespace package'}",
                )
            found = getattr(found, part)
        return found


def _forget_namesake(name: str, root: Path) -> None:
    """Forget a module of another pipeline's folder, if there is one of this name in `root`."""
    first = name.partition(".")[0]
    here = [root / f"{first}.py", root / first / "__init__.py"]
    loaded = sys.modules.get(first)
    file = getattr(loaded, "__file__", None)
    mine = next((each for each in here if each.is_file()), None)
    if loaded is None or mine is None or file is None or Path(file).resolve() == mine:
        return
    if first in sys.stdlib_module_names or first == "headrace":
        return
    for each in [each for each in sys.modules if each == first or each.startswith(f"{first}.")]:
        del sys.modules[each]
