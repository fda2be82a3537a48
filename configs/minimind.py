r"""MiniMind2: 25,829,888, 104,030,976, or 145,029,760 parameters with experts; vocabulary 6,400.

    python -m jaxlm.prepare_data --config=configs/data/files.py --config.files='/path/*.parquet' \
        --config.tokenizer=train:6400 --config.seq_len=1024 --out=runs/minimind/data
    python -m jaxlm.train --config=configs/minimind.py:small --config.data.dir=runs/minimind/data \
        --workdir=runs/minimind/small

    argument   layers x width   feed-forward    parameters   MFLOP a token   A40 (h)   H200 (min)
    small             8 x 512          1,408    25,829,888          180.15       1.1           10
    base             16 x 768          2,048   104,030,976          699.68       4.3           39
    moe               8 x 640      5 x 1,728   145,029,760          583.13       3.6           33

8 query and 2 key heads, rotary base 1,000,000, tied head. The feed-forward is 8/3 of the width, rounded up to a
multiple of 64. `moe` has one shared and four routed experts, the best 2 for each token: 91,945,600 parameters are
active. Sizes are MiniMind2's; its load-balancing loss weighs 0.1, here 0.01 as in configs/moe.py.

The recipe is that of configs/llama3.py, so that it can be set beside the study's families: 1B tokens, windows of 1,024.
FLOPs are 6 for each active parameter, and causal attention; hours are at 30 % MFU.
"""

import ml_collections

from jaxlm import config
from jaxlm.fields import require

# Layers, width, feed-forward (of one expert), routed experts, shared experts.
SHAPES = {
    "small": (8, 512, 1408, 0, 0),
    "base": (16, 768, 2048, 0, 0),
    "moe": (8, 640, 1728, 4, 1),
}


def get_config(shape: str = "small") -> ml_collections.ConfigDict:
    require(shape in SHAPES, f"configs/minimind.py takes no {shape!r}, allowed: {', '.join(SHAPES)}")
    layers, width, feed_forward, experts, shared = SHAPES[shape]
    run = config.run()
    run.model.family = "minimind"
    run.model.vocab_size = 6_400
    run.model.num_layers = layers
    run.model.hidden_size = width
    run.model.intermediate_size = feed_forward
    run.model.num_heads = 8
    run.model.num_kv_heads = 2
    run.model.head_dim = width // 8
    run.model.num_experts = experts
    run.model.num_shared_experts = shared
    run.train.total_tokens = 1_000_000_000
    run.train.batch_tokens = 122_880
    run.train.micro_batch = 24
    run.train.eval_every = 1_000
    run.execution.loss_chunk = 128
    return run
