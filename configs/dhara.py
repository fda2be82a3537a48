r"""Dhara at the study's size: the 71,344,512 parameters of LLaMA3-Canon, converted to diffusion.

    python -m jaxlm.convert --config=configs/dhara.py --config.data.dir=runs/study/data --init_from=runs/study/ar \
        --workdir=runs/study/dhara

100M tokens, a tenth of what the autoregressive model was trained on: 813 steps of 122,880. Blocks of 1, 4, 32 and 64
tokens over 40 % of them, then the whole window of 1,024 as one block, plain masked diffusion. The mask token is the
first id outside the tokenizer, 50257 of 50304 rows. Blocks and order are LLaDA2.0's (arXiv 2512.15745); the shares, the
peak rate of 3e-4 (DiffuGPT's) and its cosine are jaxlm's convention, since neither LLaDA2.0 nor the study prints them.

The same model from scratch, on 1B tokens, is configs/dllm_canon.py.

Expected: 579.06 MFLOP a token (6 N and full attention), about twice that in the block phases, which run the window
noisy and clean: 28 minutes on an A40 at 30 % MFU, 4 minutes on an H200. The study took 1.8 hours on an A40.
"""

import ml_collections

from jaxlm import config


def get_config() -> ml_collections.ConfigDict:
    run = config.run()
    run.model.family = "dhara"
    run.objective.kind = "diffusion"
    run.convert.block_sizes = (1, 4, 32, 64)
    run.convert.warmup_share = 0.4
    run.train.total_tokens = 100_000_000
    run.train.batch_tokens = 122_880
    run.train.micro_batch = 24
    run.train.learning_rate = 3e-4
    run.train.save_every = 200
    run.train.eval_every = 200
    run.execution.loss_chunk = 128
    return run
