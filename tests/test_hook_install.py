"""Tests of installing and removing the prompt hook, and of the edited settings."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from crossgate._agents.hook import shell
from crossgate._agents.hook.agents import AGENTS
from crossgate._agents.hook.install import switched_off, temporary_environment
from crossgate._agents.hook.settings import command_in, read, switch_in
from crossgate._cli import run
from crossgate._support.errors import InputError
from hook_home import CROSSGATE, PDF, Home, furnished

OTHERS: dict[str, Any] = {
    "model": "opus",
    "hooks": {
        "UserPromptSubmit": [{"hooks": [{"type": "command", "command": "date"}]}],
        "PostToolUse": [{"matcher": "Edit", "hooks": [{"type": "command", "command": "fmt"}]}],
    },
}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return furnished(tmp_path / "home")


def settings(home: Home, text: str | None = None) -> Path:
    path = home.path / ".claude/settings.json"
    if text is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return path


def doctor_on(home: Home, agent: str = "claude", **variables: str) -> str:
    """Return the line of `doctor` on the hook of an agent."""
    lines = home.run("doctor", **variables).stdout.split("\n")
    return next(line for line in lines if f"hook {agent}" in line)


def commands(path: Path) -> list[str]:
    groups = json.loads(path.read_text())["hooks"]["UserPromptSubmit"]
    return [hook["command"] for group in groups for hook in group["hooks"]]


def test_the_installed_command_works(home: Home) -> None:
    done = home.run("hook", "install")
    assert (done.returncode, done.stderr) == (0, "")
    assert "4 skills" in done.stdout
    assert "trial: it added " in done.stdout
    (command,) = commands(settings(home))
    ran = subprocess.run(
        command,
        shell=True,
        input=home.call(PDF),
        capture_output=True,
        env=home.environment(),
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert "pdf-toolkit" in json.loads(ran.stdout)["hookSpecificOutput"]["additionalContext"]


def test_install_is_idempotent_and_keeps_other_settings(home: Home) -> None:
    path = settings(home, json.dumps(OTHERS, indent=4))
    before = path.read_bytes()
    assert home.run("hook", "install").returncode == 0
    after = json.loads(path.read_text())
    assert len(commands(path)) == 2
    assert after["hooks"]["UserPromptSubmit"][0] == OTHERS["hooks"]["UserPromptSubmit"][0]
    assert {**after, "hooks": OTHERS["hooks"]} == OTHERS
    assert path.with_name("settings.json.before-crossgate").read_bytes() == before

    written = path.read_bytes()
    again = json.loads(home.run("hook", "install", "--json").stdout)
    assert (again["changed"], again["documents"]) == (False, 4)
    assert path.read_bytes() == written
    # New options replace the earlier options.
    assert home.run("hook", "install", "--inject", "body").returncode == 0
    assert next(item for item in commands(path) if "crossgate" in item).endswith("--inject body")
    assert len(commands(path)) == 2
    assert path.with_name("settings.json.before-crossgate").read_bytes() == before

    assert json.loads(home.run("hook", "uninstall", "--json").stdout)["removed"] is True
    assert json.loads(path.read_text()) == OTHERS
    assert json.loads(home.run("hook", "uninstall", "--json").stdout)["removed"] is False
    assert path.with_name("settings.json.before-crossgate").read_bytes() == before


def test_tasks_of_subagents_are_an_option(home: Home) -> None:
    mine = {"matcher": "Bash", "hooks": [{"type": "command", "command": "check"}]}
    path = settings(home, json.dumps({"hooks": {"PreToolUse": [mine]}}))

    def groups() -> Any:
        return json.loads(path.read_text())["hooks"].get("PreToolUse")

    for _ in range(2):
        assert home.run("hook", "install", "--subagents").returncode == 0
        (before, ours) = groups()
        assert before == mine
        assert ours["matcher"] == "Agent|Task"
        assert [hook["command"] for hook in ours["hooks"]] == commands(path)
    assert home.run("hook", "install").returncode == 0
    assert groups() == [mine]
    assert home.run("hook", "install", "--subagents").returncode == 0
    assert home.run("hook", "uninstall").returncode == 0
    assert json.loads(path.read_text()) == {"hooks": {"PreToolUse": [mine]}}
    for agent, said in (("gemini", "for claude and codex"), ("opencode", "anyway")):
        done = home.run("hook", "install", "--subagents", "--agent", agent)
        assert done.returncode == 2
        assert said in done.stderr


@pytest.mark.parametrize(
    "text",
    [
        '{\n  // mine\n  "model": "opus"\n}',
        '{"model": "opus",}',
        "[]",
        '{"hooks": []}',
        '{"hooks": {"UserPromptSubmit": {}}}',
        '{"model": 1, "model": 2}',
        '{"limit": 1e999}',
        '{"limit": 0.10000000000000000001}',
        "not json",
        "{\n",  # the error is after the last line
    ],
)
def test_settings_that_are_not_plain_json_are_not_changed(home: Home, text: str) -> None:
    path = settings(home, text)
    for command in ("install", "uninstall"):
        done = home.run("hook", command)
        if command == "uninstall" and done.returncode == 0:
            continue  # the file does not call crossgate
        assert done.returncode == 2, command
        assert "error[malformed_setting]" in done.stderr
        assert str(path) in done.stderr
    assert path.read_text() == text
    assert list(path.parent.glob("settings*")) == [path]


def test_a_link_stays_a_link_and_permissions_stay(home: Home, tmp_path: Path) -> None:
    target = tmp_path / "dotfiles.json"
    target.write_text("{}")
    target.chmod(0o600)
    path = settings(home)
    path.symlink_to(target)
    assert home.run("hook", "install").returncode == 0
    assert path.is_symlink()
    assert target.stat().st_mode & 0o777 == 0o600
    assert len(commands(target)) == 1


def test_a_link_at_the_path_of_the_backup_is_replaced(home: Home) -> None:
    """A repository may contain a link to a file of the user."""
    mine = settings(home, '{"model": "mine"}')
    theirs = home.path / "work/.claude/settings.json"
    theirs.parent.mkdir()
    theirs.write_text('{"model": "theirs"}')
    theirs.chmod(0o640)
    copy = theirs.with_name("settings.json.before-crossgate")
    copy.symlink_to(mine)
    done = home.run("hook", "install", "--project")
    assert done.returncode == 0, done.stderr
    assert mine.read_text() == '{"model": "mine"}'
    assert not copy.is_symlink()
    assert copy.read_text() == '{"model": "theirs"}'
    assert copy.stat().st_mode & 0o777 == 0o640


def test_a_project_gets_its_own_hook(home: Home) -> None:
    work = home.path / "work"
    home.skill("deploy", "Ship the service to the staging cluster.", below="work/.claude")
    done = home.run("hook", "install", "--project")
    assert done.returncode == 0, done.stderr
    assert not settings(home).exists()
    path = work / ".claude/settings.json"
    assert len(commands(path)) == 1
    assert not home.log  # the trial is not logged
    assert "deploy" in home.hook(home.call("ship the service to the staging cluster")).context
    elsewhere = home.run("hook", "uninstall")
    assert f"{path} still calls it: run this again with --project" in elsewhere.stderr
    gone = home.run("hook", "uninstall", "--project")
    assert (gone.returncode, gone.stderr) == (0, "")
    assert [item.name for item in path.parent.iterdir()] == ["skills"]


def test_skills_of_a_project_are_enough(home: Home) -> None:
    home.skill("deploy", "Ship the service to the staging cluster.", below="work/.agents")
    done = home.run("hook", "install", "--agent", "codex", "--project", "--json")
    assert done.returncode == 0, done.stderr
    values = json.loads(done.stdout)
    assert (values["documents"], values["changed"]) == (1, True)
    assert "allow it under /hooks" in done.stderr + done.stdout
    done = home.run("hook", "install", "--agent", "codex", "--project")
    assert "allow it under /hooks" not in done.stderr  # Codex has asked already


def test_a_missing_plugin_of_opencode_is_not_removed(home: Home) -> None:
    done = home.run("hook", "uninstall", "--agent", "opencode", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["removed"] is False
    assert not (home.path / ".config/opencode").exists()


def test_a_project_is_found_from_a_subfolder(home: Home) -> None:
    (home.path / "work/src/deep").mkdir(parents=True)
    (home.path / "new").mkdir()
    log, path = home.path / "log.jsonl", home.path / "work/.claude/settings.json"

    def below(folder: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        # The variable is not set in a user's shell.
        return home.run(*arguments, folder=folder, without=["CLAUDE_PROJECT_DIR"])

    done = below("work/src", "hook", "install", "--project", "--log", str(log))
    assert done.returncode == 0, done.stderr
    assert len(commands(path)) == 1
    assert f"{log} holds no decision" in below("work/src/deep", "feedback", "wrong").stderr
    assert f"hook claude: {path};" in below("work/src/deep", "doctor").stdout
    assert below("work/src/deep", "hook", "uninstall", "--project").returncode == 0
    assert not path.exists()
    # Outside a project, the working folder is used.
    assert below("new", "hook", "install", "--project").returncode == 0
    assert len(commands(home.path / "new/.claude/settings.json")) == 1


def without_a_working_folder(home: Home, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run crossgate in a folder that is deleted before it starts."""
    (home.path / "gone").mkdir()
    prefix = ["/bin/sh", "-c", 'rmdir "$PWD" && exec "$@"', "sh"]
    return home.run(*arguments, folder="gone", prefix=prefix, without=["CLAUDE_PROJECT_DIR"])


