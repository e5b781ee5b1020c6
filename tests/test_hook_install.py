"""Setting the prompt hook up and taking it away: settings stay whole, and what is set up works."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hook_home import PDF, Home, furnished

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


def commands(path: Path) -> list[str]:
    groups = json.loads(path.read_text())["hooks"]["UserPromptSubmit"]
    return [hook["command"] for group in groups for hook in group["hooks"]]


def test_what_is_entered_is_what_works(home: Home) -> None:
    done = home.run("hook", "install")
    assert (done.returncode, done.stderr) == (0, "")
    assert "4 skills" in done.stdout
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


def test_other_settings_stay_and_a_second_time_changes_nothing(home: Home) -> None:
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
    # Other options take the place of the earlier ones.
    assert home.run("hook", "install", "--inject", "name").returncode == 0
    assert next(one for one in commands(path) if "crossgate" in one).endswith("--inject name")
    assert len(commands(path)) == 2

    assert json.loads(home.run("hook", "uninstall", "--json").stdout)["removed"] is True
    assert json.loads(path.read_text()) == OTHERS
    assert json.loads(home.run("hook", "uninstall", "--json").stdout)["removed"] is False


@pytest.mark.parametrize(
    "text",
    [
        '{\n  // mine\n  "model": "opus"\n}',
        '{"model": "opus",}',
        "[]",
        '{"hooks": []}',
        '{"hooks": {"UserPromptSubmit": {}}}',
        '{"model": 1, "model": 2}',
        "not json",
    ],
)
def test_settings_that_are_no_plain_json_stay_as_they_are(home: Home, text: str) -> None:
    path = settings(home, text)
    for command in ("install", "uninstall"):
        done = home.run("hook", command)
        if command == "uninstall" and done.returncode == 0:
            continue  # nothing of ours was in it
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


def test_a_project_gets_a_hook_of_its_own(home: Home) -> None:
    work = home.path / "work"
    home.skill("deploy", "Ship the service to the staging cluster.", below="work/.claude")
    done = home.run("hook", "install", "--project")
    assert done.returncode == 0, done.stderr
    assert not settings(home).exists()
    assert len(commands(work / ".claude/settings.json")) == 1
    assert "deploy" in home.hook(home.call("ship the service to the staging cluster")).context


def test_without_skills_nothing_is_entered(tmp_path: Path) -> None:
    home = furnished(tmp_path / "home", {})
    done = home.run("hook", "install")
    assert done.returncode == 2
    assert "error[no_documents]" in done.stderr
    assert "--skills FOLDER" in done.stderr
    assert not settings(home).exists()


def test_doctor_shows_what_the_hook_does(home: Home) -> None:
    assert "hook claude" not in home.run("doctor").stdout
    assert home.run("hook", "install").returncode == 0
    assert home.hook(home.call("what did you change?")).context == ""
    assert "hook claude: 1 of the last 2 prompts got a skill" in home.run("doctor").stdout
    home.hook(b"no json")
    done = home.run("doctor")
    assert done.returncode == 3
    assert "the last failed: bad_input: stdin is not JSON" in done.stdout


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_plug_in_of_opencode_tells_the_model(home: Home, tmp_path: Path) -> None:
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
    assert home.run("hook", "uninstall", "--agent", "opencode").returncode == 0
    assert not plugin.exists()
