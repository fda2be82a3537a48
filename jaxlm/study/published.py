"""What is published about the study, by the names of our rows; None where nothing is.

Every table says how each figure is known: **P** from the author's own page, card or configuration, **S** from somebody
who quotes it, **C** computed from published figures or dimensions, **I** inferred. Sources: `SOURCES`. The author
published no code, and no result of another seed; of the sweep only one row is published task by task.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

ARTICLE = "https://huggingface.co/blog/codelion/optimal-model-architecture"
GPT2_CARD = "https://huggingface.co/codelion/gpt-2-70m"
DHARA_CARD = "https://huggingface.co/codelion/dhara-70m"
MIXING = "https://huggingface.co/blog/codelion/optimal-dataset-mixing"
MOBILELLM = "https://github.com/facebookresearch/MobileLLM"
SOURCES = {
    "the article and the author's comments on it": ARTICLE,
    "the card of gpt-2-70m": GPT2_CARD,
    "the card of dhara-70m": DHARA_CARD,
    "the article on mixing data": MIXING,
    "MobileLLM": MOBILELLM,
}
HIGH, LOW = "high", "low"


@dataclass(frozen=True)
class Published:
    """One model of the study.

    Attributes:
      row: ours that repeats it.
      label: how it is called there.
      layers: as published.
      hidden: the width of the model.
      parameters: computed from the dimensions, all of them counted.
      mean_6: mean of the six tasks without GSM8K, in points.
      mean_7: mean of the seven.
      average: the number as it is printed, whatever it is over.
      num_tasks: that `average` is over; None where that is not known.
      scores: by task, in points.
      evidence: how each of these is known.
      tier: the one that the article puts it in, of the sweep; else "".
    """

    row: str
    label: str
    layers: int | None
    hidden: int | None
    parameters: int | None
    mean_6: float | None
    mean_7: float | None
    average: float | None
    num_tasks: int | None
    scores: Mapping[str, float] = field(default_factory=dict)
    evidence: str = ""
    tier: str = ""


@dataclass(frozen=True)
class Speed:
    """How fast a model wrote 100 tokens at batch 1 on an A40 in bfloat16; the number of diffusion steps is not said."""

    row: str
    label: str
    tokens_per_sec: float | None
    first_token_ms: float | None
    memory_gb: float | None
    evidence: str


@dataclass(frozen=True)
class Mix:
    """A mixture of data: shares of tokens, and the perplexity on its own validation text after 100M tokens."""

    row: str
    label: str
    shares: Mapping[str, float]
    perplexity: float | None
    evidence: str


_GPT2_12 = {
    "hellaswag": 27.03,
    "piqa": 57.29,
    "winogrande": 51.46,
    "arc_challenge": 21.67,
    "mmlu": 24.11,
    "truthfulqa_mc2": 47.31,
}
_GPT2_32 = {"winogrande": 52.64, "mmlu": 25.77, "truthfulqa_mc2": 45.83}
_DHARA = {
    "hellaswag": 25.58,
    "piqa": 51.58,
    "winogrande": 49.64,
    "arc_challenge": 24.83,
    "mmlu": 23.85,
    "truthfulqa_mc2": 47.50,
    "gsm8k": 0.0,
}
_SWEEP = "P: layers, width, average; C: parameters. What the average is over is not said"
_SWEEP_12 = "P: all scores, average; C: parameters, and that 38.15 is the mean of the six scores of its card"
_SWEEP_32 = (
    "P: layers, width, average; S: TruthfulQA, mean of seven; C: WinoGrande and MMLU from published differences to the "
    "12 layers, and that 38.50 is over six tasks, if GSM8K is 1.26"
)

SWEEP = (
    Published("gpt2-4", "GPT-2, 4 layers", 4, 768, 67_736_832, None, None, 31.98, None, {}, _SWEEP, LOW),
    Published("gpt2-12", "GPT-2, 12 layers", 12, 512, 64_085_504, 38.15, None, 38.15, 6, _GPT2_12, _SWEEP_12, HIGH),
    Published("gpt2-16", "GPT-2, 16 layers", 16, 448, 61_603_136, None, None, 32.61, None, {}, _SWEEP, LOW),
    Published("gpt2-24", "GPT-2, 24 layers", 24, 384, 62_279_808, None, None, 31.79, None, {}, _SWEEP, LOW),
    Published("gpt2-32", "GPT-2, 32 layers", 32, 384, 76_475_520, 38.50, 33.18, 38.50, 6, _GPT2_32, _SWEEP_32, HIGH),
    Published("gpt2-48", "GPT-2, 48 layers", 48, 320, 75_592_640, None, None, 32.45, None, {}, _SWEEP, LOW),
    Published("gpt2-64", "GPT-2, 64 layers", 64, 256, 63_673_088, None, None, 38.21, None, {}, _SWEEP, HIGH),
)


def _family(
    row: str,
    label: str,
    parameters: int | None,
    mean_7: float | None,
    evidence: str,
    scores: Mapping[str, float] | None = None,
) -> Published:
    tasks = None if mean_7 is None else 7
    return Published(row, label, 32, 384, parameters, None, mean_7, mean_7, tasks, scores or {}, evidence)


_QUOTED = "S: average; C: parameters"
FAMILIES = (
    _family("llama3_canon", "LLaMA3-Canon", 71_344_512, 33.22, _QUOTED),
    Published(
        "gpt2-32", "GPT-2 (32L)", 32, 384, 76_475_520, 38.50, 33.18, 33.18, 7, _GPT2_32, _SWEEP_32
    ),
    _family("moe", "MoE", None, 33.02, "S: average, and 67M active parameters; its kind is not said"),
    _family("gemma3", "Gemma3", 71_273_856, 32.47, _QUOTED),
    _family("qwen3", "Qwen3", 71_249_280, 32.36, _QUOTED),
    _family("lfm2", "LFM2", None, 32.16, "S: average, and 80M parameters, which no configuration that we tried has"),
    Published(
        "dhara", "Dhara", 32, 384, 71_344_512, 37.16, 31.85, 31.85, 7, _DHARA,
        "P: all scores, average, parameters; C: mean of six",
    ),
    _family("dllm_canon", "dLLM-Canon", 71_344_512, 31.81, "P: TruthfulQA; S: average; C: parameters",
            {"truthfulqa_mc2": 49.27}),
    _family("llama3", "LLaMA3", 71_246_208, None, "I: an average between 32 and 33; C: parameters"),
    _family("titans_mac", "Titans-MAC", None, None, "I: an average between 32 and 33; its configuration is not known"),
    _family("dllm", "dLLM", 71_246_208, None, "C: TruthfulQA, 49.27 - 2.19; I: an average between 31 and 32",
            {"truthfulqa_mc2": 47.08}),
    Published("unnamed", "a twelfth, which is not named", None, None, None, None, None, None, None, {},
              "P: the article counts twelve families and names eleven"),
)  # fmt: skip

THROUGHPUT = (
    Speed("dhara", "Dhara", 183.5, 35.5, 0.24, "S; 183 tokens/s also P"),
    Speed("gpt2-32", "GPT-2 (32L)", 48.0, 25.0, 0.15, "S, the first two approximate; 48 tokens/s also P"),
    Speed("dllm", "dLLM", 289.0, None, None, "S"),
    Speed("llama3", "LLaMA3", 50.0, None, None, "S"),
)

# What the conversion costs leaves out the 1B tokens of the autoregressive run that it starts from. S.
CONVERSION = {
    "scratch": {"tokens": 1e9, "hours": 18.0, "dollars": 36.0},
    "converted": {"tokens": 1e8, "hours": 1.8, "dollars": 4.0},
}

# Points on TruthfulQA that Canon layers add, and the share of parameters they add, in percent. S; computed it is 0.138.
CANON = {"llama3": 1.0, "dllm": 2.19, "overhead_percent": 0.13}

MIXES = (
    Mix("llama3", "50/30/20", {"finepdfs": 0.5, "dclm": 0.3, "fineweb_edu": 0.2}, 27.38, "S"),
    Mix("mix-finepdfs", "FinePDFs alone", {"finepdfs": 1.0}, 6.76, "S; 4,846 on FineWiki, where 50/30/20 has 346"),
    Mix("mix-dclm", "DCLM alone", {"dclm": 1.0}, 126.76, "S; 994 on FineWiki"),
    Mix("mix-fineweb_edu", "FineWeb-Edu alone", {"fineweb_edu": 1.0}, None, "not published"),
    Mix(
        "mix-40-30-30", "40/30/30", {"finepdfs": 0.4, "dclm": 0.3, "fineweb_edu": 0.3}, None,
        "P: named as the mix in the first version of the card of gpt-2-70m; no score",
    ),
)  # fmt: skip

# What choosing at random scores, in points. Of TruthfulQA by its probability mass: 45 to 48 for models that know
# little. C and I.
CHANCE = {
    "hellaswag": 25.0,
    "piqa": 50.0,
    "winogrande": 50.0,
    "arc_challenge": 25.0,
    "mmlu": 25.0,
    "truthfulqa_mc2": (45.0, 48.0),
    "gsm8k": 0.0,
}
