"""A mixture of experts at the study's size: 66,576,768 parameters active for a token, of 99,606,912.

    python -m jaxlm.train --config=configs/moe.py:active67m --config.data.dir=runs/study/data --workdir=runs/study/moe

    argument    an expert's width       active         total   MFLOP a token   A40 (h)   H200 (min)
    active67m                 448   66,576,768    99,606,912          474.96       2.9           27
    total70m                  256   52,420,992    71,295,360          390.02       2.4           22

The study prints "67M active" and neither kind nor sizes. No model has both 67M active and the others' 70M in total, so
there are two: `active67m` (the default) uses as many for a token as the study's, and `total70m` holds the feed-forward
of configs/llama3.py cut into four, and a router. All else is jaxlm's convention: the other sizes, the data and the
recipe of configs/llama3.py; in every layer 4 experts, of which a token uses the best 2, their weights summing to 1;
load-balancing loss times 0.01, z loss times 0.001. FLOPs are 6 for each active parameter, and causal attention; hours
are at 30 % MFU.
"""

import ml_collections

from jaxlm import config
from jaxlm.fields import require

# Width of one of the four experts.
WIDTHS = {"active67m": 448, "total70m": 256}


def get_config(size: str = "active67m") -> ml_collections.ConfigDict:
    require(size in WIDTHS, f"configs/moe.py takes no {size!r}, allowed: {', '.join(WIDTHS)}")
    run = config.run()
    run.model.family = "moe"
    run.model.num_experts = 4
    run.model.experts_per_token = 2
    run.model.intermediate_size = WIDTHS[size]
    run.train.total_tokens = 1_000_000_000
    run.train.batch_tokens = 122_880
    run.train.micro_batch = 24
    run.train.eval_every = 1_000
    run.execution.loss_chunk = 128
    return run
