"""What all readers of sources share: the exception for unusable input, and text checks."""

from __future__ import annotations

import os
from codecs import BOM_UTF16_BE, BOM_UTF16_LE


class Unusable(Exception):
    """Says why a row or file cannot be used, with its `line` if known."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.line = line


def decoded(raw: bytes) -> str:
    """Decode UTF-8, without byte order mark and with line feeds as line ends."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        seen = " but UTF-16" if raw.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) else ""
        reason = f"not UTF-8 text{seen}: save it as UTF-8"
        raise Unusable(reason, raw.count(b"\n", 0, error.start) + 1) from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def is_unicode(text: str) -> bool:
    """Return whether text can be encoded as UTF-8; half of a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def printable(path: str) -> str:
    """Return a path as text; bytes that are not UTF-8 are escaped."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def place_of(path: str, line: int | None) -> str:
    """Return `path:line`, or the path alone."""
    return path if line is None else f"{path}:{line}"
