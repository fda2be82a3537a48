r"""Dhara for cached block decoding: configs/dhara.py with a decay to blocks of 32 at its end.

    python -m jaxlm.convert --config=configs/dhara_block.py --config.data.dir=runs/study/data \
        --init_from=runs/study/ar --workdir=runs/study/dhara_block
    python -m jaxlm.merge --workdir=runs/study/dhara_block --out=runs/study/dhara_merged
    python -m jaxlm.generate --workdir=runs/study/dhara_merged --prompt="Once upon a time" --block_size=32

A model of the whole window reads what it has not written yet, so nothing it has computed can be kept. In blocks a text
that is written is read once. 125M tokens, 1,017 steps of 122,880: the 100M of configs/dhara.py (40M of them in blocks
of 1, 4, 32 and 64 tokens, then the whole window), and 25M on the way back, 5M each in blocks of 512, 256, 128, 64 and
32. The blocks are LLaDA2.0's (arXiv 2512.15745), and so is the mean of the best checkpoints; the tokens of each phase
are jaxlm's convention. The last phase is 41 steps long, hence a checkpoint and a validation every 10.

Expected: the 71,344,512 parameters of configs/dhara.py; 579.06 MFLOP a token (6 N and full attention) with the whole
window, 891.23 in blocks, which run it noisy and clean: 34 minutes on an A40 at 30 % MFU, 5 minutes on an H200.
"""

import ml_collections

from jaxlm import config


def get_config() -> ml_collections.ConfigDict:
    run = config.run()
    run.model.family = "dhara"
    run.objective.kind = "diffusion"
    run.convert.block_sizes = (1, 4, 32, 64)
    run.convert.warmup_tokens = 40_000_000
    run.convert.decay_block_sizes = (512, 256, 128, 64, 32)
    run.convert.decay_tokens = 25_000_000
    run.train.total_tokens = 125_000_000
    run.train.batch_tokens = 122_880
    run.train.micro_batch = 24
    run.train.learning_rate = 3e-4
    run.train.save_every = 10
    run.train.eval_every = 10
    run.train.keep = 3
    run.execution.loss_chunk = 128
    return run
