"""The command line as a process: its output, exit codes and files."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commands import CROSSGATE, Run, before_python_path, checked, environment
from conftest import LIBRARY, skills
from crossgate import Index, Policy, Profile, SourceError
from crossgate._cli import output as printing
from crossgate._cli import run as command_line
from crossgate._core import Answer, Floors, Lexical, Warnings, Winner
from crossgate._support.progress import in_progress
from crossgate._telemetry.log import LoggedDecision, LoggedUse, read_log
from crossgate._values.profile_files import POLICY_SCHEMA, profile_values


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory, home: Path) -> tuple[Path, Run]:
    """The library's index file, made by the command line, and the command's output."""
    root = tmp_path_factory.mktemp("indexed")
    output = root / "skills.cgx"
    done = subprocess.run(
        [CROSSGATE, "index", skills(root / "skills"), "-o", output, "--json"],
        capture_output=True,
        text=True,
        env=environment(home),
        timeout=60,
        check=False,
    )
    return output, Run(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def skills_index(indexed: tuple[Path, Run]) -> Path:
    return indexed[0]


def policy_text(policy: Policy) -> str:
    return json.dumps({"schema": POLICY_SCHEMA, **policy.to_dict()})


@pytest.fixture
def strict(tmp_path: Path) -> Path:
    """A policy that finds no document relevant."""
    path = tmp_path / "strict.json"
    path.write_text(policy_text(Policy(floors=Floors(default=1.0))))
    return path


@pytest.fixture
def candidates(tmp_path: Path) -> Path:
    path = tmp_path / "candidates.jsonl"
    rows: list[Any] = [
        {"id": "blue", "text": "Staging is painted blue.", "score": 0.1, "source": "wiki"},
        {"id": "nodes", "text": "The staging cluster has three nodes.", "score": 0.5},
        {"id": "bread", "title": "Bread", "text": "Bread needs salt.", "score": 0.9},
    ]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    return path


# Output of each command.


def test_demo_prints_four_decisions(run: Any) -> None:
    shown = run("demo")
    assert (shown.code, shown.err) == (0, "")
    assert 20 <= len(shown.out.splitlines()) <= 40
    assert "clear: one document leads, so stage 1 decides without the cross-encoder" in shown.out
    assert "confident" not in shown.out  # the verdict is no probability
    values = checked(run("demo", "--json"), "demo")
    verdicts = {result["verdict"] for result in values["results"]}
    assert verdicts == {"confident", "ambiguous", "nothing_relevant"}
    for result in values["results"]:
        assert result["query"] in shown.out
        assert result["degraded"] == []
        assert all(id in shown.out for id in result["selected"])


def test_index_writes_a_file(indexed: tuple[Path, Run]) -> None:
    path, done = indexed
    assert (done.code, done.err) == (0, "")
    values = checked(done, "index")
    index = Index.open(path)
    assert values["documents"] == len(index) == len(LIBRARY)
    assert values["bytes"] == path.stat().st_size
    assert values["index"] == str(path)
    assert (values["embedder"], values["fingerprint"]) == (index.embedder, index.fingerprint)
    assert values["embedder"].startswith("crossgate-embedder-minilm-l6@sha256:")
    assert values["skipped"] == 0


def test_index_embeds_only_changed_documents(run: Any, skills_index: Path, tmp_path: Path) -> None:
    output = tmp_path / "again.cgx"
    shutil.copy(skills_index, output)
    texts = {**LIBRARY, "baker": "bake bread"}
    (tmp_path / "again.profile.json").write_text("{}")
    done = run("index", skills(tmp_path / "more", texts), "-o", output)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"{output}: 7 documents, ")
    assert f"the profile {tmp_path / 'again.profile.json'} decides for it" in done.out
    index, before = Index.open(output), Index.open(skills_index)
    for id in LIBRARY:
        assert index._core.vector(id) == before._core.vector(id)


def test_index_reports_and_skips_broken_files(run: Any, tmp_path: Path) -> None:
    folder = skills(tmp_path / "skills")
    (folder / "broken").mkdir()
    (folder / "broken" / "SKILL.md").write_text("no front matter")
    done = run("index", folder, "-o", "out.cgx", "--json", "--embedder", "none")
    assert done.code == 0
    values = checked(done, "index")
    assert (values["documents"], values["skipped"]) == (len(LIBRARY), 1)
    assert values["embedder"] == ""
    assert re.match(r"crossgate: skipped .*broken/SKILL\.md:1: [^\n]+\n", done.err)
    assert "nothing can be refused" in done.err


def test_route_prints_the_selected_documents(run: Any, skills_index: Path) -> None:
    query = "the export has broken quoting and duplicate rows"
    shown = run("route", "-i", skills_index, query)
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.splitlines()[0] == "csv-cleaner"
    assert LIBRARY["csv-cleaner"] in shown.out
    values = checked(run("route", "-i", skills_index, query, "--json"), "result")
    assert values["selected"][0] == "csv-cleaner"
    assert "trace" not in values
    explained = run("route", "--explain", "-i", skills_index, query)
    for id in LIBRARY:
        assert id in explained.out
    values = checked(run("route", "-i", skills_index, query, "--json", "--explain"), "result")
    assert len(values["trace"]["stage1"]) == len(values["hits"])


def test_index_uses_a_model_from_a_folder(run: Any, tmp_path: Path) -> None:
    from crossgate._runtime.model_files import folder

    known = folder("crossgate-embedder-minilm-l6")
    (tmp_path / "models" / "mine").mkdir(parents=True)
    for file in known.iterdir():
        (tmp_path / "models" / "mine" / file.name).symlink_to(file)
    skills(tmp_path / "skills")
    made = run("index", "skills", "-o", "own.cgx", "--embedder", "models/mine", "--json")
    assert checked(made, "index")["embedder"].startswith("mine@sha256:")
    arguments = ["route", "-i", "own.cgx", "merge two pdf files", "--json", "--reranker", "none"]
    without = checked(run(*arguments), "result")
    (degraded,) = [note for note in without["degraded"] if note["code"] != "no_profile"]
    assert degraded["code"] == "embedder_unavailable"
    assert "mine@sha256:" in degraded["detail"]
    assert "--embedder FOLDER" in degraded["detail"]
    assert {hit["cosine"] for hit in without["hits"]} == {None}
    done = run(*arguments, "--embedder", "models/mine")
    values = checked(done, "result")
    assert [note["code"] for note in values["degraded"]] == ["no_profile"]
    assert values["selected"][0] == "pdf-toolkit"
    assert None not in {hit["cosine"] for hit in values["hits"]}


def test_route_accepts_the_name_of_the_embedder(run: Any, skills_index: Path, words: Path) -> None:
    arguments = ["route", "merge two pdf files", "--reranker", "none", "--json"]
    for name in ("default", "crossgate-embedder-minilm-l6"):
        done = run(*arguments, "-i", skills_index, "--embedder", name)
        assert (done.code, done.err) == (0, ""), name
    assert run(*arguments, "-i", words, "--embedder", "none").code == 0
    assert run(*arguments, "-i", words, "--embedder", "default").error == "embedder_mismatch"
    assert run(*arguments, "-i", skills_index, "--embedder", "none").error == "embedder_mismatch"
    assert run(*arguments, "-i", words, "--embedder", "absent").error == "unknown_model"


def test_route_asks_stage_2(run: Any, skills_index: Path, tmp_path: Path) -> None:
    profile = tmp_path / "ungated.json"
    profile.write_text(json.dumps(profile_values(Profile())))
    arguments = ["route", "-i", skills_index, "join two PDFs", "--profile", profile]
    values = checked(run(*arguments, "--json", "--explain", "--limit", "1"), "result")
    assert (values["stage"], values["reason"]) == (2, "reranked")
    assert values["selected"] == ["pdf-toolkit"]
    assert values["trace"]["reranker"].startswith("crossgate-router-minilm-l12@sha256:")
    assert values["timings_ms"]["stage2"] > 0
    plain = checked(run(*arguments, "--json", "--reranker", "none"), "result")
    assert (plain["stage"], plain["reason"], plain["degraded"]) == (1, "undecided", [])


def test_route_applies_allow_deny_and_limit(run: Any, words: Path) -> None:
    arguments = ["route", "clean csv", "-i", words, "--reranker", "none", "--json"]

    def considered(*options: str) -> set[str]:
        return {hit["id"] for hit in checked(run(*arguments, *options), "result")["hits"]}

    both = {"pdf-toolkit", "translator"}
    assert considered("--allow", "pdf-toolkit", "--allow", "translator") == both
    assert considered("--deny", "csv-cleaner") == set(LIBRARY) - {"csv-cleaner"}
    assert considered("--deny", "pdf-toolkit", "--deny", "translator") == set(LIBRARY) - both


def test_route_reads_the_query_from_stdin(run: Any, words: Path) -> None:
    for text in ("merge pdf", "merge pdf\n", "\ufeffmerge pdf\r\n"):
        done = run("route", "-i", words, "-", "--reranker", "none", stdin=text.encode())
        assert done.code == 0
        assert done.out.splitlines()[0] == "pdf-toolkit"


def test_no_relevant_document_exits_with_1(run: Any, skills_index: Path, strict: Path) -> None:
    arguments = ["route", "-i", skills_index, "merge pdf", "--policy", strict]
    shown = run(*arguments)
    assert (shown.code, shown.err) == (1, "")
    assert shown.out.startswith("nothing fits: no candidate reaches the floor")
    done = run(*arguments, "--json", "--explain")
    assert done.code == 1
    values = checked(done, "result")
    assert (values["verdict"], values["reason"]) == ("nothing_relevant", "below_floor")
    assert values["selected"] == []


def test_no_candidate_is_offered_whose_relevance_would_be_printed_as_0_percent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, index = tmp_path / "handbook", tmp_path / "handbook.cgx"
    folder.mkdir()
    (folder / "fleet.md").write_text("# Ferries\n\nThe Merula carries 38 cars.\n", encoding="utf-8")
    assert command_line(["index", str(folder), "-o", str(index)]) == 0
    capsys.readouterr()
    assert command_line(["route", "-i", str(index), "how do I bake sourdough bread"]) == 1
    assert capsys.readouterr().out.startswith("nothing fits: ")


def test_rerank_prints_the_selected_candidates(run: Any, candidates: Path) -> None:
    query = "how many nodes does staging have"
    shown = run("rerank", query, candidates)
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.splitlines()[0] == "nodes"
    values = checked(run("rerank", query, candidates, "--json", "--explain"), "result")
    assert values["selected"] == ["nodes"]
    assert {hit["dropped"] for hit in values["hits"][1:]} == {"irrelevant"}
    assert values["stage"] == 2
    (wiki,) = [hit["metadata"] for hit in values["hits"] if hit["id"] == "blue"]
    assert wiki == {"source": "wiki"}
    for arguments in (["-"], []):
        piped = run("rerank", query, *arguments, "--limit", "1", stdin=candidates.read_bytes())
        assert (piped.code, piped.out.splitlines()[0]) == (0, "nodes")


def test_rerank_accepts_an_empty_list(run: Any) -> None:
    done = run("rerank", "red fox", "--json")
    assert (done.code, done.err) == (1, "")
    assert checked(done, "result")["reason"] == "no_candidates"


def test_models_list_shows_every_model(run: Any) -> None:
    values = checked(run("models", "list", "--json"), "models_list")
    here = {model["name"]: model["here"] for model in values["models"]}
    assert here["crossgate-embedder-minilm-l6"]
    assert here["crossgate-router-minilm-l12"]
    assert here["crossgate-passages-minilm-l12"]
    assert not here["ms-marco-minilm-l6-v2"]
    shown = run("models", "list")
    assert shown.code == 0
    assert all(name in shown.out for name in here)
    assert "crossgate models pull ms-marco-minilm-l6-v2" in shown.out
    assert "bge-reranker-base  (cross-encoder, MIT)" in shown.out
    models = {model["name"]: model for model in values["models"]}
    assert models["ms-marco-minilm-l6-v2"]["bytes"] == 91_722_626
    assert models["bge-reranker-base"]["bytes"] is None
    named = {name for name, model in models.items() if model["terms"]}
    assert named == {"jina-reranker-v2-base-multilingual"}


def test_licence_must_be_accepted_before_a_pull(run: Any) -> None:
    done = run("models", "pull", "jina-reranker-v2-base-multilingual")
    shown, refusal = done.err.splitlines()
    assert (done.code, done.out) == (2, "")
    assert "has the licence CC-BY-NC-4.0: no commercial use" in shown
    assert refusal.startswith("crossgate: error[licence_not_accepted]: ")
    assert "--accept-licence" in refusal


def test_plugin_is_listed_checked_and_used(run: Any, tmp_path: Path) -> None:
    (tmp_path / "acme.py").write_text(
        "from crossgate import PairScore\n"
        "class Longest:\n"
        "    name, identity = 'longest', 'longest@1'\n"
        "    def score(self, query, passages, *, deadline):\n"
        "        return [PairScore(float(len(passage.text))) for passage in passages]\n"
    )
    info = tmp_path / "acme-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.2\n")
    points = "[crossgate.rerankers]\nlongest = acme:Longest\nlost = acme:Lost\n"
    (info / "entry_points.txt").write_text(points)
    path = {"PYTHONPATH": before_python_path(tmp_path)}
    values = checked(run("models", "list", "--json", variables=path), "models_list")
    found = [plugin for plugin in values["plugins"] if plugin["package"] == "acme 1.2"]
    assert [candidate["name"] for candidate in found] == ["longest", "lost"]
    assert "longest  (plug-in of acme 1.2)" in run("models", "list", variables=path).out
    examined = run("doctor", variables=path)
    assert examined.code == 3
    assert "plug-in 'lost' of acme 1.2 (acme:Lost) cannot be used" in examined.out
    reranked = run(
        "rerank", "fox", "--reranker", "longest", stdin=b'{"text": "fox"}', variables=path
    )
    assert reranked.code == 0
    broken = run("rerank", "fox", "--reranker", "lost", stdin=b'{"text": "fox"}', variables=path)
    assert (broken.code, broken.error) == (2, "plugin_failed")


def test_models_verify_checks_the_hashes(run: Any) -> None:
    values = checked(run("models", "verify", "--json"), "models_verify")
    assert {file["model"] for file in values["files"]} == {
        "crossgate-embedder-minilm-l6",
        "crossgate-router-minilm-l12",
        "crossgate-passages-minilm-l12",
    }
    assert all(file["ok"] for file in values["files"])
    single = checked(
        run("models", "verify", "crossgate-router-minilm-l12", "--json"), "models_verify"
    )
    assert [file["file"] for file in single["files"]] == [
        "graph.onnx",
        "model.onnx",
        "tokenizer.json",
    ]
    assert run("models", "verify").code == 0


def test_doctor_reports_versions_and_models(run: Any) -> None:
    done = run("doctor", "--json")
    assert (done.code, done.err) == (0, "")
    states = {check["what"]: check["state"] for check in checked(done, "doctor")["checks"]}
    assert states["crossgate"] == states["onnxruntime"] == states["cache"] == "ok"
    assert states["embedder crossgate-embedder-minilm-l6"] == "ok"
    assert states["cross-encoder crossgate-passages-minilm-l12"] == "ok"
    assert "cross-encoder ms-marco-minilm-l6-v2" not in states
    assert states["other models"] == "off"
    shown = run("doctor")
    assert shown.code == 0
    assert "models not pulled" in shown.out


@pytest.mark.parametrize(
    ("variables", "state", "said"),
    [
        ({}, "off", "no API key"),
        ({"VOYAGE_API_KEY": " "}, "off", "no API key"),
        ({"VOYAGE_API_KEY": "secret-5"}, "ok", "key in VOYAGE_API_KEY"),
        ({"VOYAGE_API_KEY": "secret-5", "CROSSGATE_REMOTE": "0"}, "off", "CROSSGATE_REMOTE=0"),
    ],
)
def test_doctor_reports_remote_rerankers(
    run: Any, variables: dict[str, str], state: str, said: str
) -> None:
    done = run("doctor", "--json", variables=variables)
    assert done.code == 0
    (found,) = (
        check for check in checked(done, "doctor")["checks"] if check["what"] == "VoyageReranker"
    )
    assert found["state"] == state
    assert said in found["detail"]
    assert "secret-5" not in done.out


def test_doctor_reports_a_key_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib import metadata

    from crossgate._cli import doctor

    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setenv("CO_API_KEY", "secret-5")
    monkeypatch.delenv("CROSSGATE_REMOTE", raising=False)
    monkeypatch.setattr(metadata, "version", missing)
    found = {check["what"]: check for check in doctor.examine()}
    absent = found["CohereReranker"]
    assert (absent["state"], absent["advice"]) == ("broken", "pip install 'crossgate[remote]'")
    assert "secret-5" not in json.dumps(found)


def test_warnings_are_on_stderr_and_in_the_json(run: Any, tmp_path: Path, candidates: Path) -> None:
    profile, policy = tmp_path / "profile.json", tmp_path / "policy.json"
    profile.write_text(json.dumps(profile_values(Profile())))
    thresholds = Warnings(flat_scores=1e6, weak_rerank_score=1e6)
    policy.write_text(policy_text(Policy(warnings=thresholds)))
    options = ("--profile", profile, "--policy", policy, "--json")
    done = run("rerank", "how many nodes", candidates, *options)
    assert done.code == 0
    codes = [warning["code"] for warning in checked(done, "result")["warnings"]]
    assert codes == ["flat_scores", "weak_retrieval"]
    lines = [rf"crossgate: warning\[{code}\]: [^\n]+\n" for code in codes]
    assert re.fullmatch("".join(lines), done.err)


def test_changed_model_file_is_refused(run: Any, tmp_path: Path, candidates: Path) -> None:
    folder = tmp_path / "cache" / "models" / "ms-marco-minilm-l6-v2"
    (folder / "onnx").mkdir(parents=True)
    (folder / "onnx" / "model.onnx").write_bytes(b"not the model")
    (folder / "tokenizer.json").write_text("{}")
    variables = {"CROSSGATE_CACHE": str(tmp_path / "cache")}
    done = run("models", "verify", "--json", variables=variables)
    assert done.code == 3
    bad = [file for file in checked(done, "models_verify")["files"] if not file["ok"]]
    assert {file["model"] for file in bad} == {"ms-marco-minilm-l6-v2"}
    assert all(file["detail"] for file in bad)
    assert "ALTERED" in run("models", "verify", variables=variables).out
    sick = run("doctor", "--json", variables=variables)
    assert sick.code == 3
    assert "broken" in [check["state"] for check in checked(sick, "doctor")["checks"]]
    # It is refused if it is named; the bundled model, which is the default, needs no cache.
    rerank = ("rerank", "how many nodes", candidates, "--json")
    named = run(*rerank, "--reranker", "ms-marco-minilm-l6-v2", variables=variables)
    assert (named.code, named.out) == (2, "")
    assert "crossgate models pull ms-marco-minilm-l6-v2" in named.err
    values = checked(run(*rerank, variables=variables), "result")
    assert (values["stage"], values["degraded"]) == (2, [])


# Format of the output.


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    from crossgate import Document

    path = tmp_path / "odd.cgx"
    Index.build(
        [
            Document(id="long-" * 40, title="A title " * 30, text="needle and words " * 40),
            Document(id="unbroken", title="x" * 300, text="needle" + "x" * 300),
            Document(
                id="\x1b[31mred", title="\x1b[2Jclear", text="needle \x1b]0;title\x07 \x9b31m"
            ),
            Document(id="two\nlines", title="two\r\nlines", text="needle\n\n\tline"),
            Document(id="umlaut-ü", title="Übersetzer …", text="nadel needle naïve"),
        ],
        embedder=None,
    ).save(path)
    return path


@pytest.mark.parametrize(
    "arguments",
    [
        ["demo"],
        ["route", "needle words", "--limit", "9"],
        ["route", "needle words", "--limit", "9", "--explain"],
        ["models", "list"],
        ["doctor"],
        ["--help"],
        ["route", "--help"],
    ],
    ids=" ".join,
)
def test_output_lines_are_plain_and_short(run: Any, odd: Path, arguments: list[str]) -> None:
    if "needle words" in arguments:
        arguments = [*arguments, "-i", str(odd), "--reranker", "none"]
    shown = run(*arguments, variables={"COLUMNS": "100", "CROSSGATE_CACHE": "/c"})
    assert shown.code == 0, shown.err
    lines = shown.out.split("\n")
    controls = [
        character for line in lines for character in line if unicodedata.category(character) == "Cc"
    ]
    assert controls == []
    assert [line for line in lines if len(line) > 100] == []


@pytest.mark.parametrize(
    ("profile", "policy", "shown"),
    [
        (Profile(), Policy(), "none, the gate is off"),
        (Profile(), Policy(rerank_min=0.0), "none, the gate is off"),
        (Profile(winner=Winner(agreed=0.0)), Policy(), "agreed 0"),
        (
            Profile(answer=Answer(rerank_threshold=0.0)),
            Policy(lexical=Lexical(score=0.0, margin=0.0)),
            "rerank_threshold 0, lexical_score 0, lexical_margin 0",
        ),
        (
            Profile(answer=Answer(threshold=0.5), winner=Winner(agreed=0.0, disagreed=0.25)),
            Policy(),
            "threshold 0.5, agreed 0, disagreed 0.25",
        ),
    ],
    ids=["nothing", "no rule of the gate", "a winner", "words alone", "an answer"],
)
def test_explain_shows_the_active_thresholds(
    run: Any, words: Path, tmp_path: Path, profile: Profile, policy: Policy, shown: str
) -> None:
    fitted, chosen = tmp_path / "profile.json", tmp_path / "policy.json"
    fitted.write_text(json.dumps(profile_values(profile)))
    chosen.write_text(policy_text(policy))
    arguments = ["route", "merge pdf", "-i", words, "--profile", fitted, "--policy", chosen]
    lines = run(*arguments, "--explain", "--reranker", "none").out.splitlines()
    assert [line for line in lines if line.startswith("thresholds")] == [f"thresholds  {shown}"]


def test_wide_characters_count_as_two_columns(run: Any, tmp_path: Path) -> None:
    from crossgate import Document

    path = tmp_path / "wide.cgx"
    text = "清理混亂的表格檔案 " * 30
    Index.build([Document(id="清理" * 30, text=text)], embedder=None).save(path)
    shown = run("route", "清理表格", "-i", path, "--explain", "--reranker", "none")
    assert shown.code == 0
    for line in shown.out.splitlines():
        wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in line)
        assert len(line) + wide <= 100, line


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="this system has no terminals")
@pytest.mark.parametrize("no_color", [False, True])
def test_colours_are_used_only_on_terminals(home: Path, words: Path, no_color: bool) -> None:
    ours, theirs = os.openpty()
    variables = {"NO_COLOR": "1"} if no_color else {}
    with subprocess.Popen(
        [CROSSGATE, "route", "merge pdf", "-i", words, "--reranker", "none"],
        stdout=theirs,
        stderr=subprocess.PIPE,
        env=environment(home, **variables),
    ) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                more = os.read(ours, 65_536)
            except OSError:  # Linux: the other end is closed
                break
            if not more:
                break
            shown += more
        os.close(ours)
    assert process.returncode == 0
    assert b"pdf-toolkit" in shown
    assert (b"\x1b[" in shown) != no_color


@pytest.mark.parametrize("lines", [0, 1])  # read before it is closed, as `head -1` does
@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["models", "list"], ["--json"], ["--explain"]],
    ids=" ".join,
)
def test_closed_pipe_exits_with_0(
    home: Path, tmp_path: Path, arguments: list[str], lines: int
) -> None:
    many = tmp_path / "many.jsonl"
    many.write_text("".join(json.dumps(f"red {number}") + "\n" for number in range(1_000)))
    if arguments[0] in ("--json", "--explain"):
        arguments = ["rerank", "red", str(many), "--reranker", "none", *arguments]
    with subprocess.Popen(
        [CROSSGATE, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(home),
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert all(process.stdout.readline() for _ in range(lines))
        process.stdout.close()
        errors = process.stderr.read()
    assert (process.returncode, errors) == (0, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_full_disk_exits_with_3(home: Path, words: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [CROSSGATE, "route", "merge pdf", "-i", words, "--reranker", "none"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(home),
            check=False,
        )
    # Not 1, which means that nothing is relevant.
    assert done.returncode == 3
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("closed", ["2>&-", ">&-"])
def test_index_works_with_closed_stdout_or_stderr(run: Any, tmp_path: Path, closed: str) -> None:
    skills(tmp_path / "skills")
    done = run(
        *["index", "skills", "-o", "out.cgx", "--embedder", "none"],
        prefix=["sh", "-c", f'exec "$0" "$@" {closed}'],
    )
    assert (done.code, "skipped" in done.err) == (0, False)
    assert len(Index.open(tmp_path / "out.cgx")) == len(LIBRARY)


def test_closed_stdin_is_refused(run: Any) -> None:
    done = run("rerank", "q", prefix=["sh", "-c", 'exec "$0" "$@" <&-'])
    assert (done.code, done.error) == (2, "source_missing")


def test_closed_stderr_does_not_mix_messages_into_the_json(run: Any, tmp_path: Path) -> None:
    """Output for a closed stream must not be written to the other stream."""
    (tmp_path / "one.jsonl").write_text('{"text": "red fox"}\n')
    done = run(
        *["rerank", "fox", "one.jsonl", "--json", "--reranker", "none"],
        prefix=["sh", "-c", 'exec "$0" "$@" 2>&-'],
    )
    assert json.loads(done.out)["degraded"][0]["code"] == "no_profile"


# Untrusted text.


@given(st.text() | st.text(alphabet="\x1b[0m31;a\u202e\ud800\n\x9b\u2028"))
def test_output_contains_no_control_characters(text: str) -> None:
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
        printing.show(text)
        printing.say(text)
        printing.show(printing.paint(printing.plain(text), "31"))
    shown = stream.getvalue()
    assert [
        character for character in shown if character != "\n" and not character.isprintable()
    ] == []
    assert stream.getvalue().count("\n") == text.count("\n") + 3


def test_only_paint_prints_escape_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(printing, "is_terminal", lambda stream: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream):
        printing.show(f"\x1b[31mmine\x1b[0m {printing.paint('ours', '1')}")
    assert stream.getvalue() == " [31mmine [0m \x1b[1mours\x1b[0m\n"


NASTY = "a\x1b[2J\x1b]0;t\x07\u202eb\r"


@pytest.mark.parametrize(
    "command",
    [
        ["doctor"],
        ["index", f"skills/{NASTY}", "-o", f"{NASTY}.cgx", "--embedder", "none"],
        ["index", "absent" + NASTY, "-o", "out.cgx"],
        ["eval", NASTY, "--modes", "never", "--embedder", "none"],
        ["replay", f"{NASTY}.jsonl"],
        ["feedback", "used", NASTY, "--decision", NASTY, "--log", f"{NASTY}.jsonl"],
        ["route", "-i", "out.cgx", NASTY, "--profile", NASTY],
        ["models", "pull", NASTY],
        ["bench", NASTY],
        ["rerank", "fox", "hen", "--limit", "2", NASTY, "x"],
    ],
    ids=lambda command: " ".join(command[:2]).replace(NASTY, "..."),
)
def test_untrusted_text_is_printed_without_control_characters(
    run: Any, tmp_path: Path, command: list[str]
) -> None:
    skills(tmp_path / "skills", {NASTY: "Cleans files"})
    (tmp_path / "skills" / "broken").mkdir()
    (tmp_path / "skills" / NASTY / "x\x1b[31m").mkdir()
    (tmp_path / "skills" / NASTY / "x\x1b[31m" / "SKILL.md").write_text("no front matter")
    (tmp_path / f"{NASTY}.jsonl").write_text("malformed \x1b[31m\n")
    dataset = tmp_path / NASTY
    (dataset / "qrels").mkdir(parents=True)
    rows = [{"_id": f"d{NASTY}", "text": "red fox"}, {"_id": "e", "text": "hen"}]
    (dataset / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    query = {"_id": "q", "text": f"fox {NASTY}", "metadata": {"kind": NASTY}}
    (dataset / "queries.jsonl").write_text(json.dumps(query) + "\nbroken \x1b[31m\n")
    (dataset / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\te\t1\n")
    done = run(*command, variables={"CROSSGATE_CACHE": str(tmp_path / NASTY)})
    assert done.out + done.err
    printed = (done.out + done.err).replace("\n", "")
    assert [character for character in printed if not character.isprintable()] == []
    assert "Traceback" not in done.err


# Bad input.

ROUTE, RERANK = ("route", "-i", "words.cgx", "q"), ("rerank", "q")
INDEX = ("index", "text.txt", "-o", "out.cgx")
BAD: dict[str, tuple[tuple[str | bytes, ...], str]] = {
    "no such index": (("route", "-i", "absent.cgx", "q"), "index_missing"),
    "a folder for an index": (("route", "-i", ".", "q"), "index_unreadable"),
    "no index at all": (("route", "-i", "text.txt", "q"), "not_an_index"),
    "half an index": (("route", "-i", "half.cgx", "q"), "index_truncated"),
    "a query in bytes": (("route", "-i", "words.cgx", b"caf\xe9"), "invalid_text"),
    "a limit of 0": ((*ROUTE, "--limit", "0"), "out_of_range"),
    "an id in bytes": ((*ROUTE, "--deny", b"\xff"), "invalid_text"),
    "no such profile": ((*ROUTE, "--profile", "absent.json"), "profile_missing"),
    "a profile that is none": ((*ROUTE, "--profile", "one.jsonl"), "profile_malformed"),
    "an unknown reranker": ((*ROUTE, "--reranker", "no-such-model"), "unknown_model"),
    "an incomplete model": ((*RERANK, "one.jsonl", "--reranker", "./model"), "model_incomplete"),
    "an unknown embedder": ((*INDEX, "--embedder", "no-such-model"), "unknown_model"),
    "an unknown language": ((*INDEX, "--language", "klingon"), "out_of_range"),
    "no such source": (("index", "absent", "-o", "out.cgx"), "source_missing"),
    "an empty source": (("index", "empty", "-o", "out.cgx"), "no_documents"),
    "a source of an unknown kind": (("index", "half.cgx", "-o", "out.cgx"), "source_unknown"),
    "no such candidates": ((*RERANK, "absent.jsonl"), "source_missing"),
    "a folder of candidates": ((*RERANK, "."), "source_missing"),
    "candidates in bytes": ((*RERANK, "bytes.jsonl"), "invalid_text"),
    "candidates that are not JSON": ((*RERANK, "text.txt"), "malformed_candidate"),
    "two candidates of one id": ((*RERANK, "twice.jsonl"), "duplicate_id"),
    "an empty query to rerank": (("rerank", "", "one.jsonl"), "empty_query"),
    "an unknown model to pull": (("models", "pull", "no-such-model"), "unknown_model"),
    "an unknown model to verify": (("models", "verify", "no-such-model"), "unknown_model"),
}


@pytest.fixture
def files(tmp_path: Path, words: Path) -> Path:
    (tmp_path / "text.txt").write_text("some text\n")
    (tmp_path / "half.cgx").write_bytes(words.read_bytes()[:99])
    (tmp_path / "one.jsonl").write_text('{"text": "red"}\n')
    (tmp_path / "twice.jsonl").write_text('{"id": 1, "text": "red"}\n{"id": 1, "text": "b"}\n')
    (tmp_path / "bytes.jsonl").write_bytes(b'{"text": "caf\xe9"}\n')
    (tmp_path / "empty").mkdir()
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.onnx").write_bytes(b"")
    return tmp_path


@pytest.mark.parametrize("kind", BAD)
def test_bad_input_prints_one_line_and_exits_with_2(run: Any, files: Path, kind: str) -> None:
    arguments, code = BAD[kind]
    before = sorted(files.iterdir())
    done = run(*arguments, "--json")
    assert (done.code, done.out, done.error) == (2, "", code)
    assert sorted(files.iterdir()) == before


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nonsense"],
        ["models"],
        ["index", "text.txt"],
        ["route", "q"],
        ["route", "-i", "words.cgx", "q", "--limit", "two"],
        ["index", "text.txt", "-o", "out.cgx", "--kind", "pictures"],
        ["demo", "surplus"],
    ],
    ids=lambda arguments: " ".join(arguments) or "nothing",
)
def test_wrong_usage_exits_with_2(run: Any, files: Path, arguments: list[str]) -> None:
    done = run(*arguments)
    assert (done.code, done.out) == (2, "")
    assert "usage: crossgate" in done.err
    assert "Traceback" not in done.err


def test_query_of_a_megabyte_is_cut(run: Any, words: Path) -> None:
    done = run("route", "-i", words, "-", stdin=b"word " * 210_000)
    assert done.code == 1
    assert "the query has 1,050,000 characters: only the first 65,536 are read" in done.err


def test_nul_bytes_in_a_query_are_accepted(run: Any, words: Path) -> None:
    done = run("route", "-i", words, "-", "--reranker", "none", stdin=b"merge\0pdf")
    assert done.code == 0
    assert run("route", "-i", words, "-", stdin=b"\0\0").code == 1


@pytest.mark.parametrize("query", ["", " \t", "-"])
def test_empty_prompt_is_answered(run: Any, words: Path, query: str) -> None:
    done = run("route", "-i", words, query, "--json")
    assert done.code == 1
    assert json.loads(done.out)["selected"] == []
    assert "warning[empty_query]: the query is empty" in done.err


def test_stdin_that_is_not_utf8_is_refused(run: Any, words: Path) -> None:
    done = run("route", "-i", words, "-", stdin=b"caf\xe9")
    assert (done.code, done.out, done.error) == (2, "", "invalid_text")
    assert "0xe9" in done.err
    done = run("rerank", "q", stdin=b'"\xff"\n')
    assert (done.code, done.error) == (2, "invalid_text")


def test_file_name_that_is_not_utf8_is_accepted(run: Any, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("some text\n")
    arguments = ["index", "text.txt", "-o", b"caf\xe9.cgx", "--embedder", "none"]
    done = run(*arguments, variables={"PYTHONIOENCODING": "utf-8:strict"})
    assert done.code == 0
    assert done.err.startswith("crossgate: without vectors, ")
    checked(run(*arguments, "--json"), "index")
    for arguments in (["route", "-i", b"\xe9.cgx", "q"], ["index", b"\xe9", "-o", "out.cgx"]):
        done = run(*arguments)
        assert (done.code, done.out) == (2, "")
        assert done.error in ("index_missing", "source_missing")


# Existing files.


@pytest.mark.parametrize("content", [b"precious notes\n", b"PK\x03\x04 zip", b"\x89CGX"])
def test_file_that_is_not_an_index_is_not_overwritten(
    run: Any, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "text.txt").write_text("some text\n")
    precious = tmp_path / "precious"
    precious.write_bytes(content)
    done = run("index", "text.txt", "-o", precious, "--embedder", "none")
    assert (done.code, done.out, done.error) == (2, "", "not_an_index")
    assert "precious" in done.err
    assert precious.read_bytes() == content


def test_empty_file_and_damaged_index_are_overwritten(
    run: Any, tmp_path: Path, words: Path
) -> None:
    (tmp_path / "text.txt").write_text("some text\n")
    for content in (b"", words.read_bytes()[:-1], words.read_bytes() + b"x"):
        (tmp_path / "out.cgx").write_bytes(content)
        done = run("index", "text.txt", "-o", "out.cgx", "--embedder", "none")
        assert (done.code, "skipped" in done.err) == (0, False)
        assert len(Index.open(tmp_path / "out.cgx")) == 1


def test_unwritable_output_is_refused(run: Any, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("some text\n")
    (tmp_path / "folder").mkdir()
    for output in ("absent/out.cgx", "text.txt/out.cgx", "folder"):
        # Refused before any source is read and embedded.
        for source in ("text.txt", "no-such-source"):
            done = run("index", source, "-o", output, "--embedder", "none")
            assert (done.code, done.out, done.error) == (3, "", "index_unwritable")
            assert f"cannot write the index {output}: " in done.err
            assert str(tmp_path) not in done.err
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["folder", "text.txt"]


@pytest.mark.skipif(os.name != "posix", reason="this system has other signals")
@pytest.mark.parametrize("earlier", [False, True])
def test_ctrl_c_during_indexing(home: Path, tmp_path: Path, words: Path, earlier: bool) -> None:
    # The command, with a message when the third document is embedded. A shell may make its
    # background processes, and so this one, ignore Ctrl-C.
    script = """
        import signal, sys
        from crossgate import _cli as cli
        from crossgate._retrieval import embedding
        signal.signal(signal.SIGINT, signal.default_int_handler)
        loaded = embedding.OnnxEmbedder._loaded
        def with_message(embedder):
            run, texts = loaded(embedder), []
            def embed(text):
                texts.append(text)
                if len(texts) == 3:
                    print("running", file=sys.stderr, flush=True)
                return run(text)
            return embed
        embedding.OnnxEmbedder._loaded = with_message
        cli.main(sys.argv[1:])
    """
    output = tmp_path / "out.cgx"
    if earlier:
        shutil.copy(words, output)
    source = tmp_path / "many.jsonl"
    rows = [json.dumps({"text": f"{number} " + "word " * 300}) for number in range(6_000)]
    source.write_text("\n".join(rows))
    before = sorted(tmp_path.iterdir())
    process = subprocess.Popen(
        [
            *(sys.executable, "-c", textwrap.dedent(script)),
            *("index", str(source), "-o", str(output)),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(home),
    )
    assert process.stderr is not None
    assert process.stderr.readline() == "running\n"
    process.send_signal(signal.SIGINT)
    try:
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert (process.returncode, out) == (130, "")
    assert err == "crossgate: interrupted, no partial output remains\n"
    assert sorted(tmp_path.iterdir()) == before
    if earlier:
        assert output.read_bytes() == words.read_bytes()


@pytest.mark.parametrize(
    ("module", "command"),
    [
        ("argparse", "demo"),
        ("crossgate._cli.output", "demo"),
        ("crossgate._core", "demo"),
        ("crossgate._decision.cascade", "demo"),
        ("crossgate._values.results", "demo"),
        ("onnxruntime", "demo"),
        ("crossgate._cli.decision_output", "route -i absent.cgx q"),
        ("yaml", "index skills -o out.cgx --embedder none"),
    ],
)
def test_ctrl_c_during_an_import(run: Any, tmp_path: Path, module: str, command: str) -> None:
    skills(tmp_path / "skills")
    # Python runs this file at startup.
    hook = f"""
        import sys

        class Interrupt:
            def find_spec(self, name, path=None, target=None):
                if name == {module!r}:
                    raise KeyboardInterrupt

        sys.meta_path.insert(0, Interrupt())
    """
    (tmp_path / "sitecustomize.py").write_text(textwrap.dedent(hook))
    variables = {"PYTHONPATH": before_python_path(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    done = run(*command.split(), variables=variables)
    assert (done.code, done.out) == (130, "")
    assert done.err == "crossgate: interrupted, no partial output remains\n"
    assert {path.name for path in tmp_path.iterdir()} == {"skills", "sitecustomize.py"}


@pytest.mark.skipif(os.name != "posix", reason="this system has other signals")
def test_ctrl_c_at_exit_ends_by_the_signal(run: Any, tmp_path: Path) -> None:
    hook = """
        import atexit, os, signal
        signal.signal(signal.SIGINT, signal.default_int_handler)
        atexit.register(os.kill, os.getpid(), signal.SIGINT)
    """
    (tmp_path / "sitecustomize.py").write_text(textwrap.dedent(hook))
    done = run("--version", variables={"PYTHONPATH": before_python_path(tmp_path)})
    assert (done.code, done.err) == (-signal.SIGINT, "")
    assert done.out.startswith("crossgate ")


# Environments.

HOMES: dict[str, dict[str, str]] = {
    "a folder that does not exist": {"HOME": "/nonexistent/home"},
    "a file": {"HOME": str(Path(__file__))},
    "an empty name": {"HOME": ""},
    "a cache below a file": {"CROSSGATE_CACHE": f"{__file__}/cache"},
}


@pytest.mark.parametrize("kind", HOMES)
def test_commands_work_with_an_unusable_home_folder(
    run: Any, kind: str, skills_index: Path, candidates: Path
) -> None:
    variables = HOMES[kind]
    for arguments in (
        ["route", "-i", skills_index, "merge two pdf files"],
        ["rerank", "how many nodes does staging have", candidates],
        ["doctor"],
    ):
        done = run(*arguments, variables=variables)
        assert (done.code, done.err) == (0, ""), arguments


def test_commands_work_without_a_network(
    run: Any, skills_index: Path, candidates: Path, tmp_path: Path
) -> None:
    prefixes = (["unshare", "--net"], ["unshare", "--map-root-user", "--net"])
    for prefix in prefixes:
        if (
            shutil.which("unshare")
            and not subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode
        ):
            break
    else:
        pytest.skip("this system does not let a process take its network away")
    skills(tmp_path / "skills", dict(list(LIBRARY.items())[:2]))
    for arguments in (
        ["demo"],
        ["index", "skills", "-o", "out.cgx"],
        ["route", "-i", skills_index, "merge two pdf files"],
        ["rerank", "how many nodes does staging have", candidates],
        ["doctor"],
    ):
        done = run(*arguments, prefix=prefix)
        assert (done.code, done.err) == (0, ""), arguments


@pytest.mark.parametrize("count", ["0", "-1", "many", "1.5"])
def test_invalid_number_of_threads_is_refused(
    run: Any, tmp_path: Path, skills_index: Path, count: str
) -> None:
    source = skills_index.parent / "skills"
    done = run("index", source, "-o", "out.cgx", variables={"CROSSGATE_THREADS": count})
    assert (done.code, done.out, done.error) == (2, "", "out_of_range")
    assert f"'{count}'" in done.err
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_to_the_home_folder(
    run: Any, tmp_path: Path, skills_index: Path, candidates: Path
) -> None:
    empty = tmp_path / "home"
    empty.mkdir()
    for arguments in (
        ["demo"],
        ["rerank", "how many nodes does staging have", candidates],
        ["models", "list"],
        ["doctor"],
    ):
        assert run(*arguments, variables={"HOME": str(empty)}).code == 0
    # Includes onnxruntime, which would keep a file for its telemetry.
    assert list(empty.rglob("*")) == []


def test_a_thousand_duplicates_are_reported_in_a_few_lines(run: Any, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"id": "a", "text": "x"}\n' * 1_000)
    done = run("index", rows, "-o", "out.cgx", "--embedder", "none")
    assert done.code == 0
    *skipped, more, without_vectors = done.err.splitlines()
    assert len(skipped) == 5
    assert more.startswith("crossgate: and 994 more of ")
    assert without_vectors.startswith("crossgate: without vectors, ")


def test_hook_call_as_query_is_refused(run: Any, words: Path) -> None:
    call = json.dumps({"hook_event_name": "UserPromptSubmit", "prompt": "merge pdf"})
    done = run("route", "-i", words, "-", stdin=call.encode())
    assert (done.code, done.out) == (2, "")
    assert "error[hook_call]" in done.err
    assert "crossgate hook claude" in done.err
    # Other JSON is an ordinary query.
    assert run("route", "-i", words, '{"merge": "pdf"}').code in (0, 1)


# Feedback on the last decision of a log.


@pytest.mark.parametrize(
    ("judgement", "ids", "used"),
    [
        ("right", [], ("pdf-toolkit",)),
        ("wrong", [], ()),
        ("wrong", ["csv-cleaner", "docx"], ("csv-cleaner", "docx")),
    ],
)
def test_feedback_marks_the_last_decision(
    run: Any, words: Path, tmp_path: Path, judgement: str, ids: list[str], used: tuple[str, ...]
) -> None:
    log = tmp_path / "log.jsonl"
    for prompt in ("convert a csv file", "merge two pdf files"):
        asked = run(
            "route", "-i", words, "--reranker", "none", "--log", log, "--limit", "1", prompt
        )
        assert asked.code == 0
    done = run("feedback", judgement, *ids, variables={"CROSSGATE_LOG": str(log)})
    assert (done.code, done.err) == (0, "")
    _, decided, noted = read_log(log)
    assert isinstance(decided, LoggedDecision)
    assert isinstance(noted, LoggedUse)
    assert decided.selected == ("pdf-toolkit",)
    assert (noted.decision, noted.used) == (decided.decision, used)
    again = json.loads(run("feedback", "right", "--json", "--log", log).out)
    assert again["used"] == ["pdf-toolkit"]
    uses = [entry for entry in read_log(log) if isinstance(entry, LoggedUse)]
    assert [use.judged for use in uses] == [True, True]


def test_feedback_without_a_decision_is_refused(run: Any, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    assert run("feedback", "right").error == "out_of_range"
    assert run("feedback", "right", "--log", "absent.jsonl").error == "source_missing"
    assert run("feedback", "right", "--log", "empty.jsonl").error == "no_decisions"


def test_long_work_prints_a_line_each_minute_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [1_000.0]
    monkeypatch.setattr("crossgate._support.progress.monotonic", lambda: clock[0])
    for seconds in in_progress(range(0, 150, 10), "routing"):
        clock[0] = 1_000.0 + seconds
    lines = ["routing: 7 of 15", "routing: 13 of 15"]
    assert capsys.readouterr().err == "".join(f"crossgate: {line}\n" for line in lines)


def test_index_reports_progress_in_a_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("crossgate._support.progress._LINE_SECONDS", 0)
    folder, output = skills(tmp_path / "skills"), tmp_path / "skills.cgx"
    assert command_line(["index", str(folder), "-o", str(output)]) == 0
    assert re.search(r"^crossgate: embedding: \d+ of \d+$", capsys.readouterr().err, re.MULTILINE)


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_index_shows_progress_on_a_terminal_of_unknown_width(tmp_path: Path) -> None:
    import pty

    texts = "\n".join(
        json.dumps({"id": str(at), "text": f"{at} " + "merge the files of a report " * 40})
        for at in range(50)
    )
    (tmp_path / "texts.jsonl").write_text(texts)
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [CROSSGATE, "index", "texts.jsonl", "-o", "texts.cgx"],
        cwd=tmp_path,
        env=environment(tmp_path),
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # raised at the end of the terminal
            while data := os.read(ours, 4096):
                shown += data
        assert process.wait() == 0
    os.close(ours)
    assert b"embedding:" in shown
    assert b"/50" in shown


def test_output_to_an_ascii_pipe_succeeds(run: Any, odd: Path) -> None:
    arguments = ["route", "nadel", "-i", odd, "--reranker", "none"]
    for variables in (
        {"PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    ):
        shown = run(*arguments, variables=variables)
        assert (shown.code, "Traceback" in shown.err) == (0, False), shown.err
        assert "umlaut-" in shown.out
        assert checked(run(*arguments, "--json", variables=variables), "result")


def test_no_folder_for_temporary_files_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from crossgate._cli.labelled import runs_folder

    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/proc/nowhere"])
    with pytest.raises(SourceError, match="set TMPDIR") as caught, runs_folder(None):
        pass
    assert caught.value.code == "unwritable"


def test_query_may_follow_allow_and_deny(run: Any, words: Path) -> None:
    for option, ids in (("--allow", {"translator"}), ("--deny", set(LIBRARY) - {"translator"})):
        arguments = ["route", "-i", words, "--reranker", "none", "--json", option, "translator"]
        values = checked(run(*arguments, "translate text"), "result")
        assert {hit["id"] for hit in values["hits"]} == ids
