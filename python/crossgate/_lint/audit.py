"""Audits the text of skills for injection and exfiltration, and grades each document.

The rules recognise forms, not intentions: hidden characters, instructions against the user, tags of
agents, downloads that are run, and secrets near commands that send data. A clean grade does not
mean that a skill is safe.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from crossgate._lint.library import Field, Finding, Places, cut
from crossgate._retrieval.passages import fenced
from crossgate._values.results import Document

Grade = Literal["clean", "suspect", "hostile"]
GRADES: tuple[Grade, ...] = get_args(Grade)
"""From the mildest to the worst."""

_NEAR = 300
"""A secret and a command that sends data are near if this many characters are between them."""

_BEFORE = 40
"""Characters before an instruction that may negate or report it."""

_QUOTED = 5
"""Maximum number of alarms that a finding quotes."""


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
    r"\b(?:ignore|disregard|forget|override|bypass|replaces?|supersedes?|pay no attention to)\b"
    r"[^.\n\"“'`|]{0,20}\b(?:all|any|the|your|every)?\s*"
    r"\b(?:previous|prior|above|earlier|preceding|system|developer|safety)\s+"
    r"(?:instructions?|prompts?|rules|messages?|guidelines|directives|constraints|polic(?:y|ies))|"
    r"\b(?:ignore|disregard|forget|pay no attention to)\s+(?:everything|anything|whatever|what|all)"
    r"\b[^.\n\"`|]{0,20}?\b(?:you (?:were|have been) told|above)\b|"
    r"\b(?:ignore|disregard)\s+(?:all (?:of )?(?:your|the|other)?|your|"
    r"the (?:user|human|person)['’]s)\s*(?:instructions?|directives)\b",
    re.IGNORECASE,
)
_PERSON = r"(?:the |your )?(?:user|human|person|operator)"
_SECRECY = re.compile(
    r"\b(?:do not|don['’]t|never|without)\s+"
    r"(?:tell(?:ing)?|inform(?:ing)?|alert(?:ing)?|notify(?:ing)?|warn(?:ing)?|"
    r"(?:reveal|mention|show|disclos)(?:e|ing)?(?: (?:this|it|these|that|any of this))? to)\s+"
    rf"{_PERSON}\b"
    r"(?!\s+(?:to|their|that (?:it|they|the)|how|which|what|about (?:each|every))\b)|"
    rf"\b(?:do not|don['’]t|never) let {_PERSON} (?:know|notice|see this|find out)\b|"
    r"\b(?:keep|hide|conceal) (?:this|it|these|that|the fact|your)\b[^.\n\"`|]{0,25}"
    rf"\bfrom {_PERSON}\b|"
    rf"\bwithout {_PERSON}['’]s knowledge\b|"
    rf"\b{_PERSON} (?:must|should) (?:not|never) (?:know|notice|find out|learn)\b(?! (?:how|to)\b)",
    re.IGNORECASE,
)
_NO_CONSENT = re.compile(
    r"\b(?:do not|don['’]t|never)\s+(?:ask|prompt)\s+(?:the |your )?(?:user|human)?\s*(?:for\s+)?"
    r"(?:permission|approval|consent|authori[sz]ation|confirmation before)\b|"
    r"(?:^|[.:;]\s)[^.\n\"`|]{0,60}\bwithout (?:asking|prompting) (?:the )?(?:user|human)\b|"
    r"\bskip (?:the |all |any )?(?:permission|approval) (?:prompts?|checks?)\b|"
    r"(?<![\w./-])[\w./-]{2,30} [^\n`]{0,80}--dangerously-(?:skip-permissions|bypass-approvals)|"
    r"\bthe user (?:has )?(?:already )?(?:approved|authori[sz]ed|consented to) (?:all|every|any)",
    re.IGNORECASE | re.MULTILINE,
)
_ANSWERS_FOR_SYSTEM = re.compile(
    r"</?(?:system-reminder|system_prompt|system-prompt|user-prompt-submit-hook|"
    r"function_calls|function_results|tool_results?|antml:[a-z_]+)\b[^>\n]*>|"
    r"<\|(?:im_start|im_end|system|endoftext)\|>|\[/?INST\]|<</?SYS>>",
    re.IGNORECASE,
)
_SPEAKER = re.compile(
    r"^(?:SYSTEM|Human|Assistant)\s*:\s*\S|^(?:#+ *|\*\*)(?:SYSTEM|System)\s*:\s*\S|^\[SYSTEM\]",
    re.MULTILINE,
)
_DENIAL = re.compile(r"\b(?:not|never|no|cannot|\w+n['’]t|avoid|refuse)\b", re.IGNORECASE)
_NEGATED = re.compile(
    r"\b(?:do not|don['’]t|never|not|no|cannot|can['’]t|won['’]t|avoid|refuse to)[\s*_]*\Z",
    re.IGNORECASE,
)
_REPORTED = re.compile(
    r"\b(?:instruct(?:ions?|s|ed|ing)|requests?|attempts?|tries|tells?|asks?|asking|claims?|commands?|"
    r"directives?|phrases?|such as|e\.g\.)[\s:,]*(?:\w+ ){0,3}(?:to)?[\s*_]*\Z",
    re.IGNORECASE,
)
_DOWNLOAD = r"\b(?:curl|wget|iwr|irm|Invoke-WebRequest|Invoke-RestMethod)\b[^\n|;]{0,300}"
_SHELL = (
    r"(?:sudo\s+(?:-\S+\s+)*)?(?:env\s+|/\w[\w/]{0,40}/)?(?:ba|z|da|k|fi)?sh\b|"
    r"iex\b|Invoke-Expression\b"
)
_PIPED = re.compile(
    rf"{_DOWNLOAD}\|\s*(?:{_SHELL}|(?:sudo\s+)?(?:python3?|perl|ruby|node)\b)", re.I
)
_PROCESS = re.compile(
    rf"(?:{_SHELL}|\bsource\b|\beval\b)\s+(?:-c\s+)?[\"']?(?:<\(|\$\(|`)\s*{_DOWNLOAD}|"
    r"\b(?:iex|Invoke-Expression)\b[^\n]{0,80}(?:DownloadString|\b(?:iwr|irm)\b|Invoke-(?:Web|Rest))|"
    r"\b(?:curl|wget)\b[^\n]{0,200}\s(?:-o|-O|--output)\s*(?P<file>[\w./~-]{2,80})[^\n]{0,120}?"
    r"(?:&&|;)\s*(?:(?:sudo\s+)?(?:ba|z)?sh\s+)?(?P=file)(?=\s|\Z|[;&`])|"
    r"\bexec\(\s*(?:requests\.get|urllib|urlopen|httpx\.get)",
    re.I,
)
_REVERSE_SHELL = re.compile(
    r">&\s*/dev/(?:tcp|udp)/[\w.]+/\d+|\b(?:nc|ncat|netcat)\s+(?:-\w+\s+)*-(?:e|c)\s+/bin/\w+",
    re.I,
)
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
_ENCODED = re.compile(
    r"\bpowershell(?:\.exe)?\b[^\n|]{0,80}\s-(?:e|enc|encodedcommand)\s+[A-Za-z0-9+/=]{20,}|"
    r"\bexec\(\s*(?:base64|codecs|zlib)\.|\beval\(\s*atob\(",
    re.IGNORECASE,
)
_SECRET = re.compile(
    r"(?:~|\$HOME|\$\{HOME\}|%USERPROFILE%|/root|/home/\w+)[/\\]"
    r"(?:\.ssh\b(?:[/\\](?:id_\w+|\*|authorized_keys))?|\.aws\b(?:[/\\]credentials)?|\.netrc|\.npmrc|\.pypirc|"
    r"\.docker[/\\]config\.json|\.kube[/\\]config|\.gnupg|\.git-credentials|"
    r"\.config[/\\]gcloud|\.claude[/\\]\.credentials\.json|\.codex[/\\]auth\.json|\.bash_history)|"
    r"/etc/shadow\b|\b(?:Login Data|Cookies|key4\.db|logins\.json)\b|\bprintenv\b|"
    r"(?<![\w.-])\.env\b(?!\.(?:example|sample|template))",
)
_SENDS = re.compile(
    r"\bcurl\b[^\n]{0,300}?(?:\s-d\b|\s--data\S*|\s-F\b|\s--form\b|\s-T\b|\s--upload-file\b|\s-X\s*POST\b)|"
    r"\b(?:curl|wget)\b[^\n]{0,200}?[?&]\w+=(?:\$\(|`)|\bwget\b[^\n]{0,300}?--post-(?:data|file)|\b(?:nc|ncat|netcat|socat)\s+(?:-\w+\s+)*\S+\s+\d{2,5}\b|"
    r"\bInvoke-(?:WebRequest|RestMethod)\b[^\n]{0,300}?-Method\s+POST|requests\.(?:post|put)\(|"
    r"https?://(?:webhook\.site|[\w.-]*requestbin|[\w-]+\.ngrok|pastebin\.com|transfer\.sh|0x0\.st)\S*",
    re.IGNORECASE,
)
_INSTRUCTED_SENDING = re.compile(
    r"\b(?:send|upload|post|exfiltrate|transmit|forward|e-?mail)\b[^\n]{0,60}?"
    r"(?:\b|(?=\.)|(?<=/))(?:credentials?|passwords?|api[ _-]?keys?|tokens?|secrets?|private keys?|"
    r"ssh keys?|environment variables|(?<=[\s`'\"])\.env(?: file)?|(?<=~/)\.(?:ssh|aws))\b"
    r"[^\n]{0,60}?\bto\s+(?:https?://|[\w.+-]+@[\w-]+\.)",
    re.IGNORECASE,
)
_DUMPED = re.compile(
    r"\b(?:env|printenv)\s*\|[^\n|]{0,60}(?:\|[^\n|]{0,60})?\b(?:curl|wget|nc|ncat)\b|"
    r"\b(?:requests|httpx)\.(?:post|put)\([^\n]{0,200}\bos\.environ\b(?!\s*[\[.])|"
    r"\bfetch\([^\n]{0,300}JSON\.stringify\(process\.env\)|"
    rf"\b(?:scp|rsync)\s+(?:-[a-hj-zA-Z]+\s+)*(?:{_SECRET.pattern})\S*\s+\S+:"
)
_UNSEEN = re.compile(
    r"<\w+[^>\n]{0,200}style\s*=\s*[\"'][^\"'>\n]{0,200}(?:display:\s*none|visibility:\s*hidden|"
    r"font-size:\s*0(?:px)?\s*[;\"'])[^>\n]{0,200}>\s*[^<\s]",
    re.IGNORECASE,
)
_CONTROLS = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f]+")
_CYRILLIC = "[\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0455\u0456\u0458\u0501]"
_LOOK_ALIKE = re.compile(f"(?<=[A-Za-z]){_CYRILLIC}(?=[A-Za-z])|\\b{_CYRILLIC}(?=[A-Za-z]{{2}})")
_IMAGE = re.compile(
    r"!\[[^\]\n]*\]\(https?://[^)\s]*[?&]\w+=(?:\{|\$|<|%7B)[^)\s]*\)", re.IGNORECASE
)
_TAG_CHARACTERS = re.compile("[\U000e0001-\U000e007f]+")
_SELECTORS = re.compile("[\ufe00-\ufe0d\U000e0100-\U000e01ef]{2,}")
_OVERRIDES = re.compile("[\u202d\u202e\u2066-\u2068]")
_ZERO_WIDTH = re.compile(
    "(?<=[A-Za-z])[\u200b-\u200d\u2060-\u2064\ufeff\u00ad](?=[A-Za-z])|[\u200b\u2060-\u2064\ufeff]{3,}|[\u115f\u1160\u3164\uffa0]"
)
_MANY_HIDDEN = 8

_RULES: tuple[tuple[Grade, re.Pattern[str], str], ...] = (
    ("hostile", _TAG_CHARACTERS, "has invisible tag characters, which spell a hidden text"),
    ("hostile", _SELECTORS, "has rows of variation selectors, which can encode a hidden text"),
    ("suspect", _OVERRIDES, "has bidirectional controls, which change the order of the text"),
    ("suspect", _ZERO_WIDTH, "has invisible characters in words"),
    ("suspect", _CONTROLS, "has control characters, which a terminal may obey"),
    ("suspect", _LOOK_ALIKE, "has Cyrillic letters in Latin words"),
    ("suspect", _UNSEEN, "has text that a page would hide"),
    ("hostile", _IGNORE, "tells the agent to ignore its instructions"),
    ("hostile", _SECRECY, "tells the agent to hide something from the user"),
    ("suspect", _NO_CONSENT, "tells the agent not to ask for permission"),
    ("suspect", _ANSWERS_FOR_SYSTEM, "imitates a tag of an agent or model"),
    ("suspect", _SPEAKER, "imitates a message of the system or the user"),
    ("suspect", _PIPED, "pipes a download into a shell"),
    ("suspect", _PROCESS, "runs a download in a shell"),
    ("suspect", _REVERSE_SHELL, "opens a shell to another machine"),
    ("hostile", _DECODED, "runs decoded text in a shell"),
    ("suspect", _ENCODED, "runs encoded text"),
    ("hostile", _DUMPED, "sends secrets or the environment to an address"),
    ("hostile", _INSTRUCTED_SENDING, "sends credentials to an address"),
    ("suspect", _IMAGE, "puts values into the address of an image"),
)


def audit(document: Document) -> list[Alarm]:
    """Return the alarms of a document, in the order of the text."""
    alarms: list[Alarm] = []
    for field in ("text", "body"):
        value: str = getattr(document, field)
        in_code = _code_ranges(value)
        for grade, pattern, reason in _RULES:
            for match in pattern.finditer(value):
                actual = _adjusted(grade, pattern, match, in_code)
                if actual != "clean":
                    alarms.append(Alarm(actual, reason, field, match.start(), match[0]))
        alarms += _sent_secrets(value, field)
    return sorted(alarms, key=lambda alarm: (alarm.field != "text", alarm.start, alarm.reason))


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
            places.at(document, alarm.field, alarm.start, f"{_visible(alarm.text)}: {alarm.reason}")
            for alarm in listed[:_QUOTED]
        )
        reasons = list(dict.fromkeys(alarm.reason for alarm in listed))
        yield places.finding(
            f"{grade}_text",
            document,
            f"{document.id} {'; it '.join(reasons)}",
            evidence,
            "Read these lines before an agent does; remove them or the skill.",
            severity="error" if grade == "hostile" else "info",
            hurt=1.0 if grade == "hostile" else 0.5,
            at_evidence=True,
        )


def _adjusted(
    grade: Grade, pattern: re.Pattern[str], match: re.Match[str], in_code: Callable[[int], bool]
) -> Grade:
    """Return the grade of a match in its context."""
    if pattern in (_PIPED, _PROCESS) and _UNTRUSTED_URL.search(match[0]):
        return "hostile"
    if pattern is _ZERO_WIDTH and len(pattern.findall(match.string)) >= _MANY_HIDDEN:
        return "hostile"
    quotable = (_IGNORE, _SECRECY, _SPEAKER, _ANSWERS_FOR_SYSTEM, _INSTRUCTED_SENDING)
    before = match.string[max(0, match.start() - _BEFORE) : match.start()]
    is_denied = " without " in match[0] and _DENIAL.search(match[0])
    if pattern in (_IGNORE, _NO_CONSENT) and (is_denied or _NEGATED.search(before)):
        return "clean"
    is_quoted = _is_quoted(match, in_code) or _REPORTED.search(before)
    if pattern in quotable and is_quoted:
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
                if not same_line and secret[0] == ".env":
                    continue  # most projects have one
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


def _visible(text: str) -> str:
    visible = "".join(
        character if character.isprintable() else f"\\u{ord(character):04x}" for character in text
    )
    return f'"{cut(visible, 80)}"'
