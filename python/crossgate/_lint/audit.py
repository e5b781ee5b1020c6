"""Audits the text of skills for injection and exfiltration, and grades each document.

The rules recognise forms, not intentions: hidden characters, instructions against the user, tags of
agents, downloads that are run, and secrets near commands that send data. A clean grade does not
mean that a skill is safe.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from crossgate._lint.findings import Finding, cut
from crossgate._lint.locations import Field, Places
from crossgate._retrieval.passages import fenced
from crossgate._values.results import Document

Grade = Literal["clean", "suspect", "hostile"]
GRADES: tuple[Grade, ...] = get_args(Grade)
"""From the mildest to the worst."""

_NEAR = 300
"""A secret and a command that sends data are near if this many characters are between them."""

_QUOTED = 5
"""Maximum number of alarms that a finding quotes."""

_CODES: Mapping[Grade, Any] = {"suspect": "suspect_text", "hostile": "hostile_text"}


@dataclass(frozen=True, slots=True)
class Alarm:
    """A part of a document that a rule matches.

    Attributes:
        grade: `suspect` or `hostile`.
        reason: The reason, as part of a sentence.
        field: The field of the document.
        start: Offset in the field.
        text: The matched text.
    """

    grade: Grade
    reason: str
    field: Field
    start: int
    text: str


_IGNORE = re.compile(
    r"\b(?:ignore|disregard|forget|override|bypass)\b[^.\n\"“'`|]{0,20}\b(?:all|any|the|your|every)?\s*"
    r"\b(?:previous|prior|above|earlier|preceding|system|developer|safety)\s+"
    r"(?:instructions?|prompts?|rules|messages?|guidelines|directives|constraints|polic(?:y|ies))",
    re.IGNORECASE,
)
_SECRECY = re.compile(
    r"\b(?:do not|don['’]t|never|without)\s+"
    r"(?:tell(?:ing)?|inform(?:ing)?|alert(?:ing)?|notify(?:ing)?|warn(?:ing)?|"
    r"reveal(?:ing)?(?: (?:this|it))? to|mention(?:ing)?(?: (?:this|it))? to|"
    r"show(?:ing)?(?: (?:this|it))? to)\s+(?:the |your )?(?:user|human|person|operator)\b"
    r"(?!\s+(?:to|that (?:it|they|the)|how|which|what)\b)",
    re.IGNORECASE,
)
_NO_CONSENT = re.compile(
    r"\b(?:do not|don['’]t|never)\s+ask\s+(?:the |your )?(?:user|human)?\s*(?:for\s+)?"
    r"(?:permission|approval|consent|authori[sz]ation)\b|"
    r"\bthe user (?:has )?(?:already )?(?:approved|authori[sz]ed|consented to) (?:all|every|any)",
    re.IGNORECASE,
)
_ANSWERS_FOR_SYSTEM = re.compile(
    r"</?(?:system-reminder|system_prompt|system-prompt|user-prompt-submit-hook|"
    r"function_calls|antml:[a-z_]+)\b[^>\n]*>|<\|(?:im_start|im_end|system|endoftext)\|>|"
    r"\[/?INST\]|<</?SYS>>",
    re.IGNORECASE,
)
_SPEAKER = re.compile(r"^(?:SYSTEM|Human|Assistant)\s*:\s*\S", re.MULTILINE)
_DOWNLOAD = r"\b(?:curl|wget|iwr|irm|Invoke-WebRequest|Invoke-RestMethod)\b[^\n|;]{0,300}"
_SHELL = (
    r"(?:sudo\s+(?:-\S+\s+)*)?(?:env\s+|/\w[\w/]{0,40}/)?(?:ba|z|da|k|fi)?sh\b|"
    r"iex\b|Invoke-Expression\b"
)
_PIPED = re.compile(
    rf"{_DOWNLOAD}\|\s*(?:{_SHELL}|(?:sudo\s+)?(?:python3?|perl|ruby|node)\b)", re.I
)
_PROCESS = re.compile(rf"(?:{_SHELL})\s+(?:-c\s+[\"']?)?(?:<\(|\$\(|`)\s*{_DOWNLOAD}", re.I)
_UNTRUSTED_URL = re.compile(
    r"http://(?!localhost\b|127\.|\[::1\])|https?://(?:\d{1,3}\.){3}\d{1,3}\b|"
    r"https?://(?:bit\.ly|tinyurl\.com|t\.co|is\.gd|goo\.gl|pastebin\.com|transfer\.sh|0x0\.st|"
    r"[\w-]+\.ngrok\S*|webhook\.site|[\w.-]+\.onion)\b",
    re.IGNORECASE,
)
_DECODED = re.compile(
    rf"\b(?:base64\s+(?:-d|-D|--decode)|xxd\s+-r|openssl\s+(?:enc|base64)\s+-d)[^\n|]{{0,200}}"
    rf"\|\s*(?:{_SHELL})",
    re.IGNORECASE,
)
_SECRET = re.compile(
    r"(?:~|\$HOME|\$\{HOME\}|%USERPROFILE%|/root|/home/\w+)[/\\]"
    r"(?:\.ssh[/\\](?:id_\w+|\*|authorized_keys)?|\.aws[/\\]credentials|\.netrc|\.npmrc|\.pypirc|"
    r"\.docker[/\\]config\.json|\.kube[/\\]config|\.gnupg|\.git-credentials|"
    r"\.config[/\\]gcloud|\.claude[/\\]\.credentials\.json|\.codex[/\\]auth\.json|\.bash_history)|"
    r"/etc/shadow\b|\b(?:Login Data|Cookies|key4\.db|logins\.json)\b|\bprintenv\b|"
    r"(?<![\w.-])\.env\b(?!\.(?:example|sample|template))",
)
_SENDS = re.compile(
    r"\bcurl\b[^\n]{0,300}?(?:\s-d\b|\s--data\S*|\s-F\b|\s--form\b|\s-T\b|\s--upload-file\b|\s-X\s*POST\b)|"
    r"\bwget\b[^\n]{0,300}?--post-(?:data|file)|\b(?:nc|ncat|netcat|socat)\s+(?:-\w+\s+)*\S+\s+\d{2,5}\b|"
    r"\bInvoke-(?:WebRequest|RestMethod)\b[^\n]{0,300}?-Method\s+POST|requests\.(?:post|put)\(|"
    r"https?://(?:webhook\.site|[\w.-]*requestbin|[\w-]+\.ngrok|pastebin\.com|transfer\.sh|0x0\.st)\S*",
    re.IGNORECASE,
)
_INSTRUCTED_SENDING = re.compile(
    r"\b(?:send|upload|post|exfiltrate|transmit|forward|e-?mail)\b[^.\n]{0,60}"
    r"\b(?:credentials?|passwords?|api[ _-]?keys?|tokens?|secrets?|private keys?|\.env|ssh keys?|"
    r"environment variables)\b[^\n]{0,60}?\bto\s+(?:https?://|[\w.+-]+@[\w-]+\.)",
    re.IGNORECASE,
)
_IMAGE = re.compile(
    r"!\[[^\]\n]*\]\(https?://[^)\s]*[?&]\w+=(?:\{|\$|<|%7B)[^)\s]*\)", re.IGNORECASE
)
_TAG_CHARACTERS = re.compile("[\U000e0001-\U000e007f]+")
_SELECTORS = re.compile("[\ufe00-\ufe0d\U000e0100-\U000e01ef]{2,}")
_OVERRIDES = re.compile("[\u202d\u202e\u2066-\u2068]")
_ZERO_WIDTH = re.compile(
    "(?<=[A-Za-z])[\u200b-\u200d\u2060-\u2064\ufeff\u00ad](?=[A-Za-z])|"
    "[\u200b\u2060-\u2064\ufeff]{3,}|[\u115f\u1160\u3164\uffa0]"
)
_MANY_HIDDEN = 8

_RULES: tuple[tuple[Grade, re.Pattern[str], str], ...] = (
    ("hostile", _TAG_CHARACTERS, "has invisible tag characters, which spell a hidden text"),
    ("hostile", _SELECTORS, "has rows of variation selectors, which can encode a hidden text"),
    ("suspect", _OVERRIDES, "has bidirectional controls, which change the order of the text"),
    ("suspect", _ZERO_WIDTH, "has invisible characters in words"),
    ("hostile", _IGNORE, "tells the agent to ignore its instructions"),
    ("hostile", _SECRECY, "tells the agent to hide something from the user"),
    ("suspect", _NO_CONSENT, "tells the agent not to ask for permission"),
    ("suspect", _ANSWERS_FOR_SYSTEM, "imitates a tag of an agent or model"),
    ("suspect", _SPEAKER, "imitates a message of the system or the user"),
    ("suspect", _PIPED, "pipes a download into a shell"),
    ("suspect", _PROCESS, "runs a download in a shell"),
    ("hostile", _DECODED, "runs decoded text in a shell"),
    ("hostile", _INSTRUCTED_SENDING, "sends credentials to an address"),
    ("suspect", _IMAGE, "puts values into the address of an image"),
)


def audit(document: Document) -> list[Alarm]:
    """Return the alarms of a document, in the order of the text."""
    found: list[Alarm] = []
    for field in ("text", "body"):
        value: str = getattr(document, field)
        in_code = _code_ranges(value)
        for grade, pattern, reason in _RULES:
            for match in pattern.finditer(value):
                actual = _adjusted(grade, pattern, match, in_code)
                if actual != "clean":
                    found.append(Alarm(actual, reason, field, match.start(), match[0]))
        found += _sent_secrets(value, field)
    return sorted(found, key=lambda alarm: (alarm.field != "text", alarm.start, alarm.reason))


def grade_of(alarms: list[Alarm]) -> Grade:
    """Return the worst grade."""
    return max((alarm.grade for alarm in alarms), key=GRADES.index, default="clean")


def alarms_as_findings(
    document: Document, alarms: list[Alarm], places: Places
) -> Iterator[Finding]:
    """Yield one finding for each grade of the alarms of a document."""
    for grade in ("hostile", "suspect"):
        listed = [alarm for alarm in alarms if alarm.grade == grade]
        if not listed:
            continue
        evidence = tuple(
            places.at(document, alarm.field, alarm.start, f"{_shown(alarm.text)}: {alarm.reason}")
            for alarm in listed[:_QUOTED]
        )
        reasons = list(dict.fromkeys(alarm.reason for alarm in listed))
        yield Finding(
            code=_CODES[grade],
            severity="error" if grade == "hostile" else "info",
            id=document.id,
            others=(),
            file=places.file(document.id),
            line=evidence[0].line,
            message=f"{document.id} {'; it '.join(reasons)}",
            evidence=evidence,
            advice="Read these lines before an agent does; remove them or the skill.",
            hurt=1.0 if grade == "hostile" else 0.5,
        )


def _adjusted(
    grade: Grade, pattern: re.Pattern[str], match: re.Match[str], in_code: Callable[[int], bool]
) -> Grade:
    """Return the grade of a match in its context."""
    if pattern in (_PIPED, _PROCESS) and _UNTRUSTED_URL.search(match[0]):
        return "hostile"
    if pattern is _ZERO_WIDTH and len(pattern.findall(match.string)) >= _MANY_HIDDEN:
        return "hostile"
    if pattern in (_IGNORE, _SECRECY, _SPEAKER, _ANSWERS_FOR_SYSTEM) and _is_quoted(match, in_code):
        # Skills about prompts and security quote such texts.
        return "suspect" if grade == "hostile" else "clean"
    return grade


def _is_quoted(match: re.Match[str], in_code: Callable[[int], bool]) -> bool:
    """Return whether a match is in code, in quotation marks or in a table."""
    if in_code(match.start()):
        return True
    text = match.string
    line_start = text.rfind("\n", max(0, match.start() - _NEAR), match.start()) + 1
    before = text[max(line_start, match.start() - _NEAR) : match.start()]
    return (
        before.lstrip().startswith(("|", ">"))
        or before.count('"') % 2 == 1
        or before.count("`") % 2 == 1
        or before.count("“") > before.count("”")
    )


def _sent_secrets(value: str, field: Field) -> Iterator[Alarm]:
    """Yield secrets that are near a command that sends data."""
    sends = [match.span() for match in _SENDS.finditer(value)]
    starts = [start for start, _ in sends]
    for secret in _SECRET.finditer(value):
        nearest = bisect_left(starts, secret.start() - 2 * _NEAR)
        for start, end in sends[nearest : bisect_left(starts, secret.start() + _NEAR)]:
            if secret.start() <= end + _NEAR:
                same_line = "\n" not in value[min(start, secret.start()) : max(end, secret.end())]
                grade: Grade = "hostile" if same_line else "suspect"
                reason = "reads a secret near a command that sends data"
                yield Alarm(grade, reason, field, secret.start(), secret[0])
                break


def _code_ranges(value: str) -> Callable[[int], bool]:
    ranges: list[tuple[int, int]] = []
    start = 0
    for fence, line in fenced(value):
        if fence:
            ranges.append((start, start + len(line)))
        start += len(line)
    return lambda at: any(first <= at < last for first, last in ranges)


def _shown(text: str) -> str:
    visible = "".join(
        character if character.isprintable() else f"\\u{ord(character):04x}" for character in text
    )
    return f'"{cut(visible, 80)}"'
