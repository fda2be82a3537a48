r"""LLaMA3-Canon at the study's size: 71,344,512 parameters, autoregressive, 1B tokens.

    python -m jaxlm.prepare_data --config=configs/data/files.py --config.files='/path/*.parquet' \
        --config.tokenizer=gpt2 --config.seq_len=1024 --out=runs/study/data
    python -m jaxlm.train --config=configs/llama3_canon.py --config.data.dir=runs/study/data --workdir=runs/study/ar

32 layers of width 384 with Canon layers A and C (98,304 parameters, 0.138 %); 52,027,776 parameters without the
embedding. 8,138 steps of 122,880 tokens: micro-batches of 24 windows of 1,024, five a step, which fits 48 GB with
cuDNN attention. Peak rate 5e-4, warmup over 2 % of the steps, cosine to a tenth. The study prints rate, batch and
schedule for its 12-layer GPT-2 alone, and no decay, betas or clipping at all; those here are jaxlm's convention for
every family.

Expected: 503.56 MFLOP a token (6 N and causal attention), so at 30 % MFU 3.1 hours on an A40 (149.7 TFLOP/s) and 28
minutes on an H200 (989). The study took 18 hours on an A40 for as many tokens.
"""

import ml_collections

from jaxlm import config


def get_config() -> ml_collections.ConfigDict:
    run = config.run()
    run.model.family = "llama3_canon"
    run.train.total_tokens = 1_000_000_000
    run.train.batch_tokens = 122_880
    run.train.micro_batch = 24
    run.train.eval_every = 1_000
    run.execution.loss_chunk = 128
    return run
