r"""MobileLLM: 124,635,456 or 345,355,200 parameters, deep and thin; LS runs each layer twice.

    python -m jaxlm.prepare_data --config=configs/data/files.py --config.files='/path/*.parquet' \
        --config.tokenizer=train:32000 --config.seq_len=2048 --out=runs/mobilellm/data
    python -m jaxlm.train --config=configs/mobilellm.py:125m --config.data.dir=runs/mobilellm/data \
        --workdir=runs/mobilellm/125m

    argument   layers x width   heads   feed-forward    parameters   MFLOP a token   A40 (h)   H200 (min)
    125m             30 x 576    9/ 3          1,536   124,635,456          960.15       5.9           54
    350m             32 x 960   15/ 5          2,560   345,355,200        2,449.62      15.2          138
    125m_ls      2 x 30 x 576    9/ 3          1,536   124,635,456        1,809.71      11.2          102
    350m_ls      2 x 32 x 960   15/ 5          2,560   345,355,200        4,714.92      29.2          265
    125m_12l         12 x 768   12/ 4          2,944   124,865,280          862.44       5.3           48
    125m_42l         42 x 512    8/ 2          1,248   124,463,616        1,011.02       6.3           57

Sizes are those of the released configurations, with the embedding shared, which their training script asks for: without
it 125M has 143M parameters. Vocabulary 32,000, heads of 64, windows of 2,048. The last two are jaxlm's: the same budget
(0.18 % more, 0.14 % less) over 12 and 42 layers.

MobileLLM was trained on 1T tokens. The recipe here is that of configs/llama3.py, so that it can be set beside the
study's families: 1B tokens, batches of 122,880, in ten micro-batches of 6 windows, with which 350m_ls fits 48 GB. FLOPs
are 6 N, N counted as often as it works, and causal attention; hours are at 30 % MFU.
"""

import ml_collections

from jaxlm import config
from jaxlm.fields import require

# Layers, width, feed-forward, query heads, key heads, times that a layer runs.
SHAPES = {
    "125m": (30, 576, 1536, 9, 3, 1),
    "350m": (32, 960, 2560, 15, 5, 1),
    "125m_ls": (30, 576, 1536, 9, 3, 2),
    "350m_ls": (32, 960, 2560, 15, 5, 2),
    "125m_12l": (12, 768, 2944, 12, 4, 1),
    "125m_42l": (42, 512, 1248, 8, 2, 1),
}


def get_config(shape: str = "125m") -> ml_collections.ConfigDict:
    require(shape in SHAPES, f"configs/mobilellm.py takes no {shape!r}, allowed: {', '.join(SHAPES)}")
    layers, width, feed_forward, heads, kv_heads, repeats = SHAPES[shape]
    run = config.run()
    run.model.family = "mobilellm"
    run.model.vocab_size = 32_000
    run.model.num_layers = layers
    run.model.hidden_size = width
    run.model.intermediate_size = feed_forward
    run.model.num_heads = heads
    run.model.num_kv_heads = kv_heads
    run.model.head_dim = 64
    run.model.layer_repeats = repeats
    run.model.max_positions = 2_048
    run.train.total_tokens = 1_000_000_000
    run.train.batch_tokens = 122_880
    run.train.seq_len = 2_048
    run.train.micro_batch = 6
    run.train.eval_every = 1_000
    run.execution.loss_chunk = 128
    return run