def test_a_deleted_working_folder_is_an_error(home: Home) -> None:
    for arguments in (
        ["install"],
        ["install", "--project"],
        ["uninstall", "--project"],
        ["try", PDF],
    ):
        done = without_a_working_folder(home, "hook", *arguments)
        assert (done.returncode, done.stdout) == (2, ""), arguments
        assert "error[source_missing]: the working folder" in done.stderr
        assert not settings(home).exists()
    # Commands for the user's own settings work without a working folder.
    assert home.run("hook", "install").returncode == 0
    assert f"hook claude: {settings(home)};" in without_a_working_folder(home, "doctor").stdout
    done = without_a_working_folder(home, "hook", "uninstall")
    assert (done.returncode, done.stderr) == (0, "")
    assert not settings(home).exists()


def test_a_missing_home_folder_is_an_error(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pwd = pytest.importorskip("pwd")

    def nobody(user: int) -> NoReturn:
        raise KeyError(user)

    monkeypatch.chdir(home.path)
    for name in ("HOME", "CLAUDE_CONFIG_DIR", "CLAUDE_PROJECT_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    for arguments in (["install"], ["uninstall", "--project"], ["try", PDF]):
        assert run(["hook", *arguments]) == 2
        assert "error[malformed_setting]: there is no home folder" in capsys.readouterr().err


@pytest.mark.skipif(
    os.name != "posix" or (os.geteuid() == 0 and not shutil.which("setpriv")),
    reason="root reads everything, unless setpriv takes that away",
)
def test_an_unreadable_folder_does_not_hide_other_skills(home: Home) -> None:
    closed, linked = home.path / "work/.claude/skills", home.path / "closed"
    for folder in (closed, linked):
        folder.mkdir(parents=True)
        folder.chmod(0)
    (home.path / ".claude/skills/linked").symlink_to(linked)
    without = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    prefix = without if os.geteuid() == 0 else []
    done = home.run("hook", "install", "--project", prefix=prefix)
    assert done.returncode == 0, done.stderr
    assert f"4 skills of {home.path / '.claude/skills'}\n" in done.stdout


def test_install_without_skills_is_refused(tmp_path: Path) -> None:
    home = furnished(tmp_path / "home", {})
    done = home.run("hook", "install")
    assert done.returncode == 2
    assert "error[no_documents]" in done.stderr
    assert "--skills FOLDER" in done.stderr
    assert not settings(home).exists()


def test_an_index_is_enough_without_skills(tmp_path: Path) -> None:
    home = furnished(tmp_path, {})
    index, folder = home.path / "own.cgx", home.skill("pdf", "Merge PDF files", below="own")
    assert home.run("index", folder.parents[1], "-o", index).returncode == 0
    done = home.run("hook", "install", "--index", index)
    assert done.returncode == 0, done.stderr
    (command,) = commands(settings(home))
    assert command.endswith(f"hook claude --index {index}")


def test_doctor_reports_the_state_of_the_hook(home: Home) -> None:
    def doctor() -> tuple[int, str]:
        done = home.run("doctor")
        return done.returncode, next((x for x in done.stdout.split("\n") if "hook" in x), "")

    assert doctor() == (0, "")
    assert home.run("hook", "install").returncode == 0
    assert doctor() == (0, f"ok      hook claude: {settings(home)}; no prompt yet")
    assert home.hook(home.call("what did you change?")).context == ""
    told = f"hook claude: {settings(home)}; 0 of the last 1 prompt got a skill"
    assert doctor() == (0, f"ok      {told}")
    home.hook(home.call("warum hast du das nicht so gelassen?"))
    assert "1 prompt in other languages: pip install 'crossgate[multilingual]'" in doctor()[1]
    home.hook(b"no json")
    code, line = doctor()
    assert (code, line[:6]) == (3, "BROKEN")
    assert "the last failed: bad_input: stdin is not JSON" in line
    home.hook()
    code, line = doctor()
    assert (code, line[:2]) == (0, "ok")
    assert "; 1 failed, the last at 2" in line
    # The environment that the hook was installed from is removed.
    text = settings(home).read_text()
    settings(home).write_text(text.replace(str(CROSSGATE), "/gone/bin/crossgate"))
    assert doctor() == (
        3,
        f"BROKEN  hook claude: {settings(home)} calls /gone/bin/crossgate, which does not exist",
    )
    assert home.run("hook", "install").returncode == 0
    assert doctor()[0] == 0
    assert home.run("hook", "uninstall").returncode == 0
    home.hook(b"no json")
    code, line = doctor()
    assert (code, line[:3]) == (0, "off")


def test_try_uses_the_installed_options(home: Home) -> None:
    def tried(*arguments: str) -> dict[str, Any]:
        done = home.run("hook", "try", "--json", *arguments, CROSSGATE_LOG=str(log))
        values: dict[str, Any] = json.loads(done.stdout)
        assert done.returncode == {"injected": 0, "failed": 3}.get(values["outcome"], 1)
        return values

    log = home.path / "decisions.jsonl"
    found = tried(PDF)
    assert (found["outcome"], found["ids"], found["settings"]) == ("injected", ["pdf-toolkit"], [])
    assert home.run("hook", "install", "--inject", "passage").returncode == 0
    before = home.log
    found = tried(PDF)
    assert (found["outcome"], found["ids"]) == ("injected", ["pdf-toolkit"])
    assert found["settings"] == [str(settings(home))]
    assert "\n> " in found["context"]
    assert found["context"] == tried(PDF)["context"]  # a trial does not count as a mention
    found = tried("what did you change?")
    assert (found["outcome"], found["context"]) == ("nothing", "")
    assert found["nearest"]
    assert found["confidence"] < found["min_confidence"]
    assert tried("/clear")["reason"] == "command"
    assert home.log == before
    assert not log.exists()
    assert home.run("hook", "install", "--deny", "pdf-toolkit").returncode == 0
    assert tried(PDF)["nearest"] != "pdf-toolkit"
    assert "0.6 is needed" in home.run("hook", "try", PDF).stdout
    assert "no settings of codex" in home.run("hook", "try", "--agent", "codex", PDF).stdout
    settings(home).write_text(settings(home).read_text().replace("--deny", "--limit"))
    done = home.run("hook", "try", PDF)
    assert done.returncode == 2
    assert "error[out_of_range]" in done.stderr


def test_changes_of_eight_processes_are_all_kept(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text('{"model": "opus"}')
    code = (
        "import sys; from pathlib import Path; from crossgate._agents.hook import settings; "
        "settings.edit(Path(sys.argv[1]), lambda values: {**values, sys.argv[2]: 1})"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", code, path, str(number)]) for number in range(8)
    ]
    assert [process.wait(timeout=120) for process in running] == [0] * 8
    assert set(json.loads(path.read_text())) == {"model", *map(str, range(8))}
    names = {item.name for item in tmp_path.iterdir()}
    assert names == {"settings.json", "settings.json.before-crossgate"}


def test_a_cache_that_cannot_be_written_is_named(home: Home) -> None:
    blocked = home.path / "blocked"
    blocked.write_text("not a folder")
    cache = {"CROSSGATE_CACHE": str(blocked / "cache")}
    done = home.run("hook", "try", PDF, **cache)
    assert done.returncode == 3
    assert str(blocked) in done.stdout
    assert "CROSSGATE_CACHE" in done.stdout
    run = home.hook(variables=cache)
    assert (run.code, run.out) == (0, b"")
    assert run.err.startswith(f"crossgate: hook claude: unwritable: cannot write to {blocked}")


CALL = ["x/crossgate", "hook", "claude", "--deny", "a|b;c"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("x/crossgate hook claude --deny 'a|b;c' 2>/dev/null || true", CALL),
        ("A=1 B='2 3' x/crossgate hook claude --deny \"a|b;c\"&", CALL),
        (r"cd /x; (x/crossgate hook claude --deny a\|b\;c) > 2", CALL),
        ('"$HOME/x y"/crossgate hook claude', ["$HOME/x y/crossgate", "hook", "claude"]),
        ("x hook claude --limit 2 >/dev/null", ["x", "hook", "claude", "--limit", "2"]),
        ('bash -c "crossgate hook claude" && date', ["bash", "-c", "crossgate hook claude"]),
        ("", []),
    ],
)
def test_the_command_is_found_in_a_shell_line(line: str, words: list[str]) -> None:
    assert shell.split_command(line, "claude", windows=False) == words
    again = shell.join(words, windows=False)
    assert shell.split_command(again, "claude", windows=False) == words


def test_windows_words_are_in_double_quotes() -> None:
    words = [r"C:\Program Files\x.exe", "hook", "claude", "--index", r"C:\x.cgx", "--deny", "it's"]
    line = shell.join(words, windows=True)
    assert line == (r'"C:\Program Files\x.exe" hook claude --index "C:\x.cgx" --deny "it' + "'s\"")
    assert shell.split_command(line, "claude", windows=True) == words


@pytest.mark.parametrize(
    ("program", "state"),
    [
        (f'X=1 "{CROSSGATE}"', "ok"),
        ('"${HOME}/bin"/crossgate', "ok"),
        ('"$CLAUDE_PROJECT_DIR"/crossgate', "broken"),
        ('"$NOT_SET"/crossgate', "unknown"),
        ("$(which crossgate)", "unknown"),
        ('"$HOME/gone/crossgate"', "broken"),
    ],
)
def test_doctor_resolves_the_program_like_a_shell(home: Home, program: str, state: str) -> None:
    command = f"{program} hook claude 2>/dev/null || true"
    hooks = {"UserPromptSubmit": [{"hooks": [{"type": "command", "command": command}]}]}
    path = settings(home, json.dumps({"hooks": hooks}))
    (home.path / "bin").symlink_to(CROSSGATE.parent)
    line = doctor_on(home)
    assert line.startswith("BROKEN" if state == "broken" else "ok")
    assert ("depends on the agent's environment" in line) == (state == "unknown"), line
    assert str(path) in line
    # Redirections of the shell are not options of the hook.
    tried = home.run("hook", "try", PDF)
    assert "unrecognized arguments" not in tried.stderr


def test_a_log_is_found_despite_other_bad_settings(home: Home) -> None:
    log = home.path / "x.jsonl"
    for path, agent, options in (
        (".claude/settings.json", "claude", "--no-such-option"),
        (".codex/hooks.json", "codex", '--log "$HOME/x.jsonl" 2>/dev/null || true'),
    ):
        hook = {"type": "command", "command": f"crossgate hook {agent} {options}"}
        target = home.path / path
        target.parent.mkdir(exist_ok=True)
        target.write_text(json.dumps({"hooks": {"UserPromptSubmit": [{"hooks": [hook]}]}}))
    log.write_text("")
    done = home.run("feedback", "wrong")
    assert f"error[no_decisions]: {log} holds no decision" in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("log", "code", "exit_code"),
    [
        ("no/where.jsonl", "unwritable", 3),
        ("folder", "unwritable", 3),
        ("pipe", "unwritable", 3),
        ("settings.json", "not_a_log", 2),
    ],
)
def test_an_unwritable_log_is_refused(home: Home, log: str, code: str, exit_code: int) -> None:
    work = home.path / "work"
    (work / "folder").mkdir()
    os.mkfifo(work / "pipe")
    (work / "settings.json").write_text("{}\n")
    done = home.run("hook", "install", "--log", log)
    assert done.returncode == exit_code
    assert f"error[{code}]" in done.stderr
    assert not settings(home).exists()
    assert (work / "settings.json").read_text() == "{}\n"


def test_relative_folders_are_made_absolute(home: Home) -> None:
    home.skill("knitting", "Knit a jumper from a chart", below="work/more")
    done = home.run("hook", "install", "--skills", "more/skills")
    assert done.returncode == 0, done.stderr
    (command,) = commands(settings(home))
    assert command.endswith(f"--skills {home.path / 'work/more/skills'}")


def test_a_byte_order_mark_and_null_hooks_are_accepted(home: Home) -> None:
    path = settings(home)
    for text in ('{"hooks": null}', '{"hooks": {"UserPromptSubmit": null}, "model": "opus"}'):
        path.write_text(text, encoding="utf-8-sig")
        assert home.run("hook", "install").returncode == 0
        data = path.read_bytes()
        assert data.startswith(b"\xef\xbb\xbf{")  # written as it was
        groups = json.loads(data.decode("utf-8-sig"))["hooks"]["UserPromptSubmit"]
        assert len(groups) == 1
        assert home.run("hook", "uninstall").returncode == 0


def test_escapes_and_numbers_are_kept(home: Home) -> None:
    before = json.loads(
        '{"half": "\\ud800", "letter": "\u00e9", "large": 1e22, "id": 123456789012345678901}'
    )
    path = settings(home, json.dumps(before))
    assert home.run("hook", "install").returncode == 0
    after = json.loads(path.read_text(encoding="utf-8"))
    assert {key: after[key] for key in before} == before


PROGRAM = "/usr/bin/crossgate hook"
SWITCHES = [
    ("claude", ".claude/settings.json", {"disableAllHooks": True}),
    ("claude", "work/.claude/settings.json", {"disableAllHooks": True}),
    ("claude", "work/.claude/settings.local.json", {"disableAllHooks": True}),
    ("gemini", ".gemini/settings.json", {"hooksConfig": {"enabled": False}}),
    ("gemini", "work/.gemini/settings.json", {"tools": {"enableHooks": False}}),
    (
        "gemini",
        ".gemini/settings.json",
        {"hooksConfig": {"disabled": ["fmt", f"{PROGRAM} gemini"]}},
    ),
    ("codex", ".codex/config.toml", {"features": {"hooks": False}}),
    ("codex", "work/.codex/config.toml", {"features": {"codex_hooks": False}}),
]


@pytest.mark.parametrize(("agent", "file", "values"), SWITCHES)
def test_disabled_hooks_are_found(
    home: Home, monkeypatch: pytest.MonkeyPatch, agent: str, file: str, values: dict[str, Any]
) -> None:
    monkeypatch.setenv("HOME", str(home.path))
    monkeypatch.chdir(home.path / "work")
    for name in ("CLAUDE_CONFIG_DIR", "CLAUDE_PROJECT_DIR", "CODEX_HOME", "GEMINI_PROJECT_DIR"):
        monkeypatch.delenv(name, raising=False)
    path = home.path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(values)
    if path.suffix == ".toml":
        ((key, value),) = values["features"].items()
        text = f"[features]\n{key} = {json.dumps(value)}\n"
    path.write_text(text)
    (found,) = switched_off(AGENTS[agent])
    assert found.startswith(f"{path} has ")
    text = path.read_text().replace("true", "null").replace("false", "true")
    path.write_text(text.replace(PROGRAM, "date"))
    assert switched_off(AGENTS[agent]) == []


@pytest.mark.parametrize(("agent", "file", "values"), [SWITCHES[2], SWITCHES[5]])
def test_disabled_hooks_are_reported(
    home: Home, agent: str, file: str, values: dict[str, Any]
) -> None:
    path = home.path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values))
    (home.path / ".agents").symlink_to(home.path / ".claude")
    done = home.run("hook", "install", "--agent", agent)
    assert done.returncode == 0, done.stderr
    assert f"so {agent} does not run the hook" in done.stderr
    line = doctor_on(home, agent)
    assert line.startswith("off")
    assert "does not run the hook" in line
    assert "does not run the hook" in home.run("hook", "try", "--agent", agent, PDF).stdout


