"""The most that is read of anything, in bytes unless a name says otherwise.

Who wrote an input is not known, so nothing is read without a bound: what is larger is refused, or
in a folder skipped and reported.
"""

MIB = 1024 * 1024

SETTINGS_BYTES = 1 * MIB
"""A profile, a lock file, `config.json` or `tokenizer_config.json` of a model folder."""

SKILL_BYTES = 1_000_000
"""A `SKILL.md`."""

TEXT_BYTES = 64 * MIB
"""A Markdown or plain-text file, or one of tools."""

ROW_BYTES = 16 * MIB
"""A row of a `.jsonl` file; a longer one is skipped and reported."""

ROWS = 5_000_000
"""Rows of a `.jsonl` file, in number; those after are left out and reported."""

ROWS_BYTES = 4096 * MIB
"""A whole `.jsonl` file."""

CANDIDATES_BYTES = 256 * MIB
"""The candidates of another retriever, or any other text that a command reads whole."""

EVALUATION_BYTES = 1024 * MIB
"""A stored run, a report, or the queries or labels of a dataset."""

ANSWER_BYTES = 32_000_000
"""An answer of the hub that describes a model. Its larger files go to disk as they come."""
