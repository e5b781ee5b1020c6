"""The page on `GET /`: one file that shows what the gate decides, with its security policy."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from importlib.resources import files

from fastapi.responses import HTMLResponse


@cache
def _page() -> str:
    return files("crossgate._serving").joinpath("page.html").read_text(encoding="utf-8")


@cache
def security_policy() -> str:
    """Return the Content-Security-Policy: the page's own script and style, and this server only."""

    def hashed(tag: str) -> str:
        found = re.search(rf"<{tag}>(.*?)</{tag}>", _page(), re.DOTALL)
        content = found[1] if found else ""
        digest = base64.b64encode(hashlib.sha256(content.encode("utf-8")).digest()).decode("ascii")
        return f"'sha256-{digest}'"

    return (
        f"default-src 'none'; script-src {hashed('script')}; style-src {hashed('style')}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )


def look() -> HTMLResponse:
    """Return the page with the headers that protect it."""
    return HTMLResponse(
        _page(),
        headers={
            "content-security-policy": security_policy(),
            "referrer-policy": "no-referrer",
            "x-content-type-options": "nosniff",
            "cache-control": "no-store",
        },
    )
