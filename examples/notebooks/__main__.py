"""Executes the notebooks and stores their outputs.

pip install -e '.[notebooks,spark]'
python -m examples.notebooks            # all, or the names of some
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent


def execute(path: Path) -> None:
    """Run all cells in a new kernel, in the folder of the notebook, and write the outputs into the file."""
    import nbclient
    import nbformat

    found = nbformat.read(path, as_version=4)
    for cell in found.cells:
        cell.metadata.clear()
    nbclient.NotebookClient(found, timeout=300, resources={"metadata": {"path": str(HERE)}}).execute()
    for cell in found.cells:
        cell.metadata.clear()  # when each cell ran
        if cell.cell_type == "code":
            cell.outputs = [each for each in cell.outputs if each.get("name") != "stderr"]
    nbformat.write(found, path)


def main() -> None:
    names = sys.argv[1:] or sorted(path.stem for path in HERE.glob("*.ipynb"))
    for name in names:
        print(name, flush=True)
        execute(HERE / f"{name}.ipynb")


if __name__ == "__main__":
    main()
