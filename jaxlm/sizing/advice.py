"""What is known against a shape: one sentence each, with the source. Warnings, for most of it is disputed.

Two secondary sources disagree at 70M parameters: a chapter on scaling small models, which wants width, and the study
that jaxlm rebuilds, which chose 32 x 384. A shape is told what either says; which is right is for a run to find out.
"""

from __future__ import annotations

from jaxlm.families import resolve
from jaxlm.model_config import ModelConfig
from jaxlm.sizing.recommend import ROWS

LEAST_WIDTH, MOST_WIDTH, LEAST_HEAD, FEW_LAYERS = 512, 1536, 32, 12

_TILES = "matrix units work on such tiles (NVIDIA's matrix multiplication guide, Google's TPU performance guide)"
_RULE = "the study asks for a width of 512, exactly 32 layers, or 64 and more"
_COUNTEREXAMPLE = "its own 4 x 768 has the width and scored 31.98, in its low tier"


def warnings(model: ModelConfig, total: int) -> list[str]:
    """What speaks against a model with `total` parameters, one sentence each, with its source."""
    model = resolve(model)
    return [*_width(model), *_embedding(model, total), *_tiles(model), *_head(model)]


def _width(model: ModelConfig) -> list[str]:
    D, L, out = model.hidden_size, model.num_layers, []
    follows = D >= LEAST_WIDTH or L == 32 or L >= 64
    if D < LEAST_WIDTH:
        verdict = "this shape is allowed by its layers" if follows else "this shape has none of them"
        out += [
            f"model.hidden_size {D} is below {LEAST_WIDTH}, under which small models are said to get worse whatever "
            "their depth (MiniMind's README, repeated by the small-model scaling chapter)",
            f"model.hidden_size {D} with model.num_layers {L}: {_RULE}, and {verdict}; but {_COUNTEREXAMPLE} (the "
            "study's depth sweep)",
        ]
    elif L < FEW_LAYERS:
        out.append(
            f"model.num_layers {L} with model.hidden_size {D}: {_RULE}, so this shape is allowed; but "
            f"{_COUNTEREXAMPLE} (the study's depth sweep)"
        )
    if D > MOST_WIDTH:
        out.append(
            f"model.hidden_size {D} is above {MOST_WIDTH}: more layers are said to be worth more than more width (the "
            "small-model scaling chapter; MobileLLM, arXiv 2402.14905, found so at 125M and 350M)"
        )
    return out


def _embedding(model: ModelConfig, total: int) -> list[str]:
    V, out, table = model.vocab_size, [], model.vocab_size * model.hidden_size
    row = next((row for row in ROWS if total <= row.largest), None)
    if row is not None and V > row.vocabulary_below:
        out.append(
            f"model.vocab_size {V} is above {row.vocabulary_below}, the limit at {total / 1e6:,.1f}M parameters "
            f"({row.label}): its table is {table / total:.0%} of them (the small-model scaling chapter; the study has "
            "50,304 at 71M)"
        )
    if not model.tie_embeddings and total <= ROWS[0].largest:
        out.append(
            f"model.tie_embeddings is False at {total / 1e6:,.1f}M parameters ({ROWS[0].label}): a head of its own is "
            f"{table / total:.0%} of them (the small-model scaling chapter; MobileLLM, arXiv 2402.14905, shares it at "
            "125M)"
        )
    return out


def _tiles(model: ModelConfig) -> list[str]:
    out = []
    if model.vocab_size % 128:
        out.append(f"model.vocab_size {model.vocab_size} is not a multiple of 128: {_TILES}")
    if model.intermediate_size % 64:
        out.append(f"model.intermediate_size {model.intermediate_size} is not a multiple of 64: {_TILES}")
    return out


def _head(model: ModelConfig) -> list[str]:
    if model.head_dim >= LEAST_HEAD:
        return []
    return [
        f"model.head_dim {model.head_dim} is below {LEAST_HEAD}: the released small models have 48 to 96 (the "
        "configurations of Dhara-70M, MobileLLM and MiniMind2)"
    ]
