"""Size limits of inputs, in bytes unless stated otherwise.

Inputs are untrusted, so every read is bounded: a larger file is refused, or, within a folder,
skipped and reported.
"""

MIB = 1024 * 1024

SETTINGS_BYTES = 1 * MIB
"""A profile, a lock file, `config.json` or `tokenizer_config.json` of a model folder."""

SKILL_BYTES = 1_000_000
"""A `SKILL.md`, or a file of examples."""

SKILL_EXAMPLES = 100
"""Number of examples in the folder of a skill; further ones are left out and reported."""

TEXT_BYTES = 64 * MIB
"""A Markdown or plain-text file, or one of tools."""

LANGUAGE_CHARS = 2_000
"""Characters of a query whose language is detected; the rest of a long one is hardly another."""

ROW_BYTES = 16 * MIB
"""A row of a `.jsonl` file; a longer one is skipped and reported."""

ROWS = 5_000_000
"""Number of rows of a `.jsonl` file; further rows are skipped and reported."""

ROWS_BYTES = 4096 * MIB
"""A whole `.jsonl` file."""

CANDIDATES_BYTES = 256 * MIB
"""The candidates of another retriever, or another text that a command reads whole."""

EVALUATION_BYTES = 1024 * MIB
"""A stored run, a report, or the queries or labels of a dataset."""

ANSWER_BYTES = 32_000_000
"""A description of a model from the hub. Model files are streamed to disk instead."""
