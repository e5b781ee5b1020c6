"""`eval/peer_processes.py`: real processes of small packages in environments of their own."""

from __future__ import annotations

import importlib.util
import sys
import venv
from pathlib import Path
from types import ModuleType

import pytest

from beir_folder import write_beir

SCRIPT = Path(__file__).parents[1] / "eval" / "peer_processes.py"

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no os.wait4")


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "path", [*sys.path])  # the script adds its folder
    spec = importlib.util.spec_from_file_location("peer_processes", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "peer_processes", module)  # for its dataclass
    spec.loader.exec_module(module)
    return module


def install(environments: Path, package: str, source: str) -> None:
    """Make an environment with a package of one module of 2 MB, which is a comment."""
    environment = environments / package
    venv.create(environment, symlinks=True)
    (site,) = environment.glob("lib/python*/site-packages")
    (site / f"{package}.py").write_text(f"{source}\n# {'x' * 2_000_000}\n")
    facts = site / f"{package}-1.2.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
    (facts / "RECORD").write_text(f"{package}.py,,\n")


def test_line_has_the_time_memory_and_size_of_a_process_that_got_skills_and_prompt(
    script: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))  # the script changes it
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # likewise
    lines = [
        "import pathlib",
        "memory = b'x' * 60_000_000",
        "def ask(skills, prompt):",
        "    found = list(pathlib.Path(skills).rglob('SKILL.md'))",
        "    print(len(found), pathlib.Path('index').read_text(), prompt)",
    ]
    install(tmp_path, "tiny", "\n".join(lines))
    code = f"import sys, tiny; tiny.ask({script.SKILLS!r}, sys.argv[1])"
    prepares = script.python("import pathlib; pathlib.Path('index').write_text('indexed')")
    rows = {
        "tiny": script.Peer("tiny==1.2", script.python(code), prepares),
        "absent": script.Peer("absent[extra]==3.4", script.python("pass")),
    }
    monkeypatch.setattr(script, "peers", rows.items)
    folder = write_beir(tmp_path / "set")
    command = ["peer_processes", str(folder), "--environments", str(tmp_path), "--times", "2"]
    monkeypatch.setattr(sys, "argv", [*command, "--prompt", "merge pdf files"])
    script.main()
    told = capsys.readouterr()
    assert told.err == "tiny: 6 indexed merge pdf files\n"
    absent, tiny = (line.split() for line in told.out.splitlines())
    assert " ".join(absent).endswith("absent/bin/pip install absent[extra]==3.4")
    name, processor, _, peak, _, size, *_ = tiny
    assert (name, size) == ("tiny", "2.0")
    assert float(processor) > 0
    assert 57 < float(peak) < 200  # 60 MB, and Python itself


def test_adapter_of_a_router_runs_in_a_process_without_crossgate(
    script: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    lines = [
        "class Router:",
        "    @classmethod",
        "    def from_descriptions(cls, rows):",
        "        cls.rows = rows",
        "        return cls()",
        "    def route(self, prompt, k):",
        "        return [name for name, text in self.rows if prompt in text][:k]",
    ]
    install(tmp_path, "agent-tool-router", "")
    (site,) = tmp_path.glob("agent-tool-router/lib/python*/site-packages")
    (site / "agent_tool_router.py").write_text("\n".join(lines))
    folder = write_beir(tmp_path / "set")
    command = ["peer_processes", str(folder), "--environments", str(tmp_path), "--times", "1"]
    monkeypatch.setattr(sys, "argv", [*command, "--prompt", "compress pdf files"])
    script.main()
    told = capsys.readouterr()
    assert told.err == "agent-tool-router: pdf-toolkit\n"
    assert told.out.count("not installed") == told.out.count("\n") - 1
