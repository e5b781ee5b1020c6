"""`eval/other_routers.py`: the shares that it prints, and the files that it gives to packages."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from beir_folder import write_beir
from crossgate import Document
from crossgate.evaluation import LabelledQuery

SCRIPT = Path(__file__).parents[1] / "eval" / "other_routers.py"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("other_routers", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "other_routers", module)  # for its dataclass
    spec.loader.exec_module(module)
    return module


def test_shares_count_right_first_documents_picks_and_false_positives(
    script: ModuleType, tmp_path: Path
) -> None:
    documents = [Document(id=id, title=id.upper(), text=id) for id in ("a", "b")]
    library = script.write_library(documents, tmp_path)
    fits = [LabelledQuery(id=str(place), text="x", relevant={"a": 1}) for place in range(4)]
    prompts = [*fits, LabelledQuery(id="4", text="x"), LabelledQuery(id="5", text="x")]
    names = ["A", "A", "B", None, "A", None]
    picks = [True, False, True, False, True, False]
    shown = script.figures(list(zip(names, picks, strict=True)), library, prompts)
    assert " ".join(shown.split()) == "first 0.500 picked 0.250 false positives 0.500"
    undecided = script.figures([(name, None) for name in names], library, prompts)
    assert " ".join(undecided.split()) == "first 0.500 picked - false positives -"


def test_every_document_gets_a_skill_file_under_a_unique_name(
    script: ModuleType, tmp_path: Path
) -> None:
    documents = [
        Document(id="1", title="pdf", text='say "hi"\nC:\\x', body="Steps."),
        Document(id="2", title="pdf", text="other"),
    ]
    library = script.write_library(documents, tmp_path)
    assert list(library.documents) == ["pdf", "pdf 1"]
    texts = sorted(path.read_text() for path in tmp_path.rglob("SKILL.md"))
    assert texts == [
        '---\nname: "pdf 1"\ndescription: "other"\n---\n\nother\n',
        '---\nname: "pdf"\ndescription: "say \'hi\' C:/x"\n---\n\nSteps.\n',
    ]


def test_router_that_is_not_installed_is_skipped_with_the_command_that_installs_it(
    script: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))  # the script changes it
    monkeypatch.setitem(
        script.ROUTERS, "absent-router", ("absent-router==1.2", script.ask_crossgate)
    )
    folder = write_beir(tmp_path / "set")
    command = ["other_routers", f"{folder}:test", "--routers", "crossgate", "absent-router"]
    monkeypatch.setattr(sys, "argv", command)
    script.main()
    title, crossgate, absent = capsys.readouterr().out.splitlines()
    assert title.endswith("2 prompts with a match, 2 without")  # q2 names its document
    assert crossgate.startswith("  crossgate ")
    assert "first 1.000" in crossgate
    assert absent.split(maxsplit=1)[1] == "not installed: pip install absent-router==1.2"
