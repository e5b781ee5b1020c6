"""Results of `crossgate` in a process, and the schemas of its JSON output."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from referencing import Registry, Resource

CROSSGATE = Path(sysconfig.get_path("scripts")) / "crossgate"
SCHEMAS = {
    path.stem: json.loads(path.read_text(encoding="utf-8"))
    for path in (Path(__file__).parent / "schemas").glob("*.json")
}
REGISTRY: Registry[Any] = Registry().with_resources(
    (schema["$id"], Resource.from_contents(schema)) for schema in SCHEMAS.values()
)
ERROR = re.compile(r"crossgate: error\[([a-z_]+)\]: [^\n]+\n")


@dataclass(frozen=True)
class Run:
    """The result of one process."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The code of the one line on stderr."""
        found = ERROR.fullmatch(self.err)
        assert found, self.err
        return found[1]


def before_python_path(folder: Path) -> str:
    """Return a PYTHONPATH with a folder before those of the tests, whose tree is imported."""
    return os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])


def environment(home: Path, **variables: str) -> dict[str, str]:
    """Return an environment without the user's own settings and models."""
    names = ("PATH", "LD_LIBRARY_PATH", "OPENBLAS_NUM_THREADS", "PYTHONPATH")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    return {**kept, "HOME": str(home), "PYTHONWARNINGS": "error", **variables}


def python(script: str, *arguments: object, **variables: str) -> str:
    """Run a script that must succeed on a fresh interpreter, and return its output."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def checked(run: Run, schema: str) -> Any:
    """Check the output of `--json` against its schema, and return it."""
    assert run.out.isascii()
    values = json.loads(run.out)
    Draft202012Validator(SCHEMAS[schema], registry=REGISTRY).validate(values)
    return values
