"""A study of models of two layers; as a script, it is run: `tiny_study.py CONFIG.json WORKDIR`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from jaxlm.fields import build, to_dict
from jaxlm.study_config import StudyConfig

T, BATCH, STEPS = 16, 8, 6
SMALL = {
    "model.vocab_size": 384,
    "model.num_layers": 2,
    "model.hidden_size": 32,
    "model.intermediate_size": 64,
    "model.num_heads": 2,
    "model.num_kv_heads": 1,
    "model.head_dim": 16,
    "model.max_positions": T,
    "train.seq_len": T,
    "train.batch_tokens": BATCH * T,
    "train.micro_batch": 0,
    "train.total_tokens": STEPS * BATCH * T,
    "train.learning_rate": 1e-2,
    "train.save_every": 2,
    "train.eval_every": 3,
    "train.eval_windows": 4,
    "train.tensorboard": False,
    "execution.dtype": "float32",
    "execution.loss_chunk": 0,
}
FLAGS = " ".join(f"--config.{name}={value}" for name, value in SMALL.items())
TEXT = "--config=configs/data/files.py --config.tokenizer=train:300 --config.seq_len=16"
CONVERT = f"convert --config=configs/dhara.py --config.convert.block_sizes=1,4 {FLAGS}"
ROWS = {
    "ar": f"train --config=configs/llama3_canon.py {FLAGS}",
    "diffusion": f"{CONVERT} --init_from=ar",
    "causal": "read diffusion --reading=causal",
    "unnamed": "",
}
# No step is finite, and so there is nothing to start from.
BROKEN = {
    "bursts": f"train --config=configs/llama3_canon.py {FLAGS} --config.train.learning_rate=1e38",
    "follows": f"{CONVERT} --init_from=bursts",
}


def config(root: Path, rows: dict[str, str], **values: Any) -> StudyConfig:
    """A study of these rows on texts that are written to `root`."""
    for i in range(60):
        words = " ".join(f"{i * j} is even or odd" for j in range(8))
        (root / f"{i:02}.txt").write_text(f"Number {i}: {words}.\n")
    text = f"{TEXT} --config.files={root}/*.txt --config.validation_share=0.2 --config.deduplicate=False"
    built: StudyConfig = build(
        StudyConfig,
        {
            "data": (f"text: {text}",),
            "rows": tuple(f"{name}: {command}" for name, command in rows.items()),
            "seeds": (0, 1),
            "evaluate": {"tasks": "", "windows": 8, "draws": 2, "mc_samples": 2, "limit": 3, "controls": ""},
            "decode": {"rounds": 1, "prompt_tokens": 4, "new_tokens": 4, "samples": 1},
            **values,
        },
    )
    return built


def write(study: StudyConfig, path: Path) -> Path:
    """The configuration as this script reads it."""
    path.write_text(json.dumps(to_dict(study)))
    return path


if __name__ == "__main__":
    from jaxlm.study import failures, runner

    print("begun", flush=True)
    file, workdir = map(Path, sys.argv[1:])
    failures.conclude(runner.run(build(StudyConfig, json.loads(file.read_text())), workdir))
