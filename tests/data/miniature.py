"""The study's three sources in small, laid out as on the hub: documents of very different length."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from jaxlm import fields
from jaxlm.config import PrepareConfig

WEIGHTS = {"dclm": 0.3, "finepdfs": 0.5, "fineweb_edu": 0.2}
WORDS = {
    "dclm": "forum reply thread asks answers maybe quoted".split(),
    "finepdfs": "report annex table figure appendix section budget".split(),
    "fineweb_edu": "lesson pupils plants energy explains history rivers".split(),
}
LENGTHS = {"dclm": (20, 20_000), "finepdfs": (200, 100_000), "fineweb_edu": (40, 3_000)}  # bytes
TOTAL_TOKENS, SEQ_LEN = 100_000, 32
BATCH = 20_000  # characters, so that there are many batches


def write(directory: Path, size: int = 400_000) -> dict[str, str]:
    """Writes Parquet files of about `size` bytes of text for each source, two files each; returns their patterns."""
    import pyarrow
    import pyarrow.parquet

    for name, (shortest, longest) in LENGTHS.items():
        rng, texts = random.Random(name), [f"{name} {WORDS[name][0]} " * 8, f"{WORDS[name][1]} {name} " * 8]
        while sum(map(len, texts)) < size:
            wanted = shortest * (longest / shortest) ** rng.random()
            words = [rng.choice(WORDS[name]) for _ in range(int(wanted / 7) + 1)]
            texts.append(f"{len(texts)} " + " ".join(words)[: int(wanted)])
        half = len(texts) // 2
        for number, part in enumerate((texts[:half], texts[half:])):
            pyarrow.parquet.write_table(pyarrow.table({"text": part}), directory / f"{name}-{number}.parquet")
    return {name: str(directory / f"{name}-*.parquet") for name in LENGTHS}


def overrides(files: dict[str, str], **changes: Any) -> list[str]:
    """The words after `--config=configs/data/study_mix.py`."""
    usual = {"total_tokens": TOTAL_TOKENS, "seq_len": SEQ_LEN, "validation_share": 0.02}
    values = {f"files.{name}": given for name, given in files.items()} | usual | changes
    return [f"--config.{name}={value}" for name, value in values.items()]


def mix(files: dict[str, str], **changes: Any) -> PrepareConfig:
    """The same as `overrides`, as a configuration."""
    usual = {"tokenizer": "gpt2", "total_tokens": TOTAL_TOKENS, "seq_len": SEQ_LEN, "validation_share": 0.02}
    config: PrepareConfig = fields.build(PrepareConfig, {"files": files, "weights": WEIGHTS, **usual, **changes})
    return config
