"""What a study is: rows, the data they read, what is asked of them, and which of them are compared.

Rows, data and groups are lines of text in an order, `NAME: ...`, so that a row of one's own is one line of a config,
and each row is the command that makes it (see `jaxlm.study.rows`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import ml_collections

from jaxlm.fields import config_dict, option, require, section


@dataclass(frozen=True)
class EvaluateConfig:
    """What every row is asked."""

    tasks: str = option("study", "benchmark tasks or groups of them, by commas; empty: none")
    include_path: str = option("", "a folder with definitions of other tasks")
    held_out_items: int = option(0, "items of each task made from held-out text of the first data; 0: none", minimum=0)
    limit: int = option(0, "items of each task; 0: all", minimum=0)
    controls: str = option("length_only,random_init", "of each task, by commas; empty: none")
    mc_samples: int = option(128, "masks of an answer, diffusion only", minimum=2)
    windows: int = option(0, "validation windows that the loss is over; 0: all", minimum=0)
    draws: int = option(4, "noise levels a window, diffusion only", minimum=1)
    mean: str = option("mean_6", "what rows are ranked by: mean_6, mean_7, mean_8, or tasks by commas")
    truth: str = option("truthfulqa_mc2", "the task of the claims about truthfulness")


@dataclass(frozen=True)
class DecodeConfig:
    """How every row is made to write: the study's protocol is batch 1 and 100 new tokens."""

    rounds: int = option(3, "times that count, after one that does not; 0: nothing is measured", minimum=0)
    prompt_tokens: int = option(32, "of held-out text", minimum=1)
    new_tokens: int = option(100, "written behind it", minimum=1)
    tokens_per_pass: int = option(5, "of a diffusion model; the study names no number", minimum=1)
    samples: int = option(3, "texts that are kept", minimum=0)


@dataclass(frozen=True)
class StudyConfig:
    """Rows times seeds (times learning rates): each a run with its evaluation.

    Attributes:
      data: lines `NAME: FLAGS OF prepare_data`. The first is what rows read that name none, and the text that all
        losses are compared on.
      rows: lines `NAME: COMMAND`, see `jaxlm.study.rows`.
      groups: lines `NAME: ROW ROW ...`: rows that are compared with one another, the reference first.
    """

    title: str = option("", "of the report")
    data: tuple[str, ...] = option((), "NAME: flags of prepare_data")
    rows: tuple[str, ...] = option((), "NAME: the command that makes the row")
    groups: tuple[str, ...] = option((), "NAME: rows that are compared, the reference first")
    seeds: tuple[int, ...] = option((0,), "of each row", minimum=0)
    learning_rates: tuple[float, ...] = option(
        (), "each trained row also with these peaks; empty: its own only", minimum=0
    )
    smallest: int = option(62_000_000, "parameters; rows below are marked", minimum=0)
    largest: int = option(77_000_000, "parameters; rows above are marked", minimum=0)
    evaluate: EvaluateConfig = section(EvaluateConfig, "what is asked")
    decode: DecodeConfig = section(DecodeConfig, "how fast they write")

    def __post_init__(self) -> None:
        for kind in ("data", "rows", "groups"):
            names = [name_of(line) for line in getattr(self, kind)]
            for line, name in zip(getattr(self, kind), names, strict=True):
                require(
                    ":" in line and usable(name),
                    f"{kind} has {line!r}, allowed: NAME: ..., NAME of letters, digits, _ . -",
                )
                require(names.count(name) == 1, f"{kind} has two lines of the name {name!r}, allowed: each name once")
        require(bool(self.seeds), "seeds is empty, allowed: at least one")
        require(
            self.smallest <= self.largest,
            f"smallest is {self.smallest} and largest {self.largest}, allowed: smallest not above largest",
        )
        for name in ("seeds", "learning_rates"):
            values = getattr(self, name)
            require(len(set(values)) == len(values), f"{name} is {values}, allowed: each once")


def name_of(line: str) -> str:
    """The name of a line `NAME: ...`."""
    return line.partition(":")[0].strip()


def listed(text: str) -> list[str]:
    """The names in a text that separates them by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def named(lines: Sequence[str]) -> dict[str, str]:
    """What follows the colon in lines `NAME: ...`, by name, in order."""
    return {name_of(line): line.partition(":")[2].strip() for line in lines}


def usable(name: str) -> bool:
    """Whether a name can be that of a directory on every system, and of a word in a group."""
    return bool(name) and name[0] != "." and all(c.isascii() and (c.isalnum() or c in "_.-") for c in name)


def study() -> ml_collections.ConfigDict:
    """A locked ConfigDict with every field of `StudyConfig` at its default, for the files in `configs/study/`."""
    return config_dict(StudyConfig)
