"""Tests of `crossgate usage` on a synthetic month of logs and transcripts whose truth is known."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from crossgate._agents.hook.agents import prompt_digest
from crossgate._agents.hook.session_state import read_hook_log
from crossgate._agents.learning.adoption import measure_usage
from crossgate._sources.transcripts import Turn, read_turns, transcripts_below
from hook_home import GIT, PDF, Home, furnished

START = datetime(2026, 10, 26, 8, tzinfo=UTC)
SKILLS = ["pdf-toolkit", "csv-cleaner", "tools:translator", "git-history"]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return furnished(tmp_path / "home")


class Month:
    """Four weeks of prompts, each with a suggestion or none and with opened skills or none."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.truth: Counter[str] = Counter()
        self.by_skill: dict[str, Counter[str]] = {skill: Counter() for skill in SKILLS}
        self.log: list[dict[str, Any]] = []
        self.transcript: list[dict[str, Any]] = []

    def prompt(self, number: int, draw: random.Random) -> None:
        """Add a prompt to log, transcript and truth."""
        at = START + timedelta(hours=2.5 * number)
        text = f"task {number % 200}"  # a third of the texts occur twice
        suggested = draw.choice(SKILLS) if draw.random() < 0.4 else ""
        opened = draw.choice([suggested, draw.choice(SKILLS), ""])
        entry = {"time": f"{at:%Y-%m-%dT%H:%M:%SZ}", "agent": "claude", "ms": 80}
        entry["prompt"] = prompt_digest(text)
        if suggested:
            entry |= {"outcome": draw.choice(["injected", "shadow"]), "names": [suggested]}
            entry |= {"form": "pick", "chars": 300, "ids": [suggested]}
        else:
            entry |= {"outcome": "nothing", "reason": "improbable"}
        self.log.append(entry)
        self.transcript += spoken(text, at + timedelta(seconds=2), opened)
        if opened and opened == suggested:
            self.truth["used"] += 1
            self.by_skill[suggested]["used"] += 1
        else:
            for name, kind in ((suggested, "unused"), (opened, "unprompted")):
                if name:
                    self.truth[kind] += 1
                    self.by_skill[name][kind] += 1
        self.truth["neither"] += not (suggested or opened)


def spoken(text: str, at: datetime, opened: str) -> Iterator[dict[str, Any]]:
    stamp = f"{at:%Y-%m-%dT%H:%M:%S.123Z}"
    yield {"type": "user", "timestamp": stamp, "message": {"role": "user", "content": text}}
    if opened:
        block = {"type": "tool_use", "name": "Skill", "input": {"skill": opened}}
        yield {"type": "assistant", "timestamp": stamp, "message": {"content": [block]}}


def write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture
def month(tmp_path: Path) -> Month:
    month = Month(tmp_path)
    draw = random.Random(3)
    for number in range(300):
        month.prompt(number, draw)
    return month


def test_a_month_is_counted_as_it_was(month: Month, tmp_path: Path) -> None:
    write_lines(tmp_path / "projects" / "a.jsonl", month.transcript)
    turns = [turn for path in transcripts_below(tmp_path / "projects") for turn in read_turns(path)]
    report = measure_usage(month.log, turns)
    assert (report.logged, len(report.prompts), report.unlogged) == (300, 300, 0)
    assert report.total == month.truth
    for skill, counts in month.by_skill.items():
        assert +Counter(report.skills[skill]) == +counts
    assert sum(week["used"] for week in report.weeks.values()) == month.truth["used"]
    assert list(report.weeks) == [f"2026-W{week}" for week in range(44, 49)]
    assert report.shadow == sum(entry["outcome"] == "shadow" for entry in month.log)
    assert report.tokens == 75 * sum("chars" in entry for entry in month.log)


def turn(text: str, *opened: str, time: str = "") -> Turn:
    return Turn(path=Path("t.jsonl"), line=1, text=text, opened=opened, time=time)


