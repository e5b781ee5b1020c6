"""An MCP server for tests, made with the official SDK."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from mcp import types
from mcp.server.mcpserver import Context, MCPServer


def main(name: str, pid_file: str = "") -> None:
    """Serve until stdin is closed."""
    if pid_file:
        Path(pid_file).write_text(str(os.getpid()))
    server = MCPServer(name, log_level="ERROR")

    @server.tool()
    def send_mail(to: str, text: str = "") -> str:
        """Send an e-mail to somebody."""
        return f"{name} mailed {to}: {text}"

    @server.tool()
    def weather(city: str) -> str:
        """Weather forecast of a city for tomorrow."""
        if city == "Atlantis":
            os._exit(3)
        return f"rain in {city}"

    @server.tool()
    def echo(value: Any) -> types.CallToolResult:
        """Return the arguments in every part of a result."""
        return types.CallToolResult(
            content=[
                types.TextContent(type="text", text="ü\u2028"),
                types.ImageContent(type="image", data="AAEC", mime_type="image/png"),
            ],
            structured_content={"value": value},
            is_error=True,
            _meta={"origin": name},
        )

    @server.tool()
    async def learn(context: Context) -> str:
        """Learn another trick."""

        def translate_text(text: str) -> str:
            """Translate a text into another language."""
            return text

        server.add_tool(translate_text)
        await context.session.send_tool_list_changed()
        return "learned"

    server.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
