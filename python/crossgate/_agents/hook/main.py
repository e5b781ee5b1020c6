"""The process that an agent starts for one prompt; it always exits with 0.

Agents erase the prompt on exit code 2, and read the answer from stdout. So only a whole answer is
written to stdout, and every path ends in `_leave`.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from crossgate._support.wording import counted

if TYPE_CHECKING:
    from pathlib import Path

    from crossgate._agents.hook.agents import Agent, HookPrompt
    from crossgate._agents.hook.answer import HookAnswer

GIVE_UP_SECONDS = 8.0
"""The hook ends after this time, since the agent waits for it and a disk may hang."""

REPORT_SECONDS = 0.5
"""Maximum time to write the log after `GIVE_UP_SECONDS`."""

STDIN_BYTES = 64 * 1024 * 1024
"""Maximum size of the input; a longer input is read to its end and refused."""

# Faults of a process, then signals that are ignored by default, stop it, or end a failed write.
_LEFT_ALONE = (
    *("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP", "SIGSYS", "SIGEMT"),
    *("SIGCHLD", "SIGCONT", "SIGURG", "SIGWINCH", "SIGINFO"),
    *("SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGKILL", "SIGSTOP"),
    *("SIGPIPE", "SIGXFSZ"),
)
"""Signals that do not end the hook, or that it must not handle."""

_stdout = -1
_writing = False


def main(name: str, arguments: list[str]) -> NoReturn:
    """Answer one prompt of the named agent, and exit with 0."""
    started = time.monotonic()
    try:
        child = _forked() if _is_memory_limited() else 0
        _guard()
        if child:
            _wait(child, name, started)
        else:
            _watch(name)
            _run(name, arguments, started)
    except BaseException as error:  # any exception would change the exit code
        # The system may refuse memory or descriptors to the report, too.
        with suppress(BaseException):
            reason = "no_resources" if _is_refusal(error) else "bug"
            detail = f"{type(error).__name__}: {_first_line(error)}"
            _report(name, started, "failed", reason, detail)
    _leave()


def _is_memory_limited() -> bool:
    """Return whether the system may refuse memory, as after `ulimit -v`."""
    try:
        import resource
    except ImportError:  # on Windows
        return False
    limits = (resource.RLIMIT_AS, resource.RLIMIT_DATA)
    return any(resource.getrlimit(limit)[0] != resource.RLIM_INFINITY for limit in limits)


def _forked() -> int:
    """Fork, and return the child's id; 0 in the child, or if the system refuses a process."""
    with suppress(OSError):
        return os.fork()
    return 0


def _wait(child: int, name: str, started: float) -> None:
    """Wait for the process that answers: libraries abort it where memory is refused."""
    os.close(_stdout)
    _, status = os.waitpid(child, 0)
    if status:
        end = os.waitstatus_to_exitcode(status)
        detail = f"the process ended with {end}, probably because memory ran out: raise `ulimit -v`"
        _report(name, started, "failed", "no_resources", detail)


def _is_refusal(error: BaseException) -> bool:
    """Return whether the system refused a resource, such as memory, a descriptor or a thread."""
    refusals = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EAGAIN)
    return isinstance(error, MemoryError) or (
        isinstance(error, OSError) and error.errno in refusals
    )


def _run(name: str, arguments: list[str], started: float) -> None:
    from crossgate._agents.hook.agents import UnreadableCall, read_hook_prompt, reply
    from crossgate._agents.hook.options import BadHookOptions, parse

    if "-h" in arguments or "--help" in arguments:
        os.dup2(_stdout, 1)
    try:
        options = parse(name, arguments)
        agent = _known(name)
    except SystemExit:  # the help was printed
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        return None
    except BadHookOptions as error:
        return _report(name, started, "failed", "bad_options", str(error))
    try:
        prompt = read_hook_prompt(agent, _read())
    except UnreadableCall as error:
        return _report(name, started, "failed", "bad_input", str(error))

    from crossgate._agents.hook.answer import answer
    from crossgate._agents.hook.skill_library import library_of

    library = library_of(agent, prompt.folder, options.skills)
    answered = answer(agent, prompt, options, library, started=started, log=not prompt.trial)
    if answered.context and answered.outcome == "injected":
        _write(reply(agent, answered.context, prompt.task))
    os.close(_stdout)  # the agent can go on: the rest prepares later prompts
    if not prompt.trial or answered.outcome == "failed":
        _log(name, started, answered, prompt)
    if answered.unscored:
        from crossgate._agents.hook.answer import index_of, log_of
        from crossgate._agents.hook.detached import score_later

        score_later(
            agent.name,
            library.folder,
            prompt.text,
            decision=answered.unscored,
            log=log_of(options),
            index=index_of(options, library),
            profile=options.profile,
        )
    if not options.index and answered.reason not in ("command", "not_a_person", "empty_prompt"):
        from crossgate._agents.hook.detached import refresh_if_stale

        # An unreadable index is rebuilt even if the manifest is up to date.
        refresh_if_stale(
            agent, library, again=answered.reason.startswith(("index_", "not_an_index"))
        )
    return None


