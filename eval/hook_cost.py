"""Prints what the prompt hook adds to a conversation, for each form of its context.

    python eval/hook_cost.py FOLDER:SPLIT [--count N] [--seed N]

The prompts are drawn from a split of a BEIR folder and sent as one session. A token counts as four
characters.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from crossgate import Index
from crossgate._agents.hook.agents import AGENTS, HookPrompt
from crossgate._agents.hook.answer import answer
from crossgate._agents.hook.options import parse
from crossgate._agents.hook.skill_library import SkillLibrary
from crossgate._agents.learning.adoption import CHARS_PER_TOKEN
from crossgate._sources.reading import read_sources
from crossgate.evaluation import read_dataset


def main() -> None:
    """Reads the arguments, and prints a line for each form."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", help="a BEIR folder and a split of its labels")
    parser.add_argument("--count", type=int, default=40, help="number of prompts (default: 40)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the order (default: 1)")
    options = parser.parse_args()
    folder, _, split = options.data.rpartition(":")
    prompts = [query.text for query in read_dataset(folder, split=split).queries]
    drawn = random.Random(options.seed).sample(prompts, min(options.count, len(prompts)))
    with tempfile.TemporaryDirectory() as place:
        index = Path(place, "skills.cgx")
        Index.build(read_sources([folder]).documents).save(index)
        for form in ("name", "passage", "body"):
            chosen = replace(parse("claude", ["--inject", form]), index=str(index), budget_ms=400.0)
            library = SkillLibrary(sources=(), folder=Path(place, form))
            told = []
            for text in drawn:
                prompt = HookPrompt(text=text, length=len(text), session="one", folder="")
                started = time.monotonic()
                told.append(
                    answer(AGENTS["claude"], prompt, chosen, library, started=started, log=False)
                )
            given = [found for found in told if found.context]
            tokens = sum(len(found.context) for found in given) / CHARS_PER_TOKEN
            lists = sum(found.form == "shortlist" for found in given)
            print(
                f"{form}: {len(given)} of {len(drawn)} prompts get a context, {lists} of them a "
                f"shortlist; {tokens:,.0f} tokens in all, {tokens / max(1, len(given)):.0f} each"
            )


if __name__ == "__main__":
    main()
