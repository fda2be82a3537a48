"""Gemma 3 at the study's size: 71,273,856 parameters, autoregressive, 1B tokens.

    python -m jaxlm.train --config=configs/gemma3.py --config.data.dir=runs/study/data --workdir=runs/study/gemma3

The sizes, the data and the recipe of configs/llama3.py. Of the 32 layers 5 are global (6, 12, 18, 24 and 30), the
others see 256 positions. The study prints 71M and no configuration. jaxlm's convention: a window of 256 of 1,024, since
512, as in the released models, would hardly matter at this length (--config.model.sliding_window=512 is that), and
scores divided by the root of the head size, 48 (--config.model.query_scalar).

Expected: 467.31 MFLOP a token (6 N and what a causal window sees), so at 30 % MFU 2.9 hours on an A40 and 26 minutes on
an H200.
"""

import ml_collections

from jaxlm import config


def get_config() -> ml_collections.ConfigDict:
    run = config.run()
    run.model.family = "gemma3"
    run.train.total_tokens = 1_000_000_000
    run.train.batch_tokens = 122_880
    run.train.micro_batch = 24
    run.train.eval_every = 1_000
    run.execution.loss_chunk = 128
    return run
