"""Text that commands read: a file, or what comes in on stdin."""

from __future__ import annotations

import sys

from crossgate._errors import InputError
from crossgate._files import read_source
from crossgate._limits import CANDIDATES_BYTES


def text_of(path: str) -> str:
    """Return a file, or stdin for `-`, as text.

    Raises:
        InputError: `source_missing` if it cannot be read; `invalid_text` if it is larger than
            what is read, or not UTF-8.
    """
    name = "stdin" if path == "-" else path
    try:
        data = _standard_input() if path == "-" else read_source(path, CANDIDATES_BYTES)
        return data.decode("utf-8-sig")
    except OSError as error:
        raise InputError("source_missing", f"cannot read {name}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(
            "invalid_text",
            f"{name} is not UTF-8: byte {error.start} is 0x{error.object[error.start]:02x}",
        ) from error


def _standard_input() -> bytes:
    if sys.stdin is None:
        raise InputError("source_missing", "stdin is closed: pipe something in, or name a file")
    data = sys.stdin.buffer.read(CANDIDATES_BYTES + 1)
    if len(data) > CANDIDATES_BYTES:
        message = f"stdin is larger than {CANDIDATES_BYTES:,} bytes, the most that is read"
        raise InputError("invalid_text", message)
    return data
