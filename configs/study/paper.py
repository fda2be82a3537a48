"""The whole study: every published row at its size, and the rows that its claims need beside them.

    python -m jaxlm.study --config=configs/study/paper.py --list
    python -m jaxlm.study --config=configs/study/paper.py --workdir=runs/study --only=sweep,families --seeds=0

56 rows under three seeds: 165 runs, 147.6B tokens, 9.2e19 FLOPs; 717 hours on an A40, 109 on an H200, at 30 % MFU in
training and 10 % in evaluation; 1,434 dollars at 2 an hour of the A40. An autoregressive row of 70M takes 3 hours of an
A40. Of diffusion's 12 nine are evaluation, most of them GSM8K, which is written a token a pass over the whole canvas.
Dhara takes 8.8 hours, 11.9 with the run that it is made from.

Rows, data and groups are lines as jaxlm.study.rows reads them. gpt2_no_bias and llama3 differ in more than grouped
queries: 8 heads of 48 instead of 6 of 64, 50,304 rows instead of 50,257, and matrices that write to the stream start
at full size. Of the rows matched without embeddings or by FLOPs several are outside 62-77M parameters, as are moe,
titans_mac and mobilellm-*, and gpt2-16 by 0.4M; they are marked.
Mixes are split into training and validation each by itself: a text that stands in two sources may be held out in one
mix and learnt in another.
"""

import ml_collections

from jaxlm import study_config

LAYERS = (4, 12, 16, 24, 32, 48, 64)
OTHER_LAYERS = tuple(layers for layers in LAYERS if layers != 32)  # gpt2-32 is what budgets are matched to

MIX = "--config=configs/data/study_mix.py"
DATA = (
    f"study_mix: {MIX}",
    f"vocab-16384: {MIX} --config.tokenizer=train:16384",
    f"vocab-6400: {MIX} --config.tokenizer=train:6400",
    f"mobilellm: {MIX} --config.tokenizer=train:32000 --config.seq_len=2048",
    f"mix-finepdfs: {MIX} --config.files=hub:codelion/finepdfs-1B --config.weights=",
    f"mix-dclm: {MIX} --config.files=hub:codelion/dclm-baseline-1B --config.weights=",
    f"mix-fineweb_edu: {MIX} --config.files=hub:codelion/fineweb-edu-1B --config.weights=",
    f"mix-40-30-30: {MIX} --config.weights=finepdfs=0.4,dclm=0.3,fineweb_edu=0.3",
)

# One part of LLaMA 3 after another; SwiGLU has three matrices, so two thirds of the width hold as many parameters.
RMS = "--config.model.norm=rms --config.model.norm_eps=1e-6"
ROPE = f"{RMS} --config.model.positions=rope"
SWIGLU = f"{ROPE} --config.model.feed_forward=swiglu --config.model.intermediate_size=1024"
NO_BIAS = f"{SWIGLU} --config.model.use_bias=False"

# The scaling chapter's shape; its feed-forward is what llama3's total leaves for it.
CHAPTER = (
    "--config.model.num_layers=20 --config.model.hidden_size=512 --config.model.intermediate_size=1536 "
    "--config.model.num_heads=8 --config.model.num_kv_heads=4 --config.model.head_dim=64"
)

ROWS = (
    *(f"gpt2-{layers}: train --config=configs/gpt2.py:{layers}" for layers in LAYERS),
    "llama3: train --config=configs/llama3.py",
    "llama3_canon: train --config=configs/llama3_canon.py",
    "qwen3: train --config=configs/qwen3.py",
    "gemma3: train --config=configs/gemma3.py",
    "lfm2: train --config=configs/lfm2.py",
    "moe: train --config=configs/moe.py",
    "titans_mac: train --config=configs/titans_mac.py",
    "dllm: train --config=configs/dllm.py",
    "dllm_canon: train --config=configs/dllm_canon.py",
    "dhara: convert --config=configs/dhara.py --init_from=llama3_canon",
    "unnamed:",
    *(
        f"{match}-{layers}: train --config=configs/gpt2.py:{layers} --match={match}:gpt2-32"
        for match in ("total", "non_embedding", "flops")
        for layers in OTHER_LAYERS
    ),
    f"gpt2_rms: train --config=configs/gpt2.py:32 {RMS}",
    f"gpt2_rope: train --config=configs/gpt2.py:32 {ROPE}",
    f"gpt2_swiglu: train --config=configs/gpt2.py:32 {SWIGLU}",
    f"gpt2_no_bias: train --config=configs/gpt2.py:32 {NO_BIAS}",
    "llama3_canon_abcd: train --config=configs/llama3_canon.py --config.model.canon_set=ABCD",
    "dllm_canon_tenth: train --config=configs/dllm_canon.py --config.train.total_tokens=100M",
    "dhara-causal: read dhara --reading=causal",
    "dhara-in_order: read dhara --reading=in_order",
    "dllm_canon-causal: read dllm_canon --reading=causal",
    "dllm_canon-in_order: read dllm_canon --reading=in_order",
    *(
        f"vocab-{size}: train --config=configs/llama3.py --config.model.vocab_size={size} --match=total:llama3 "
        f"--data=vocab-{size}"
        for size in (16384, 6400)
    ),
    f"chapter: train --config=configs/llama3.py --config.model.vocab_size=16384 {CHAPTER} --match=total:llama3 "
    "--data=vocab-16384",
    *(
        f"mobilellm-{layers}: train --config=configs/mobilellm.py:{shape} --data=mobilellm"
        for layers, shape in ((12, "125m_12l"), (30, "125m"), (42, "125m_42l"))
    ),
    *(
        f"{mix}: train --config=configs/llama3.py --data={mix}"
        for mix in ("mix-finepdfs", "mix-dclm", "mix-fineweb_edu", "mix-40-30-30")
    ),
)


def _budget(match: str) -> str:
    return f"budget_{match}: gpt2-32 {' '.join(f'{match}-{layers}' for layers in OTHER_LAYERS)}"


GROUPS = (
    f"sweep: {' '.join(f'gpt2-{layers}' for layers in LAYERS)}",
    "families: gpt2-32 llama3 llama3_canon qwen3 gemma3 lfm2 moe titans_mac dllm dllm_canon dhara unnamed",
    *map(_budget, ("total", "non_embedding", "flops")),
    "ladder: gpt2-32 gpt2_rms gpt2_rope gpt2_swiglu gpt2_no_bias llama3",
    "canon_ar: llama3 llama3_canon llama3_canon_abcd",
    "canon_diffusion: dllm dllm_canon",
    "conversion: dhara dllm_canon dllm_canon_tenth",
    "readings: dhara dhara-causal dhara-in_order",
    "readings_scratch: dllm_canon dllm_canon-causal dllm_canon-in_order",
    "vocabulary: llama3 vocab-16384 vocab-6400",
    "shape: llama3 chapter",
    "mobilellm: mobilellm-12 mobilellm-30 mobilellm-42",
    "mixes: llama3 mix-finepdfs mix-dclm mix-fineweb_edu mix-40-30-30",
)


def get_config() -> ml_collections.ConfigDict:
    study = study_config.study()
    study.title = "The optimal architecture for small language models, repeated"
    study.data = DATA
    study.rows = ROWS
    study.groups = GROUPS
    study.seeds = (0, 1, 2)
    return study