def _known(name: str) -> Agent:
    from crossgate._agents.hook.agents import AGENTS
    from crossgate._agents.hook.options import BadHookOptions

    if name not in AGENTS:
        known = ", ".join([*AGENTS, "install", "uninstall", "try"])
        which = f"there is no hook {name[:40]!r}" if name else "which one"
        raise BadHookOptions(f"{which}: choose one of {known}")
    return AGENTS[name]


def _guard() -> None:
    """Keep stdout for the answer, and exit with 0 on signals."""
    global _stdout
    for stream in range(3):
        try:
            os.fstat(stream)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    # Libraries may print to stdout.
    _stdout = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    for number in signal.valid_signals() - {getattr(signal, name, None) for name in _LEFT_ALONE}:
        with suppress(OSError, ValueError):
            signal.signal(number, _interrupted)
    for name in ("SIGPIPE", "SIGXFSZ"):
        with suppress(AttributeError, OSError, ValueError):
            signal.signal(getattr(signal, name), signal.SIG_IGN)


def _watch(hook: str) -> None:
    """Exit with 0 when time is up."""
    watch = threading.Timer(GIVE_UP_SECONDS, _out_of_time, [hook])
    watch.daemon = True
    try:
        watch.start()
    except RuntimeError:  # no more threads for this user or container
        with suppress(AttributeError, OSError, ValueError):
            signal.setitimer(signal.ITIMER_REAL, GIVE_UP_SECONDS)  # SIGALRM ends the process


def _interrupted(*_: object) -> None:
    if not _writing:  # a partial answer would be invalid
        _leave()


def _out_of_time(name: str) -> None:
    # The log may be on the disk that hangs.
    why = f"no answer within {GIVE_UP_SECONDS:g} s"
    with suppress(BaseException):
        report = threading.Thread(
            target=_report, args=(name, 0.0, "failed", "gave_up", why), daemon=True
        )
        report.start()
        report.join(REPORT_SECONDS)
    _leave()


def _leave() -> NoReturn:
    # Not sys.exit: the shutdown of the interpreter takes time and can fail.
    os._exit(0)


def _read() -> bytes:
    parts: list[bytes] = []
    size = 0
    while part := _read_part():
        size += len(part)
        # Read to the end: an agent may treat a broken pipe as a failure.
        if size <= STDIN_BYTES:
            parts.append(part)
    if size > STDIN_BYTES:
        from crossgate._agents.hook.agents import UnreadableCall

        raise UnreadableCall(f"stdin has {counted(size, 'byte')}, at most {STDIN_BYTES:,} are read")
    return b"".join(parts)


def _read_part() -> bytes:
    while True:
        try:
            return os.read(0, 1 << 20)
        except BlockingIOError:  # stdin may be non-blocking
            select.select([0], [], [])


def _write(data: bytes) -> None:
    global _writing
    _writing = True
    with suppress(OSError):  # the pipe is closed, or the disk is full
        while data:
            try:
                data = data[os.write(_stdout, data) :]
            except BlockingIOError:  # stdout may be non-blocking
                select.select([], [_stdout], [])


def _log(name: str, started: float, answered: HookAnswer, prompt: HookPrompt) -> None:
    from crossgate._agents.hook.agents import PROMPT_CHARS

    more: dict[str, Any] = {}
    if answered.reason not in ("command", "not_a_person", "empty_prompt"):
        more["prompt"] = prompt.digest
    if answered.ids:
        more |= {"ids": list(answered.ids), "names": list(answered.names), "form": answered.form}
    if prompt.task is not None:
        more["task"] = True
    if answered.context:
        more["chars"] = len(answered.context)
    if answered.confidence is not None:
        more["confidence"] = round(answered.confidence, 4)
    if answered.late:
        more["late"] = list(answered.late)
    if prompt.length > PROMPT_CHARS:
        more["cut"] = prompt.length
    _report(name, started, answered.outcome, answered.reason, answered.detail, more)


def _report(
    name: str,
    started: float,
    outcome: str,
    reason: str,
    detail: str,
    more: dict[str, Any] | None = None,
) -> None:
    """Append the outcome to the log, and print a failure on stderr."""
    with suppress(Exception):
        if outcome == "failed":
            what = f"hook {name}".strip()
            line = " ".join(f"crossgate: {what}: {reason}: {detail}".split())
            os.write(2, line.encode("ascii", "backslashreplace") + b"\n")
    with suppress(Exception):
        from crossgate._agents.hook.session_state import note

        values: dict[str, Any] = {"agent": name, "outcome": outcome, "reason": reason}
        if detail:
            values["detail"] = detail
        if started:
            values["ms"] = round((time.monotonic() - started) * 1000)
        note(_folder(), values | (more or {}))


def _folder() -> Path:
    from crossgate._agents.hook.skill_library import hook_folder

    return hook_folder()


def _first_line(error: BaseException) -> str:
    try:
        return next(iter(str(error).splitlines()), "")
    except Exception:
        return ""


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
