"""The pocket version of any family: the word after the colon is all that differs.

    python -m jaxlm.train --config=configs/pocket/family.py:gemma3 --workdir=runs/pocket/gemma3
    bash launch/pocket_families.sh    # all of them one after another, evaluated, and a table of the results

    family         parameters   what of its own it needs
    gpt2            2,640,000   a key head for each query head, feed-forward 768
    llama3          2,385,600   (default)
    llama3_canon    2,391,744
    qwen3           2,385,856
    gemma3          2,387,392   three layers that see 64 positions, then a global one
    lfm2            2,534,848   attention in the third of the four layers
    moe             3,568,320   four experts of half the width: 2,388,672 parameters are active
    titans_mac      2,743,652   a memory in the second and fourth of the four layers
    dllm            2,385,600
    dllm_canon      2,391,744
    dhara           2,391,744   here from scratch; configs/pocket/dhara.py makes it from llama3_canon
    mobilellm       1,598,400   two layers, each run twice
    minimind        2,361,024   8 query heads of 24

Sizes, vocabulary and text are those of configs/pocket/llama3_canon.py: 4 layers of width 192. 488 steps of 4 windows
of 256 tokens, 0.5M tokens, float32. Batch and rate were chosen once for all, on llama3 and dllm. On 256 validation
windows, batches of 2, 4 and 8 at rates of 2e-3, 3e-3 and 3e-3 ended at 4.94, 5.05 and 5.25 (llama3) and at 6.51, 6.43
and 6.53 (dllm); dllm in batches of 2 at 4e-3, and of 4 at 1.5e-3, both at 6.58.

Expected: autoregressive families end between 4.4 and 5.6 nats a token, more than one below the token frequencies
(6.550; GPT-2, with 5.52, by the least), diffusion from scratch at 6.46, 4 standard errors below them; 2 to 5 minutes on
2 CPU cores. Such models test the machinery, and say nothing about which architecture is better.
"""

import os

import ml_collections

from jaxlm import config
from jaxlm.families import registry

# What a family needs beside its name, where the skeleton's sizes would leave nothing of it, or do not fit it.
OWN = {
    "gpt2": {"intermediate_size": 4 * 192, "num_kv_heads": 6},
    "gemma3": {"layer_pattern": "LLLG", "sliding_window": 64},
    "lfm2": {"layer_pattern": "CCGC"},
    "moe": {"intermediate_size": 256},
    "mobilellm": {"num_layers": 2, "layer_repeats": 2},
    "minimind": {"num_heads": 8, "head_dim": 24},
}


def get_config(family: str = "llama3") -> ml_collections.ConfigDict:
    run = config.run()
    run.data.dir = os.path.join(os.environ.get("JAXLM_RUNS", "runs"), "quickstart", "data")
    run.model.family = family
    run.model.vocab_size = 4_224
    run.model.num_layers = 4
    run.model.hidden_size = 192
    run.model.intermediate_size = 512
    run.model.num_heads = 6
    run.model.num_kv_heads = 2
    run.model.head_dim = 32
    run.model.max_positions = 256
    run.model.update(OWN.get(family, {}))
    if registry.family(family).diffusion:
        run.objective.kind = "diffusion"
    run.train.total_tokens = 500_000
    run.train.batch_tokens = 4 * 256
    run.train.seq_len = 256
    run.train.learning_rate = 3e-3
    run.train.eval_every = 200
    run.train.save_every = 100
    run.optimizer.warmup_share = 0.05
    run.execution.dtype = "float32"
    return run
