"""LFM2 at the study's size: 74,219,520 parameters, autoregressive, 1B tokens.

    python -m jaxlm.train --config=configs/lfm2.py --config.data.dir=runs/study/data --workdir=runs/study/lfm2

The sizes, the data and the recipe of configs/llama3.py; 20 of the 32 layers are gated convolutions of three taps, 12
attention: the layout of the released 16-layer models, twice. That is jaxlm's convention: the study prints 80M and no
configuration, and nothing that is known of LFM2 gives 80M at 32 x 384.

Expected: 473.63 MFLOP a token (6 N and causal attention), so at 30 % MFU 2.9 hours on an A40 and 27 minutes on an H200.
"""

import ml_collections

from jaxlm import config


def get_config() -> ml_collections.ConfigDict:
    run = config.run()
    run.model.family = "lfm2"
    run.train.total_tokens = 1_000_000_000
    run.train.batch_tokens = 122_880
    run.train.micro_batch = 24
    run.train.eval_every = 1_000
    run.execution.loss_chunk = 128
    return run
