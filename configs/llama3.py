r"""LLaMA 3 at the study's size: 71,246,208 parameters, autoregressive, 1B tokens.

    python -m jaxlm.prepare_data --config=configs/data/files.py --config.files='/path/*.parquet' \
        --config.tokenizer=gpt2 --config.seq_len=1024 --out=runs/study/data
    python -m jaxlm.train --config=configs/llama3.py --config.data.dir=runs/study/data --workdir=runs/study/llama3

The skeleton of every family but GPT-2, MobileLLM and MiniMind: 32 layers of width 384, 8 query and 4 key heads of 48,
feed-forward 1,024, rotary base 10,000, 50,304 rows of a tied embedding. These are the sizes in Dhara's config.json; for
no other family of 32 layers does the study print any, and this skeleton gives the totals that it does print.

The recipe of every family too: 8,138 steps of 122,880 tokens, five micro-batches of 24 windows of 1,024; peak rate
5e-4, warmup over 2 % of the steps, cosine to a tenth; AdamW with decay 0.1, betas 0.9 and 0.95, clipping at 1. The
study prints rate, batch and schedule for its 12-layer GPT-2 alone, and no decay, betas or clipping: those, and that all
families share them, are jaxlm's convention.

Expected: 502.97 MFLOP a token (6 N and causal attention), so at 30 % MFU 3.1 hours on an A40 (149.7 TFLOP/s) and 28
minutes on an H200 (989).
"""

import ml_collections

from jaxlm import config


def get_config() -> ml_collections.ConfigDict:
    run = config.run()
    run.model.family = "llama3"
    run.train.total_tokens = 1_000_000_000
    run.train.batch_tokens = 122_880
    run.train.micro_batch = 24
    run.train.eval_every = 1_000
    run.execution.loss_chunk = 128
    return run