def entry(text: str, outcome: str, *names: str, **more: Any) -> dict[str, Any]:
    values = {"prompt": prompt_digest(text), "outcome": outcome, "time": "2026-11-02T10:00:00Z"}
    return {**values, **({"names": list(names)} if names else {}), **more}


def test_names_match_without_the_plugin() -> None:
    report = measure_usage([entry("a", "injected", "plug:Pdf")], [turn("a", "pdf")])
    assert (report.total["used"], report.total["unprompted"]) == (1, 0)


def test_skills_of_two_plugins_are_two_skills() -> None:
    log = [entry("a", "injected", "docs:review"), entry("b", "injected", "docs:review")]
    report = measure_usage(log, [turn("a", "code:review"), turn("b", "review")])
    assert (report.total["used"], report.total["unused"], report.total["unprompted"]) == (1, 1, 1)
    assert report.skills["docs:review"]["unused"] == 1
    assert report.skills["code:review"]["unprompted"] == 1


def test_white_space_around_a_prompt_does_not_matter() -> None:
    report = measure_usage([entry(" a\n", "injected", "pdf")], [turn("a", "pdf")])
    assert (len(report.prompts), report.total["used"]) == (1, 1)


def test_a_shortlist_counts_each_skill_and_has_its_own_row() -> None:
    log = [
        entry("a", "injected", "pdf", "csv", form="shortlist"),
        entry("b", "injected", "pdf", form="pick"),
    ]
    report = measure_usage(log, [turn("a", "csv"), turn("b")])
    assert (report.forms["shortlist"]["used"], report.forms["shortlist"]["unused"]) == (1, 1)
    assert (report.forms["pick"]["used"], report.forms["pick"]["unused"]) == (0, 1)


def test_a_skill_that_was_suggested_shortly_before_is_not_an_unprompted_use() -> None:
    log = [entry("again", "skipped", "pdf", reason="seen")]
    report = measure_usage(log, [turn("again", "pdf", "csv")])
    assert (report.total["unprompted"], report.skills["csv"]["unprompted"]) == (1, 1)
    report = measure_usage(log, [turn("again", "pdf")])
    assert (report.total["unprompted"], report.total["neither"]) == (0, 0)


def test_prompts_far_apart_in_time_are_not_matched() -> None:
    far = turn("go on", "pdf", time="2026-11-02T12:00:00Z")
    near = turn("go on", "csv", time="2026-11-02T10:00:30+00:00")
    report = measure_usage([entry("go on", "nothing")], [far, near])
    assert (len(report.prompts), report.unlogged, list(report.skills)) == (1, 1, ["csv"])


def test_a_skill_that_is_never_used_gets_a_proposal() -> None:
    log = [entry(str(number), "injected", "pdf") for number in range(5)]
    report = measure_usage(log, [turn(str(number)) for number in range(5)])
    ((name, text),) = report.proposals()
    assert name == "pdf"
    assert all(word in text for word in ("lint", "teach", "--deny pdf"))
    used = measure_usage(log, [turn(str(number), *["pdf"][:number]) for number in range(5)])
    assert list(used.proposals()) == []


def test_damaged_entries_are_skipped() -> None:
    log: list[dict[str, Any]] = [
        {"outcome": "injected"},
        {"outcome": "injected", "prompt": 3},
        entry("a", "injected", time=None),
        entry("b", "injected", chars="x", form=3),
        {**entry("c", "injected"), "names": [1, None, "pdf"], "ids": "x"},
    ]
    report = measure_usage(log, [turn("a"), turn("b"), turn("c", time="soon")])
    assert (report.logged, len(report.prompts)) == (3, 3)
    assert report.total["unused"] == 1


