"""Masked diffusion from scratch: 71,246,208 parameters, 1B tokens.

    python -m jaxlm.train --config=configs/dllm.py --config.data.dir=runs/study/data --workdir=runs/study/dllm

The model, the data and the recipe of configs/llama3.py, but that every position sees every other and what is learnt is
to fill in masked tokens, at all rates of masking. The mask token is the first id outside the tokenizer, 50257 of 50304
rows; the study's own is 50256, which is also its end of text. That the recipe is the autoregressive models' is jaxlm's
convention.

Expected: 578.47 MFLOP a token (6 N and full attention), so at 30 % MFU 3.6 hours on an A40 and 32 minutes on an H200.
The study took 18 hours on an A40.
"""

import ml_collections

from jaxlm import config


def get_config() -> ml_collections.ConfigDict:
    run = config.run()
    run.model.family = "dllm"
    run.objective.kind = "diffusion"
    run.train.total_tokens = 1_000_000_000
    run.train.batch_tokens = 122_880
    run.train.micro_batch = 24
    run.train.eval_every = 1_000
    run.execution.loss_chunk = 128
    return run