def test_settings_of_an_administrator_are_reported(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(home.path))
    monkeypatch.chdir(home.path)
    path = home.path / "managed-settings.json"
    claude = AGENTS["claude"]
    assert claude.managed[0] == "/etc/claude-code/managed-settings.json"
    agent = replace(claude, managed=(str(path),))
    assert switched_off(agent) == []
    for key in ("disableAllHooks", "allowManagedHooksOnly"):
        path.write_text(json.dumps({key: True}))
        assert switched_off(agent) == [f"{path} has {key}: true"]
    # In the settings of a user, Claude Code ignores it.
    settings(home, '{"allowManagedHooksOnly": true}')
    assert switched_off(claude) == []


@pytest.mark.parametrize(
    ("folder", "reason"),
    [
        ("/home/me/.cache/uv/archive-v0/Zq3x/bin", "uv"),
        ("/home/me/.cache/uv/environments-v2/tool-1a2b/bin", "uv"),
        ("C:\\Users\\me\\AppData\\Local\\uv\\cache\\archive-v1\\ab\\Scripts", "uv"),
        ("/home/me/.local/pipx/.cache/0123456789abcde/bin", "pipx"),
        ("/home/me/.cache/pipx/0123456789abcde/bin", "pipx"),
        ("/Users/me/Library/Caches/pipx/0123456789abcde/bin", "pipx"),
        ("C:\\Users\\me\\pipx\\pipx\\Cache\\0123\\Scripts", "pipx"),
        ("/custom/cache/of/uv/x/bin", "uv"),
        ("/scratch/venv/bin", "temporary files"),
        ("/home/me/.local/share/uv/tools/crossgate/bin", ""),
        ("/home/me/.local/share/pipx/venvs/crossgate/bin", ""),
        ("/home/me/project/.venv/bin", ""),
        ("/usr/bin", ""),
    ],
)
def test_temporary_environments_are_recognised(
    monkeypatch: pytest.MonkeyPatch, folder: str, reason: str
) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", "/custom/cache/of/uv")
    monkeypatch.setattr(tempfile, "gettempdir", lambda: "/scratch")
    assert bool(temporary_environment(folder)) == bool(reason)
    assert temporary_environment(folder).endswith(reason)


