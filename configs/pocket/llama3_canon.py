"""A pocket LLaMA3-Canon, autoregressive, for a laptop: step 2 of launch/quickstart.sh.

    python -m jaxlm.train --config=configs/pocket/llama3_canon.py --workdir=runs/quickstart/ar

2,391,744 parameters: 4 layers of width 192 with Canon layers A and C, vocabulary 4,224 (4,096 ids of the tokenizer, one
for the mask of a later conversion, the rest to reach a multiple of 128). 976 steps of 8 windows of 256 tokens, 2.0M
tokens, less than one epoch of configs/data/package_docs.py. Small batches, because on a CPU the number of updates is
what two million tokens buy.

Expected: validation loss 3.75 nats a token, 1.67 bits per byte, and 1.95 after 400 of the steps (`xz -9` needs 2.17 on
these bytes); 8.4 minutes on 2 CPU cores that had other work too (4,300 tokens a second). float32, because CPUs compute
bfloat16 no faster here, and the results then differ less from machine to machine.
"""

import os

import ml_collections

from jaxlm import config


def get_config() -> ml_collections.ConfigDict:
    run = config.run()
    run.data.dir = os.path.join(os.environ.get("JAXLM_RUNS", "runs"), "quickstart", "data")
    run.model.family = "llama3_canon"
    run.model.vocab_size = 4_224
    run.model.num_layers = 4
    run.model.hidden_size = 192
    run.model.intermediate_size = 512
    run.model.num_heads = 6
    run.model.num_kv_heads = 2
    run.model.head_dim = 32
    run.model.max_positions = 256
    run.train.total_tokens = 2_000_000
    run.train.batch_tokens = 8 * 256
    run.train.seq_len = 256
    run.train.learning_rate = 3e-3
    run.train.eval_every = 200
    run.train.save_every = 200
    run.optimizer.warmup_share = 0.05
    run.execution.dtype = "float32"
    return run
