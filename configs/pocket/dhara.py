r"""The pocket LLaMA3-Canon turned into a diffusion model: step 3 of launch/quickstart.sh.

    python -m jaxlm.convert --config=configs/pocket/dhara.py --init_from=runs/quickstart/ar \
        --workdir=runs/quickstart/diffusion

The 2,391,744 parameters of configs/pocket/llama3_canon.py, 195 steps of 4 windows of 256 tokens: 0.2M tokens, a tenth
of what the autoregressive model saw. Blocks of 1, 4 and 32 tokens over 40 % of the steps, then the whole window as one
block: masked diffusion with the mask token 4096. Every block size is compiled anew, so there are no more of them.

Expected: validation ELBO 5.32 +- 0.09 nats a token, where a model of token frequencies stays at 6.6; 2 minutes on 2
CPU cores that had other work too, 40 seconds of them compilation. On 256 windows, peak rates of 1e-3, 2e-3 (four block
sizes) and 4e-3 ended at 5.36, 5.40 and 5.56.
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
    run.convert.warmup_share = 0.4
    run.train.total_tokens = 200_000
    run.train.batch_tokens = 4 * 256
    run.train.seq_len = 256
    run.train.learning_rate = 1e-3
    run.train.eval_every = 100
    run.train.eval_windows = 128
    run.train.save_every = 100
    run.optimizer.warmup_share = 0.05
    run.execution.dtype = "float32"
    return run