def test_install_from_a_temporary_environment_is_refused_with_the_remedy(home: Home) -> None:
    environment = {"TMPDIR": str(CROSSGATE.parents[2]), "PATH": "/usr/bin:/bin"}
    for project in ([], ["--project"]):
        done = home.run("hook", "install", *project, **environment)
        assert done.returncode == 2
        assert "error[temporary_environment]" in done.stderr
        assert "uv tool install" in done.stderr
        assert not settings(home).exists()
    # Another crossgate on the PATH is used instead.
    lasting = home.path / "bin"
    lasting.mkdir()
    script = lasting / "crossgate"
    script.write_text(f'#!/bin/sh\nexec "{CROSSGATE}" "$@"\n')
    script.chmod(0o755)
    environment["PATH"] = f"{CROSSGATE.parent}:{lasting}:/usr/bin:/bin"
    done = home.run("hook", "install", **environment)
    assert done.returncode == 0, done.stderr
    assert commands(settings(home)) == [f"{script} hook claude"]


def test_doctor_reports_a_temporary_environment(home: Home) -> None:
    assert home.run("hook", "install").returncode == 0
    line = doctor_on(home, TMPDIR=str(CROSSGATE.parents[2]))
    assert line.startswith("off")
    assert "does not last" in line


def test_doctor_checks_the_folder_of_a_program_on_the_path(home: Home) -> None:
    # The working folder is in the folder of temporary files, the program is not.
    path = f"{CROSSGATE.parent}:{os.environ['PATH']}"
    assert home.run("hook", "install", "--project", PATH=path).returncode == 0
    assert commands(home.path / "work/.claude/settings.json") == ["crossgate hook claude"]
    assert doctor_on(home, PATH=path).startswith("ok")


