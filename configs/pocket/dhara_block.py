r"""The pocket Dhara for cached block decoding: a decay to blocks of 32 at the end.

    python -m jaxlm.convert --config=configs/pocket/dhara_block.py --init_from=runs/quickstart/ar \
        --workdir=runs/quickstart/dhara_block
    python -m jaxlm.generate --workdir=runs/quickstart/dhara_block --prompt="Returns the sum of" --block_size=32

The 2,391,744 parameters of configs/pocket/llama3_canon.py, 292 steps of 4 windows of 256 tokens: 0.2M tokens as in
configs/pocket/dhara.py, then 0.1M in blocks of 64 and 32. Every block size is compiled anew, so the decay takes two
steps where configs/dhara_block.py takes five. The last phase has three checkpoints, each with its validation:
`python -m jaxlm.merge --workdir=runs/quickstart/dhara_block --out=DIR` makes one model of them.

Expected: validation ELBO 5.41 +- 0.12 nats a token with the whole window (step 175), and 5.09 +- 0.10 in blocks of 32
at the end, on 64 windows; 10 minutes on 2 CPU cores that had much other work.
"""

import os

import ml_collections

from jaxlm import config


def get_config() -> ml_collections.ConfigDict:
    run = config.run()
    run.data.dir = os.path.join(os.environ.get("JAXLM_RUNS", "runs"), "quickstart", "data")
    run.model.family = "dhara"
    run.model.vocab_size = 4_224
    run.model.num_layers = 4
    run.model.hidden_size = 192
    run.model.intermediate_size = 512
    run.model.num_heads = 6
    run.model.num_kv_heads = 2
    run.model.head_dim = 32
    run.model.max_positions = 256
    run.objective.kind = "diffusion"
    run.convert.block_sizes = (1, 4, 32)
    run.convert.warmup_tokens = 80_000
    run.convert.decay_block_sizes = (64, 32)
    run.convert.decay_tokens = 100_000
    run.train.total_tokens = 300_000
    run.train.batch_tokens = 4 * 256
    run.train.seq_len = 256
    run.train.learning_rate = 1e-3
    run.train.eval_every = 25
    run.train.eval_windows = 64
    run.train.save_every = 25
    run.train.keep = 3
    run.optimizer.warmup_share = 0.05
    run.execution.dtype = "float32"
    return run