def test_the_command_measures_the_hook(home: Home, tmp_path: Path) -> None:
    assert home.run("usage").returncode == 1
    assert "hook install --shadow" in home.run("usage").stderr
    assert home.run("hook", "install").returncode == 0
    assert home.hook().context
    shadow = home.hook(home.call(GIT), "--shadow")
    assert (shadow.code, shadow.out, shadow.err) == (0, b"", "")
    assert (home.log[-1]["outcome"], home.log[-1]["names"]) == ("shadow", ["git-history"])
    assert PDF not in json.dumps(home.log)
    now = datetime.now(UTC)
    projects = home.path / ".claude" / "projects" / "x"
    lines = [*spoken(PDF, now, "pdf-toolkit"), *spoken(GIT, now, "")]
    write_lines(projects / "s.jsonl", [*lines, *spoken("thanks", now, "translator")])
    (projects / "damaged.jsonl").write_bytes(b'{"type": "user"\n\xff\n[1]\n')
    done = home.run("usage", "--json", "--prompts", "used")
    assert (done.returncode, done.stderr) == (0, "")
    values = json.loads(done.stdout)
    assert values["total"] == {"used": 1, "unused": 1, "unprompted": 0, "neither": 0}
    assert (values["logged"], values["matched"], values["unlogged"]) == (2, 2, 1)
    assert values["shadow"] == 1
    assert [prompt["text"] for prompt in values["prompts"]] == [PDF]
    shown = home.run("usage", "--prompts", "unused", "--skill", "git-history").stdout
    assert GIT in shown
    assert "withheld in shadow mode" in shown
    assert "cannot show" in shown
    assert PDF not in shown
    assert "would have got a skill (shadow mode)" in home.run("doctor").stdout


def test_errors_of_the_command(home: Home, tmp_path: Path) -> None:
    assert home.run("hook", "install").returncode == 0
    home.hook()
    done = home.run("usage")
    assert done.returncode == 0
    assert "no transcripts in" in done.stderr
    done = home.run("usage", "--transcripts", tmp_path / "missing")
    assert (done.returncode, done.stdout) == (2, "")
    assert "error[source_missing]" in done.stderr


def test_hostile_names_do_not_reach_the_terminal(home: Home, tmp_path: Path) -> None:
    home.hooks.mkdir(parents=True)
    write_lines(home.hooks / "log.jsonl", [entry("a", "injected", "a\x1b[31mb")])
    write_lines(tmp_path / "t.jsonl", [{"type": "user", "message": {"content": "a"}}])
    done = home.run("usage", "--transcripts", tmp_path / "t.jsonl")
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert list(read_hook_log(home.hooks))


def test_other_options_are_replayed_and_leave_no_trace(home: Home) -> None:
    asked = [(PDF, "pdf-toolkit"), (PDF, ""), ("thanks, that is all", ""), (GIT, "csv-cleaner")]
    for number, (text, opened) in enumerate(asked):  # each prompt in a session of its own
        lines = list(spoken(text, START + timedelta(hours=number), opened))
        write_lines(home.path / ".claude" / "projects" / f"{number}.jsonl", lines)
    installed = home.run("hook", "install")
    assert installed.returncode == 0
    assert "of your last 4 prompts, 3 would have got a skill, 1 of them" in installed.stdout
    low = home.run("hook", "install", "--min-confidence", "0.2")
    assert "--min-confidence 0.2 has no effect: the profile 'session'" in low.stderr
    assert home.run("hook", "install").stderr == installed.stderr == ""
    before = sorted(home.path.rglob("*"))
    wanted = ("--what-if", "--min-confidence 1", "--what-if", "--min-confidence 0")
    done = home.run("usage", *wanted, "--json")
    assert done.returncode == 0, done.stderr
    rows = {row["settings"]: row for row in json.loads(done.stdout)["what_if"]}
    assert list(rows) == ["in use", "--min-confidence 1", "--min-confidence 0"]
    assert rows["--min-confidence 1"]["shown"] == 0
    always = {"prompts": 4, "shown": 3, "followed": 1, "needless": 2, "missed": 1}
    assert {name: rows["--min-confidence 0"][name] for name in always} == always
    assert "--min-confidence 0 has no effect: the profile 'session' asks for 0.6" in done.stderr
    assert "--min-confidence 1" not in done.stderr
    assert sorted(home.path.rglob("*")) == before
    bad = home.run("usage", "--what-if", "--no-such-option 1")
    assert bad.returncode == 2
    assert "error[out_of_range]: --what-if" in bad.stderr