def test_install_indexes_the_skills_of_the_working_folder_too(home: Home) -> None:
    home.skill("deploy", "Ship the service to the staging cluster.", below="work/.claude")
    assert home.run("hook", "install").returncode == 0
    assert "- deploy" in home.hook(home.call("ship the service to the staging cluster")).context


def test_a_malformed_call_is_not_repaired_by_install(home: Home) -> None:
    assert home.run("hook", "install").returncode == 0
    home.hook(b"no json")
    assert "repairs it" not in home.run("doctor").stdout


def test_a_second_hook_is_reported(home: Home) -> None:
    assert home.run("hook", "install").stderr == ""
    done = home.run("hook", "install", "--project")
    assert f"{settings(home)} calls the hook, too" in done.stderr
    done = home.run("doctor")
    assert f"{home.path / 'work/.claude/settings.json'} and {settings(home)};" in done.stdout


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_opencode_plugin_adds_the_context(home: Home, tmp_path: Path) -> None:
    done = home.run("hook", "install", "--agent", "opencode")
    assert done.returncode == 0, done.stderr
    plugin = home.path / ".config/opencode/plugins/crossgate.js"
    script = tmp_path / "session.mjs"
    script.write_text(
        f"""
        const {{ Crossgate }} = await import({json.dumps("file://" + str(plugin))});
        const plugin = await Crossgate({{ directory: {json.dumps(str(home.path / "work"))} }});
        const said = async (text) => {{
          const parts = [{{ type: "text", text }}];
          await plugin["chat.message"]({{ sessionID: "s" }}, {{ parts }});
          const output = {{ system: [] }};
          await plugin["experimental.chat.system.transform"]({{ sessionID: "s" }}, output);
          return output.system;
        }};
        console.log(JSON.stringify([await said({json.dumps(PDF)}), await said("thanks")]));
        """
    )
    node = subprocess.run(
        ["node", str(script)], capture_output=True, text=True, env=home.environment(), check=False
    )
    assert node.returncode == 0, node.stderr
    first, second = json.loads(node.stdout)
    assert len(first) == 1
    assert "pdf-toolkit" in first[0]
    assert second == []
    tried = home.run("hook", "try", "--agent", "opencode", PDF)
    assert first[0] in tried.stdout
    assert "no settings" not in tried.stdout
    assert home.run("hook", "uninstall", "--agent", "opencode").returncode == 0
    assert not plugin.exists()


@pytest.mark.timeout(20)
def test_hostile_settings_of_a_project_are_read_in_time(tmp_path: Path) -> None:
    """Each took minutes to hours."""
    toml, plain = tmp_path / "config.toml", tmp_path / "settings.json"
    toml.write_text("[features]\nhooks = false\n")
    assert switch_in(toml, AGENTS["codex"]) == "features.hooks: false"
    toml.write_text("a" + ".a" * 500_000 + " = 1\n[features]\nhooks = false\n")
    assert switch_in(toml, AGENTS["codex"]) == ""
    keys = ", ".join(f'"{number}": 1' for number in range(80_000))
    with pytest.raises(InputError, match="'79999' occurs twice"):
        read(plain, f'{{{keys}, "79999": 2}}'.encode())
    hook = {"type": "command", "command": "crossgate " * 80_000}
    plain.write_text(json.dumps({"hooks": {"UserPromptSubmit": [{"hooks": [hook]}]}}))
    assert command_in(plain, AGENTS["claude"]) == ""
