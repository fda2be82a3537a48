"""Titans with memory as context at the study's size: 79,430,304 parameters, autoregressive, 1B tokens.

    python -m jaxlm.train --config=configs/titans_mac.py --config.data.dir=runs/study/data \
        --workdir=runs/study/titans_mac

The sizes, the data and the recipe of configs/llama3.py. Attention reaches over a segment of 32 tokens and 4 learned
vectors behind them, and 4 learned keys and values before them; in layers 2, 4 and 6 of each 8 a neural memory learns
while it reads: 8 heads, each a network of 48 x 96 x 48. The study names the family and neither sizes nor an average.
The layout is that of titans-pytorch, whose settings are kept where the skeleton says nothing. One word chooses what the
paper has instead: --config.model.memory_reading=context.

Expected: 564.56 MFLOP a token (6 N and causal attention), so at 30 % MFU 3.5 hours on an A40 and 32 minutes on an H200.
Layers are recomputed in the backward pass, for memories keep much: at its peak a step holds 7.1 GB on an A40 instead of
23.6 (XLA's figures for a micro-batch of 24, compiled without the card).
"""

import ml_collections

from jaxlm import config


def get_config() -> ml_collections.ConfigDict:
    run = config.run()
    run.model.family = "titans_mac"
    run.train.total_tokens = 1_000_000_000
    run.train.batch_tokens = 122_880
    run.train.micro_batch = 24
    run.train.eval_every = 1_000
    run.execution.loss_chunk = 128
    run.execution.remat = "full"
    return run
