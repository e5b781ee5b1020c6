"""Frozen values that go into a decision and come out of it, and how they are shown."""
