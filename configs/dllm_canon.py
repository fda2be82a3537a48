r"""Masked diffusion with Canon layers from scratch: 71,344,512 parameters, 1B tokens.

    python -m jaxlm.train --config=configs/dllm_canon.py --config.data.dir=runs/study/data \
        --workdir=runs/study/dllm_canon

configs/dllm.py with Canon layers A and C, which stay causal: what configs/dhara.py makes from configs/llama3_canon.py
with a tenth of the tokens, learnt from nothing instead.

Expected: 579.06 MFLOP a token (6 N and full attention), so at 30 % MFU 3.6 hours on an A40 and 33 minutes on an H200.
The study took 18 hours on an A40.
"""

import ml_collections

from jaxlm import config


def get_config() -> ml_collections.ConfigDict:
    run = config.run()
    run.model.family = "dllm_canon"
    run.objective.kind = "diffusion"
    run.train.total_tokens = 1_000_000_000
    run.train.batch_tokens = 122_880
    run.train.micro_batch = 24
    run.train.eval_every = 1_000
    run.execution.loss_chunk = 128
    return run
