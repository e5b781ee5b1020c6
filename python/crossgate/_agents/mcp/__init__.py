"""The Model Context Protocol: a server, a proxy, and servers as a source of tools."""
