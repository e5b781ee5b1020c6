"""Context and material: the same input gives the same decision through every surface."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import crossgate._core as _core
import crossgate._decision.rerank_candidates as rerank_module
from commands import CROSSGATE
from conftest import build
from crossgate import Context, CrossgateError, InputError, ModelError, Router, rerank
from crossgate._agents.hook.agents import AGENTS, read_hook_prompt
from crossgate._agents.hook.answer import _context
from crossgate._reranking.contract import NO_DEADLINE, Deadline
from crossgate._retrieval.document_index import bundled_embedder
from crossgate._sources.transcripts import last_requests
from crossgate._values.agent_prompts import is_command, words_of
from hook_home import Home

SKILLS = {
    "dotnet-review": "Review C# and .NET code for performance: structs, spans and allocations.",
    "rust-review": "Review Rust code for performance: structs, borrows and allocations.",
    "translate": "Translate texts and menus between languages.",
    "pdf-tools": "Merge, split and rotate PDF files.",
}
QUERY = "review this data size formatting struct for performance"
HISTORY = ("translate the menu into Polish", "thanks")
FOLLOW_UP = "and the same for the dessert card"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("context") / "skills.cgx"
    build(SKILLS, embedder="default").save(path)
    return path


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "Cargo.toml").write_text("[package]\nname = 'a'\n")
    return folder


def first(result: Any) -> str:
    return str(result.hits[0].id)


def outcome(values: dict[str, Any]) -> tuple[list[str], float]:
    """Return the picks and the confidence of a decision as JSON."""
    return values["selected"], round(values["confidence"], 6)


def test_a_project_prefers_the_document_for_its_technology(index: Path) -> None:
    router = Router(index, reranker=None)
    for technology, right in (("dotnet", "dotnet-review"), ("rust", "rust-review")):
        context = Context(technologies=(technology,))
        assert first(router.route(QUERY, context=context)) == right
        assert [first(one) for one in router.route_many([QUERY] * 2, context=context)] == [
            right
        ] * 2


def test_follow_up_selects_the_document_of_the_previous_request(index: Path) -> None:
    router = Router(index, reranker=None)
    context = Context(history=HISTORY)
    assert first(router.route(FOLLOW_UP, context=context)) == "translate"
    other = Context(history=("merge both pdf files",))
    assert first(router.route(FOLLOW_UP, context=other)) == "pdf-tools"


def test_a_remark_does_not_count_as_an_earlier_request(index: Path) -> None:
    router = Router(index, reranker=None)
    shorter = router.route(FOLLOW_UP, context=Context(history=HISTORY[:1]))
    for remark in (HISTORY[1], *STOPS):
        history = (HISTORY[0], remark)
        trace = router.route(FOLLOW_UP, context=Context(history=history)).trace
        assert [row["weight"] > 0 for row in trace["context"]["history"]] == [True, False], remark
        assert trace["stage1"] == shorter.trace["stage1"], remark


def test_a_request_that_stands_alone_does_not_change_with_the_conversation(index: Path) -> None:
    router = Router(index, reranker=None)
    query = "merge these three PDF files into one document for the notary"
    alone, after = router.route(query), router.route(query, context=Context(history=HISTORY))
    assert (alone.ids, first(alone)) == (after.ids, first(after))


EARLIER = (
    "rotate the scanned pdf files",
    "thanks",
    "translate the menu into Polish",
    "review the Rust code of the parser",
    "merge both pdf files",
)
COURTESIES = (
    "thanks a lot, that was lovely",
    "excellent, thank you",
    "hello again",
    "good evening",
    "no",
    "okay",
    "yes, go ahead",
    "sure, sounds good",
    "exactly right!",
    "no problem at all",
    "wow, brilliant",
)
REMARKS = (
    "I need some help now",
    "are you a real person",
    "do you like your work",
    "I really enjoy working with you",
    "my brother and I are going out for a walk",
    "you made my evening",
    "I will ask my doctor about that",
)
STOPS = ("wait", "stop", "hold on", "no rush", "never mind")
FOREIGN = (
    "Prüfe den Vertrag",
    "Räume die Tabelle auf",
    "ouvre le classeur",
    "corrige la faute",
    "borra la columna",
    "controleer de rekening",
    "検索を直してください",
    "проверь договор",
)


@pytest.mark.parametrize("count", range(1, 6))
def test_courtesies_select_nothing_after_any_conversation(index: Path, count: int) -> None:
    router = Router(index)
    context = Context(history=EARLIER[-count:])
    assert router.route("and the second one too", context=context).ids == ["pdf-tools"]
    for prompt in (*COURTESIES, *REMARKS, *STOPS):
        assert router.route(prompt, context=context).ids == [], prompt


@pytest.mark.parametrize("count", range(1, 6))
def test_remarks_and_other_languages_do_not_change_with_the_conversation(
    index: Path, count: int
) -> None:
    router = Router(index)
    context = Context(history=EARLIER[-count:])
    for prompt in (*COURTESIES, *STOPS, *FOREIGN):
        alone, after = router.route(prompt), router.route(prompt, context=context)
        assert (after.ids, after.any_fits) == (alone.ids, alone.any_fits), prompt


@pytest.mark.parametrize(
    "prompt", ["now in German", "do the same for the other file", "and the second one too"]
)
def test_short_prompts_continue_their_request(index: Path, prompt: str) -> None:
    router = Router(index)
    for request, right in (("merge these pdf files", "pdf-tools"), (HISTORY[0], "translate")):
        context = Context(history=("review the Rust code", request, "thanks"))
        assert first(router.route(prompt, context=context)) == right


def test_rerank_uses_the_context() -> None:
    candidates = [{"id": id, "title": id, "text": text} for id, text in SKILLS.items()]
    context = Context(history=HISTORY)
    found = rerank(FOLLOW_UP, candidates, reranker=None, embed=True, context=context)
    assert first(found) == "translate"
    assert found.trace["context"]["history"][0]["weight"] > 0
    with pytest.raises(InputError, match="context is"):
        rerank(FOLLOW_UP, candidates, context={"history": []})  # type: ignore[arg-type]


def test_rerank_without_vectors_of_the_conversation_reads_its_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    embedder = bundled_embedder()

    class FailingLater:
        """The bundled embedder, which fails from its second call on."""

        calls = 0

        def embed(self, texts: list[str], progress: Any = None) -> Any:
            self.calls += 1
            if self.calls > 1:
                raise ModelError("model_unreadable", "the model is gone")
            return embedder.embed(texts)

    failing = FailingLater()
    monkeypatch.setattr(rerank_module, "bundled_embedder", lambda: failing)
    candidates = [{"id": id, "title": id, "text": text} for id, text in SKILLS.items()]
    found = rerank(
        FOLLOW_UP, candidates, reranker=None, embed=True, context=Context(history=HISTORY)
    )
    assert first(found) == "translate"
    assert "embedder_unavailable" in [note.code for note in found.degraded]


def test_the_trace_gives_each_repeated_request_its_own_weight(index: Path) -> None:
    context = Context(history=(HISTORY[0], "thanks", HISTORY[0], "", HISTORY[0]))
    rows = Router(index, reranker=None).route(FOLLOW_UP, context=context).trace["context"]
    weights = [row["weight"] for row in rows["history"]]
    assert weights[1] == 0.0
    assert 0.0 < weights[0] < weights[2] < weights[4]


def test_trace_and_log_hold_no_text_of_the_conversation(index: Path, tmp_path: Path) -> None:
    from crossgate.telemetry import JsonLinesLog

    log = tmp_path / "log.jsonl"
    router = Router(index, reranker=None, telemetry=JsonLinesLog(log))
    context = Context(technologies=("rust",), history=("translate the secret menu",))
    result = router.route(FOLLOW_UP, context=context, material="classified: alpha")
    assert result.trace["context"]["technologies"] == ["rust"]
    assert len(result.trace["context"]["history"][0]["sha256"]) == 64
    for text in (json.dumps(result.trace), log.read_text()):
        assert "secret" not in text
        assert "classified" not in text


def test_the_command_decides_as_the_library(index: Path, project: Path) -> None:
    context = Context.of_folder(project, history=HISTORY)
    expected = Router(index).route(FOLLOW_UP, context=context).to_dict()
    options = [option for text in HISTORY for option in ("--history", text)]
    line: list[str | Path] = [CROSSGATE, "route", FOLLOW_UP, "-i", index]
    line += ["--project", project, *options]
    done = subprocess.run([*line, "--json"], capture_output=True, text=True, check=False)
    assert outcome(json.loads(done.stdout)) == outcome(expected)
    done = subprocess.run(
        [CROSSGATE, "route", "x", "-i", index, "--project", project / "no"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "no such folder" in done.stderr


def test_the_server_decides_as_the_library(index: Path) -> None:
    pytest.importorskip("fastapi", reason="the extra serve is not installed")
    from test_serve import serving

    context = Context(technologies=("rust",), history=HISTORY)
    fields = {"technologies": ["rust"], "history": list(HISTORY)}
    expected = Router(index).route(FOLLOW_UP, context=context).to_dict()
    with serving("--port", "0", "--index", str(index)) as served:
        answer = served.post("/route", {"query": FOLLOW_UP, "context": fields})
        assert outcome(answer.json()) == outcome(expected)
        texts = list(SKILLS.values())
        ranked = rerank(FOLLOW_UP, texts, context=context, material="a menu")
        body = {"query": FOLLOW_UP, "context": fields, "material": "a menu"}
        for more in ({"texts": texts}, {"documents": texts}):
            rows = served.post("/rerank", {**body, **more}).json()
            rows = rows if isinstance(rows, list) else rows["results"]
            assert rows[0]["index"] == ranked.hits[0].index
        refused = served.post("/route", {"query": "x", "context": {"history": "one text"}})
        assert refused.status_code == 400


def test_the_mcp_tool_decides_as_the_library(index: Path) -> None:
    pytest.importorskip("mcp", reason="the extra mcp is not installed")
    from test_mcp import with_client

    router = Router(index)
    context = Context(technologies=("rust",), history=HISTORY)
    expected = router.route(FOLLOW_UP, limit=1, context=context)

    async def act(asked: Any) -> None:
        given = {"prompt": FOLLOW_UP, "technologies": ["rust"], "history": list(HISTORY)}
        found = (await asked.call_tool("find_skill", given)).structured_content
        assert [hit["id"] for hit in found["selected"]] == expected.ids
        assert found["confidence"] == pytest.approx(expected.confidence)

    with_client(act, "--index", str(index))


def lines(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def said(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "user", "message": {"role": "user", "content": text}, **more}


def test_last_requests_are_those_of_the_person(tmp_path: Path) -> None:
    path = tmp_path / "transcript.jsonl"
    path.write_text(
        lines(
            said("split the contract"),
            said("write it for me", isSidechain=True),
            {"type": "assistant", "message": {"content": [{"type": "text", "text": "done"}]}},
            said("<task-notification>finished</task-notification>"),
            said("/compact"),
        )
        + '{broken "user"\n'
        + lines(said("and page two"))
    )
    assert last_requests(path) == ["split the contract", "and page two"]
    assert last_requests(path, most=1) == ["and page two"]
    assert last_requests(path, tail=80) == ["and page two"]


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "unit", ["message ", "<ide_a> ", "<context>a</context>", "<context>", "\n<user_message>"]
)
def test_the_words_of_a_long_prompt_are_found_in_linear_time(unit: str) -> None:
    words_of("[system " + unit * (1_000_000 // len(unit)))


@pytest.mark.parametrize(
    "text",
    [
        "<task-notification>\n<status>done</status>",
        "<teammate-message from='a'>hello</teammate-message>",
        "<cross-session-message from='b'>hello</cross-session-message>\nNot typed by your user.",
        "<subagent_result>3 files</subagent_result>",
        "<command-message>deploy</command-message>\n<command-name>/deploy</command-name>",
        "<system-reminder>cut off",
        "<git_status>clean</git_status>\n<user_info>linux</user_info>",
        "[subagent report] all tests pass",
        "[Subagent hand-back] The text below is the final report of a subagent.",
        "[SYSTEM NOTIFICATION - NOT USER INPUT]\nThis is an automated event.",
        "This session is being continued from a previous conversation that ran out of context.",
        "Another Claude session sent a message:\nare you done?",
        "Stop hook feedback:\n2 tests fail",
        "<ide_opened_file>a.py</ide_opened_file>\nStop hook feedback:\n2 tests fail",
        "SubagentStop hook feedback: 2 tests fail",
        "# AGENTS.md instructions for /home/me/work",
        "# Files mentioned by the user:\n\n## a.png: /tmp/a.png",
        # Cline and Roo Code
        "[ERROR] You did not use a tool in your previous response! Please retry.",
        "[execute_command for 'npm test'] Result:\n3 tests failed",
        "[new_task completed] Result: done",
        "[TASK RESUMPTION] This task was interrupted an hour ago.",
        "[ERROR] Missing value for required parameter 'path'. Please retry.",
        # Gemini CLI, Antigravity and Windsurf
        "System: Please continue.",
        "Here is the user's editor context as a JSON object.\n```json\n{}\n```",
        "Here is a summary of changes in the user's editor context, in JSON format.\n{}",
        "<state_snapshot>\n<overall_goal>ship</overall_goal>\n</state_snapshot>",
        "The following is an <EPHEMERAL_MESSAGE> not actually sent by the user.",
        # Codex and Copilot
        "Another language model started to solve this problem and produced a summary.",
        "<skill>\n<name>pdf</name>\nMerge files.\n</skill>",
        "Warning: apply_patch was requested via exec_command.",
        "<system_notification>\nAgent explore-1 has completed.\n</system_notification>",
        # opencode and its plug-ins
        "Summarize the task tool output above and continue with your task.",
        "Continue if you have next steps, or stop and ask for clarification.",
        "The following tool was executed by the user",
        "[SYSTEM DIRECTIVE: TODO CONTINUATION]\n\n2 of 5 tasks remain.",
        "[BACKGROUND TASK RESULT READY]\nexplore finished in 12 s.",
        "Use the above message and context to generate a prompt and call the task tool.",
        # aider
        "I have *added these files to the chat* so you can go ahead and edit them.",
        "Here are summaries of some files present in my git repository.",
        "I ran this command:\n\npytest\n\nAnd got this output:\n\n3 failed",
        "# Fix any linting errors below, if possible.",
        # OpenHands, hooks and schedules
        "Please continue on whatever approach you think is suitable.",
        "PreToolUse:Bash hook additional context: the branch is main",
        "[Scheduled task: nightly] Run the report.",
    ],
)
def test_prompts_of_agents_have_no_words_of_a_person(text: str) -> None:
    assert words_of(text) == ""


@given(
    st.lists(
        st.sampled_from(["<a_b>", "</a_b>", "<ide_x>", "</ide_x>", "<task y='1'>", "</task>", "<"])
        | st.text(max_size=5)
    ).map("".join)
)
def test_any_tags_are_read(text: str) -> None:
    words = words_of(text)
    assert len(words) <= len(text)
    if "<" not in text:
        assert words == text


WORDS = "tidy the <b>first</b> page and number the rest"


@pytest.mark.parametrize(
    "text",
    [
        f"<ide_opened_file>The user opened a.py.</ide_opened_file>\n{WORDS}",
        f"\ufeff<ide_selection>x = <y></ide_selection><system-reminder>z</system-reminder>{WORDS}",
        f"{WORDS}\n\n<environment_details>\n# Open tabs\n</environment_details>",
        f"<task>{WORDS}</task>\n<environment_details>cwd</environment_details>",
        f"<additional_data><rules>r</rules></additional_data>\n<user_query>\n{WORDS}\n</user_query>",
        f"<context>today</context><editorContext>a</editorContext><userRequest>{WORDS}</userRequest>",
        f"<USER_REQUEST>\n{WORDS}\n</USER_REQUEST>\n<USER_SETTINGS>9</USER_SETTINGS>",
        f"<unheard-of note='1'>x</unheard-of>\n{WORDS}",
        WORDS.replace(" and", "<system-reminder>\nx\n</system-reminder> and"),
        f"# Context from my IDE setup:\n\n## Open tabs:\n\n## My request for Codex:\n{WORDS}",
        f"{WORDS}\n--- Content from referenced files ---\nx\n--- End of content ---",
        # Cline and Roo Code
        f"[TASK RESUMPTION] Interrupted.\n<user_message>\n{WORDS}\n</user_message>",
        f"Command is still running in a.\n<feedback>\n{WORDS}\n</feedback>",
        f"The user denied this operation:\n<feedback>\n{WORDS}\n</feedback>",
        f"[ask_followup_question for 'a?'] Result:\n<answer>\n{WORDS}\n</answer>",
        f"<explicit_instructions type='a'>x</explicit_instructions>\n<task>{WORDS}</task>",
        f"<user_message>\n{WORDS}\n</user_message>\n\n====\n\nREMINDERS\n\n| # | Content |",
        # Copilot
        f"<current_datetime>9</current_datetime>\n{WORDS}\n<reminder>\n<a_b>x</a_b>\n</reminder>",
        f'<attachment id="a.md">x</attachment>\n<ideState>y</ideState>\n<prompt>{WORDS}</prompt>',
        f"<toolReferences>a</toolReferences>\n<problem_statement>{WORDS}</problem_statement>",
        # opencode and its plug-ins
        f'{WORDS}\nCalled the Read tool with the following input: {{"a": 1}}\n<file>\nx\n</file>',
        f"<analyze-mode>\nGather context first.\n</analyze-mode>\n\n---\n\n{WORDS}",
        # Windsurf, Amp, Goose and Kiro
        f"<MEMORY[rules.md]>\nx\n</MEMORY[rules.md]>\n{WORDS}",
        f"<attachedFiles>\n```a.md\nx\n```\n</attachedFiles>\n{WORDS}\n<user-state>x</user-state>",
        f"{WORDS}\n<info-msg>\nIt is currently 10:00\n</info-msg>\n<gitDiff>+ a</gitDiff>",
        f"{WORDS}\n<EnvironmentContext>\n<OPEN-FILES>a</OPEN-FILES>\n</EnvironmentContext>",
        f"## Included Rules (a.md) [Workspace]\n\n<user-rule id=a.md>x</user-rule>\n\n{WORDS}",
        f"--- CONTEXT ENTRY BEGIN ---\nx\n--- CONTEXT ENTRY END ---\n\n"
        f"--- USER MESSAGE BEGIN ---\n{WORDS}\n--- USER MESSAGE END ---",
        # Kimi, Crush and Zed
        f"<system>The user ran ls.</system>{WORDS}\n<file path='a.md'>\nx\n</file>",
        f"<context>\n<files>\n```a.md\nx\n```\n</files>\n</context>\n{WORDS}",
        WORDS,
    ],
)
def test_additions_of_editors_are_left_out(text: str) -> None:
    assert words_of(text) == WORDS


@pytest.mark.parametrize(
    "text",
    [
        "<div> is not closed, fix the page",
        "<div>a</div> is too wide",
        "<my-button> is not shown",
        "<my-button>a</my-button>",
        "<context>a letter</context><rules>in Latin</rules>",
        "why does this fail? <my-button>a</my-button>",
        "[WIP] rename this branch",
        "[task] the system update page is blank",
        "[ERROR] Failed to execute goal, why?",
        "System: Windows 11. The build fails.",
        "Here are some files, summarise them",
        "I ran this command and it failed: make",
        "I ran this command:\n\nmake\n\nWhy does it fail?",
        "hook success is not logged",
        "parse <user_message>hi</user_message> in Go",
        "agent report",
        " \n",
        "",
    ],
)
def test_what_a_person_writes_is_not_changed(text: str) -> None:
    assert words_of(text) == text


@pytest.mark.parametrize(
    "text", ["/deploy staging", "/tools:merge a.pdf", "/clear", "\ufeff/clear", "$tidy it", "! ls"]
)
def test_commands_are_recognised(text: str) -> None:
    assert is_command(text)


@pytest.mark.parametrize(
    "text",
    [
        "/app.json is broken",
        "/usr/bin/env: no such file",
        "/tmp is full",
        "$PATH is empty",
        "$5 off",
    ],
)
def test_paths_and_variables_are_no_commands(text: str) -> None:
    assert not is_command(text)


@pytest.mark.parametrize(
    "text",
    [
        "<a_b>x</a_b>" * 6_000,
        "x" + "<a_b>x</a_b>" * 6_000,
        "<agent_" * 9_000,
        " " * 60_000 + "</a_b>",
        "[task " + "message " * 24_000,
    ],
)
def test_tags_without_end_take_no_time(text: str) -> None:
    start = perf_counter()
    words_of(text)
    assert perf_counter() - start < 5


def test_the_hook_knows_project_and_conversation(tmp_path: Path) -> None:
    home = Home(tmp_path)
    work = tmp_path / "work"
    work.mkdir()
    (work / "app.csproj").write_text("<Project/>")
    (tmp_path / "transcript.jsonl").write_text(lines(said("translate the menu"), said("and now")))
    prompt = read_hook_prompt(AGENTS["claude"], home.call("and now"))
    context = Context(technologies=("dotnet",), history=("translate the menu",))
    assert _context(prompt, NO_DEADLINE) == (context, [])
    read, late = _context(prompt, Deadline(0))
    assert (read, [note.code for note in late]) == (context, ["budget"])


@pytest.mark.parametrize("odd", ["", "/dev/zero", "nowhere", "loop"])
def test_an_unreadable_context_leaves_the_prompt_alone(tmp_path: Path, odd: str) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    path = odd if odd.startswith("/") or not odd else str(tmp_path / odd)
    call = Home(tmp_path).call("x", cwd=path, transcript_path=path)
    prompt = read_hook_prompt(AGENTS["claude"], call)
    assert _context(prompt, NO_DEADLINE) == (Context(), [])


def test_of_folder_names_a_folder_that_cannot_be_listed(tmp_path: Path) -> None:
    with pytest.raises(CrossgateError, match="no such folder"):
        Context.of_folder(tmp_path / "no")
    with pytest.raises(CrossgateError, match="cannot be listed"):
        Context.of_folder("/dev/null")


def test_a_context_takes_every_technology_that_a_project_can_have() -> None:
    assert Context(technologies=tuple(_core.technologies())).technologies


def test_context_refuses_values_other_than_lists_of_texts() -> None:
    for bad in ("rust", [1], ["x"] * 129):
        with pytest.raises(InputError):
            Context(technologies=bad)  # type: ignore[arg-type]
