"""Runs the notebooks of `examples/`, and shows them as Markdown.

    python release/notebooks.py      # run all, and store their output

A notebook is JSON with cells of Markdown and Python. The cells of one notebook share their names,
and only their output is stored, so neither Jupyter nor a kernel is needed.
"""

from __future__ import annotations

import io
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[1] / "examples"


def read(path: Path) -> list[dict[str, Any]]:
    """Return the cells of a notebook."""
    cells: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))["cells"]
    return cells


def stored(cell: dict[str, Any]) -> str:
    """Return what a cell printed when the notebook was stored."""
    return "".join("".join(output.get("text", ())) for output in cell.get("outputs", ()))


def printed(path: Path) -> list[str]:
    """Run a notebook in a new folder, and return what each cell of Python prints."""
    names: dict[str, Any] = {"__name__": "__main__"}
    texts = []
    with _new_folder():
        for number, cell in enumerate(read(path), start=1):
            if cell["cell_type"] == "code":
                stream = io.StringIO()
                with redirect_stdout(stream):
                    exec(compile("".join(cell["source"]), f"{path.name}:{number}", "exec"), names)  # noqa: S102
                texts.append(stream.getvalue())
    return texts


def markdown(path: Path) -> str:
    """Return a notebook as a page."""
    parts = []
    for cell in read(path):
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
            continue
        parts.append(f"```python\n{text}\n```")
        if output := stored(cell).rstrip():
            parts.append(f"```text\n{output}\n```")
    return "\n\n".join(parts) + "\n"


def store(path: Path) -> None:
    """Run a notebook, and write what its cells print into the file."""
    notebook = json.loads(path.read_text("utf-8"))
    code = (cell for cell in notebook["cells"] if cell["cell_type"] == "code")
    for number, (cell, text) in enumerate(zip(code, printed(path), strict=True), start=1):
        lines = text.splitlines(keepends=True)
        cell["execution_count"] = number
        cell["outputs"] = (
            [{"name": "stdout", "output_type": "stream", "text": lines}] if lines else []
        )
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


@contextmanager
def _new_folder() -> Iterator[None]:
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def main() -> int:
    """Run and store all notebooks."""
    for path in sorted(EXAMPLES.glob("*.ipynb")):
        store(path)
        print(path.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
