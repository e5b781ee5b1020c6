"""Interfaces for agents: prompt hooks and the Model Context Protocol."""
