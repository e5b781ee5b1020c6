"""Tests of `crossgate skills`: the list with its cost, and parking without losing a file."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from conftest import refused
from crossgate import CrossgateError
from crossgate._agents.hook.agents import AGENTS
from crossgate._agents.learning import parking
from crossgate._agents.learning.parking import BUDGETS, list_skills
from crossgate._sources.transcripts import Turn
from hook_home import PDF, SKILLS, Home, furnished


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return furnished(tmp_path / "home")


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def listed(home: Home, *arguments: str) -> dict[str, Any]:
    done = home.run("skills", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    values: dict[str, Any] = json.loads(done.stdout)
    return values


def test_the_list_has_tokens_uses_and_the_effect_of_the_budget(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(home.path))
    monkeypatch.setenv("CROSSGATE_CACHE", str(home.path / "cache"))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    monkeypatch.delenv("CLAUDE_PROJECT_DIR", raising=False)
    for number in range(30):
        home.skill(f"filler-{number:02}", "Handle an errand of the household. " * 12)
    home.skill("long", "word " * 1_000)
    turns = [
        Turn(path=Path("t"), line=1, text="x", opened=("pdf-toolkit",), time=f"2026-11-0{day}")
        for day in (1, 2)
    ]
    skills = {skill.name: skill for skill in list_skills(AGENTS["claude"], str(home.path), turns)}
    assert (skills["pdf-toolkit"].uses, skills["pdf-toolkit"].last_use) == (2, "2026-11-02")
    assert skills["pdf-toolkit"].shown == "full"
    expected = (len("pdf-toolkit") + len(SKILLS["pdf-toolkit"]) + 4 + 3) // 4
    assert skills["pdf-toolkit"].tokens == expected
    assert skills["long"].tokens <= (BUDGETS["claude"].description_chars + 10) / 4
    assert list(skills)[-1] == "pdf-toolkit"  # the least used come first
    shown = {skill.name: skill for skill in skills.values() if skill.shown == "full"}
    kept = sum(skill.tokens for skill in shown.values())
    names = sum(len(name) / 4 for name in skills if name not in shown)
    assert kept + names <= BUDGETS["claude"].chars / 4 + len(skills)
    assert 0 < len(shown) < len(skills)
    codex = list_skills(AGENTS["codex"], str(home.path), ())
    assert codex == []


def test_uses_of_two_plugins_are_apart(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(home.path))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    installed = {}
    for plugin in ("docs", "code"):
        home.skill("review", f"Review the {plugin}.", below=f"plugins/{plugin}")
        installed[f"{plugin}@shop"] = [{"installPath": str(home.path / "plugins" / plugin)}]
    path = home.path / ".claude/plugins/installed_plugins.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"plugins": installed}))
    opened = [("docs:review",), ("docs:review",), ("code:review",), ("csv-cleaner",)]
    turns = [Turn(path=Path("t"), line=1, text="x", opened=names) for names in opened]
    skills = {skill.name: skill for skill in list_skills(AGENTS["claude"], str(home.path), turns)}
    uses = {name: skill.uses for name, skill in skills.items() if skill.uses}
    assert uses == {"docs:review": 2, "code:review": 1, "csv-cleaner": 1}


def test_only_agents_that_are_here_are_listed(home: Home) -> None:
    assert [found["agent"] for found in listed(home)["agents"]] == ["claude"]
    (home.path / ".config/opencode").mkdir(parents=True)
    assert [found["agent"] for found in listed(home)["agents"]] == ["claude", "opencode"]


def test_the_first_parked_skill_does_not_silence_the_others(home: Home) -> None:
    assert home.run("hook", "install").returncode == 0
    assert home.run("skills", "park", "csv-cleaner").returncode == 0
    assert "- pdf-toolkit" in home.hook().context
    tried = home.run("hook", "try", "repair the broken quoting in this messy CSV file").stdout
    assert "skills-parked/csv-cleaner" in tried


def test_parking_is_reversible_and_the_hook_still_suggests_the_skill(home: Home) -> None:
    extra = home.path / ".claude/skills/pdf-toolkit/scripts/merge.py"
    extra.parent.mkdir()
    extra.write_bytes(b"\x00binary")
    extra.chmod(0o755)
    folder = home.path / ".claude/skills/pdf-toolkit"
    before = contents(folder)
    assert home.run("hook", "install").returncode == 0
    tokens = listed(home, "--agent", "claude")["agents"][0]["tokens"]

    tried = listed(home, "park", "pdf-toolkit", "--dry-run")
    assert folder.exists()
    assert tried["tokens_saved"] > 20
    done = listed(home, "park", "pdf-toolkit")
    target = home.path / ".claude/skills-parked/pdf-toolkit"
    assert done["moved"] == [{"from": str(folder), "to": str(target)}]
    assert (contents(target), folder.exists()) == (before, False)
    assert (target / "scripts/merge.py").stat().st_mode & 0o111
    (after,) = listed(home, "--agent", "claude")["agents"]
    assert after["tokens"] == tokens - done["tokens_saved"]
    (parked,) = (skill for skill in after["skills"] if skill["shown"] == "parked")
    assert (parked["name"], parked["tokens"]) == ("pdf-toolkit", 0)

    assert home.run("hook", "install").returncode == 0
    told = home.hook().context
    assert json.dumps(str(target / "SKILL.md")) in told
    assert "read its file" in told  # the agent's tool does not know it

    listed(home, "unpark", "pdf-toolkit")
    assert (contents(folder), target.exists()) == (before, False)


def test_uninstall_moves_parked_skills_back(home: Home) -> None:
    assert home.run("hook", "install").returncode == 0
    assert home.run("hook", "install", "--project").returncode == 0
    before = contents(home.path / ".claude/skills")
    listed(home, "park", "pdf-toolkit", "csv-cleaner")
    parked = home.path / ".claude/skills-parked"
    home.run("hook", "uninstall", "--project")
    assert len(list(parked.iterdir())) == 2  # the other hook still suggests them
    home.skill("csv-cleaner", "Another one of this name")
    done = home.run("hook", "uninstall")
    assert done.returncode == 0
    assert (
        f"moved the parked skill back to {home.path / '.claude/skills/pdf-toolkit'}" in done.stdout
    )
    assert "csv-cleaner stays parked" in done.stderr
    shutil.rmtree(home.path / ".claude/skills/csv-cleaner")
    again = json.loads(home.run("hook", "uninstall", "--json").stdout)
    assert again["unparked"] == [str(home.path / ".claude/skills/csv-cleaner")]
    assert contents(home.path / ".claude/skills") == before
    assert not parked.exists()


def test_uninstall_keeps_what_another_hook_suggests(home: Home) -> None:
    home.skill("deploy", "Ship the service to staging", below=".agents")
    for agent in ("codex", "gemini"):
        assert home.run("hook", "install", "--agent", agent).returncode == 0
    listed(home, "park", "deploy", "--agent", "codex")
    done = home.run("hook", "uninstall", "--agent", "codex")
    assert "back to" not in done.stdout
    assert "the hook of gemini suggests from it" in done.stderr
    assert "back to" in home.run("hook", "uninstall", "--agent", "gemini").stdout


def test_errors_move_nothing(home: Home) -> None:
    def refused(*arguments: str) -> str:
        done = home.run("skills", *arguments)
        assert done.returncode == 2, done.stdout
        return done.stderr

    plugin = home.path / "elsewhere" / "plugin"
    home.skill("sequence", "Draw sequence diagrams with mermaid", below="elsewhere/plugin")
    installed = home.path / ".claude/plugins/installed_plugins.json"
    installed.parent.mkdir()
    installed.write_text(json.dumps({"plugins": {"d@m": [{"installPath": str(plugin)}]}}))
    before = contents(home.path / ".claude/skills")
    assert "error[unknown_document]" in refused("park", "pdf-toolkit", "pdf-tool")
    assert "similar: pdf-toolkit" in refused("park", "pdf")
    assert "error[unknown_document]" in refused("unpark", "pdf-toolkit")
    assert "disable the plug-in" in refused("park", "d:sequence")
    assert "name the skills to park" in refused("park")
    assert "list takes no names" in refused("list", "x")
    taken = home.path / ".claude/skills-parked/pdf-toolkit"
    taken.mkdir(parents=True)
    assert "exists already" in refused("park", "pdf-toolkit")
    assert contents(home.path / ".claude/skills") == before


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_tracked_skills_are_refused_unless_told_otherwise(home: Home) -> None:
    work = home.path / "work"
    shutil.rmtree(work / ".git")
    home.skill("deploy", "Ship the service to staging", below="work/.claude")
    home.skill("draft", "Draft a letter to the landlord", below="work/.claude")
    for command in (["init", "-q"], ["add", ".claude/skills/deploy"]):
        subprocess.run(["git", "-C", str(work), *command], check=True)
    done = home.run("skills", "park", "draft", "deploy")
    assert done.returncode == 2
    assert "git tracks" in done.stderr
    assert (work / ".claude/skills/draft").exists()  # nothing is moved if one is refused
    assert home.run("skills", "park", "draft").returncode == 0
    assert home.run("skills", "park", "deploy", "--tracked").returncode == 0
    assert sorted(path.name for path in (work / ".claude/skills-parked").iterdir()) == [
        "deploy",
        "draft",
    ]


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_skill_is_not_moved_if_git_cannot_say_whether_it_tracks_it(home: Home) -> None:
    work = home.path / "work"
    shutil.rmtree(work / ".git")
    home.skill("deploy", "Ship the service to staging", below="work/.claude")
    for command in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", "-C", str(work), *command], check=True)
    other = home.path / "other"
    subprocess.run(["git", "init", "-q", str(other)], check=True)
    done = home.run("skills", "park", "deploy", GIT_DIR=str(other / ".git"))
    assert "git tracks" in done.stderr
    (work / ".git/config").write_text("[broken")
    done = home.run("skills", "park", "deploy")
    assert done.returncode == 2
    assert "cannot ask git" in done.stderr
    assert (work / ".claude/skills/deploy").exists()


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@pytest.mark.parametrize(("place", "files"), [(".git", ".."), (".claude/skills", ".")])
def test_no_program_that_a_repository_names_is_run(home: Home, place: str, files: str) -> None:
    """A clone may hold a bare repository, whose settings git reads, in any of its folders."""
    work = home.path / "work"
    shutil.rmtree(work / ".git")
    home.skill("deploy", "Ship the service to staging", below="work/.claude")
    home.skill("draft", "Draft a letter to the landlord", below="work/.claude")
    subprocess.run(["git", "init", "-q", str(work)], check=True)
    repository = work / place
    for name in ("objects", "refs"):
        (repository / name).mkdir(exist_ok=True)
    (repository / "HEAD").write_text("ref: refs/heads/main\n")
    run = home.path / "run"
    (repository / "config").write_text(
        "[core]\nrepositoryformatversion = 0\nbare = false\n"
        f'worktree = {files}\nfsmonitor = "touch {run}; false"\n'
    )
    home.run("skills", "park", "deploy", "--dry-run")
    home.run("hook", "uninstall")
    assert not run.exists()


def test_no_link_of_a_project_is_written_through(home: Home) -> None:
    work, mine = home.path / "work", home.path / "mine.json"
    mine.write_text("{}")
    home.skill("deploy", "Ship the service to staging", below="work/.claude")
    (work / ".claude/skills-parked").symlink_to(home.path / ".claude/skills")
    (work / ".claude/settings.json").symlink_to(mine)
    (work / ".opencode/plugins").mkdir(parents=True)
    (work / ".opencode/plugins/crossgate.js").symlink_to(mine)
    before = contents(home.path / ".claude/skills")
    assert home.run("skills", "park", "deploy").returncode == 2
    for agent in ("claude", "opencode"):
        for verb in ("install", "uninstall"):
            done = home.run("hook", verb, "--project", "--agent", agent)
            assert (done.returncode, "leads out of the project" in done.stderr) == (3, True)
        home.run("hook", "uninstall", "--agent", agent)
    assert mine.read_text() == "{}"
    assert contents(home.path / ".claude/skills") == before


def test_moves_before_a_failure_are_named(home: Home) -> None:
    blocked = home.path / "work/.claude/skills-parked"
    home.skill("deploy", "Ship the service to staging", below="work/.claude")
    blocked.write_text("not a folder")
    done = home.run("skills", "park", "pdf-toolkit", "deploy")
    assert done.returncode == 3
    assert f"moved {home.path / '.claude/skills/pdf-toolkit'} to" in done.stderr
    assert home.run("skills", "unpark", "pdf-toolkit").returncode == 0


def refuse_rename(first: object, second: object) -> None:
    raise OSError(errno.EXDEV, "Invalid cross-device link")


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    monkeypatch.setenv("CROSSGATE_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "my skills" / "a"
    (folder / "deep").mkdir(parents=True)
    (folder / "SKILL.md").write_text("text")
    (folder / "deep" / "x.bin").write_bytes(bytes(range(256)))
    (folder / "link").symlink_to("SKILL.md")
    return folder, tmp_path / "my skills-parked" / "a"


def test_another_disk_is_left_to_the_user(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, target = folders
    before = contents(folder)
    monkeypatch.setattr("os.rename", refuse_rename)
    command = f"`mv '{folder}' '{target}'`"
    assert command in refused("unwritable", parking.move_skill, folder, target)
    assert (contents(folder), target.exists()) == (before, False)


def test_two_sessions_do_not_park_at_once(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from crossgate._agents.hook.skill_library import hook_folder
    from crossgate._support.files import file_lock

    folder, target = folders
    monkeypatch.setattr(parking, "LOCK_SECONDS", 0.0)
    with file_lock(hook_folder() / "parking.lock"), pytest.raises(CrossgateError, match="another"):
        parking.move_skill(folder, target)
    assert folder.exists()
    parking.move_skill(folder, target)
    with pytest.raises(CrossgateError):
        parking.move_skill(folder, target)
    assert target.exists()


def test_skills_are_parked_by_four_processes_at_once(home: Home) -> None:
    with ThreadPoolExecutor(4) as pool:
        codes = pool.map(lambda name: home.run("skills", "park", name).returncode, SKILLS)
        assert list(codes) == [0] * 4
    assert {path.name for path in (home.path / ".claude/skills-parked").iterdir()} == set(SKILLS)


def test_the_text_names_uses_from_transcripts(home: Home) -> None:
    lines = [
        {"type": "user", "timestamp": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"},
        {"type": "assistant"},
    ]
    lines[0]["message"] = {"content": PDF}  # type: ignore[assignment]
    block = {"type": "tool_use", "name": "Skill", "input": {"skill": "pdf-toolkit"}}
    lines[1]["message"] = {"content": [block]}  # type: ignore[assignment]
    path = home.path / ".claude/projects/x/s.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("\n".join(map(json.dumps, lines)))
    done = home.run("skills")
    assert done.returncode == 0, done.stderr
    row = next(line for line in done.stdout.split("\n") if "pdf-toolkit" in line)
    assert f"{datetime.now(UTC):%Y-%m}" in row
    assert "claude: 4 skills" in done.stdout


def test_no_skills_exit_with_1(tmp_path: Path) -> None:
    home = furnished(tmp_path / "empty", {})
    done = home.run("skills")
    assert (done.returncode, done.stdout) == (1, "no agent here has skills\n")


@pytest.mark.parametrize("elsewhere", ["", "other/disk"])
def test_relative_links_lead_to_the_same_file_after_a_move(home: Home, elsewhere: str) -> None:
    skills = home.path / ".claude/skills"
    if elsewhere:  # the folder of parked skills is a link
        (home.path / elsewhere).mkdir(parents=True)
        (home.path / ".claude/skills-parked").symlink_to(home.path / elsewhere)
    csv, pdf = skills / "csv-cleaner", skills / "pdf-toolkit"
    (csv / "shared").mkdir()
    (csv / "shared" / "notes.txt").write_text("notes")
    links = {
        pdf / "shared": "../csv-cleaner/shared",  # out of the moved skill
        csv / "deep.md": "../pdf-toolkit/SKILL.md",  # into the moved skill
        pdf / "own.md": "SKILL.md",
        pdf / "nowhere": "../absent",
    }
    for link, text in links.items():
        link.symlink_to(text)
    listed(home, "park", "pdf-toolkit")
    parked = home.path / ".claude/skills-parked/pdf-toolkit"
    assert (parked / "shared" / "notes.txt").read_text() == "notes"
    assert (csv / "deep.md").samefile(parked / "SKILL.md")
    assert os.readlink(parked / "own.md") == "SKILL.md"
    listed(home, "park", "csv-cleaner")
    assert (parked / "shared" / "notes.txt").read_text() == "notes"
    listed(home, "unpark", "csv-cleaner", "pdf-toolkit")
    assert {link: os.readlink(link) for link in links} == links
