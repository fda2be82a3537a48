"""Qwen3 at the study's size: 71,249,280 parameters, autoregressive, 1B tokens.

    python -m jaxlm.train --config=configs/qwen3.py --config.data.dir=runs/study/data --workdir=runs/study/qwen3

configs/llama3.py, its sizes, its data and its recipe, and a norm on each query and key head before they are rotated:
3,072 parameters more. The study prints 71M and no configuration; Qwen3's own rotary base is 1,000,000, and the
skeleton's 10,000 here is jaxlm's convention.

Expected: 502.99 MFLOP a token (6 N and causal attention), so at 30 % MFU 3.1 hours on an A40 and 28 minutes on an H200.
"""

import ml_collections

from jaxlm import config


def get_config() -> ml_collections.ConfigDict:
    run = config.run()
    run.model.family = "qwen3"
    run.train.total_tokens = 1_000_000_000
    run.train.batch_tokens = 122_880
    run.train.micro_batch = 24
    run.train.eval_every = 1_000
    run.execution.loss_chunk = 128
    return run
