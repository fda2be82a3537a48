"""What two sources advise for a budget, each worked out as a shape: they do not agree.

The small-model scaling chapter is known here through others' notes of it, and by one row in full; the study is the one
that this package rebuilds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from jaxlm import config as configuration
from jaxlm import fields
from jaxlm.config import RunConfig
from jaxlm.errors import UserError
from jaxlm.families import build_model
from jaxlm.model_config import ModelConfig
from jaxlm.sizing import budget
from jaxlm.training import flops

_CHAPTER = "the small-model scaling chapter"
_FLOOR = 512  # the width below which the chapter, after MiniMind's README, does not go


@dataclass(frozen=True)
class Row:
    """The chapter's advice for total parameters up to `largest`, the end included; None: not known here."""

    largest: int
    label: str
    vocabulary_below: int
    example_vocabulary: int  # the power of two next below: jaxlm's choice, for a multiple of 128
    layers: tuple[int, int] | None


ROWS = (
    Row(49_999_999, "below 50M", 10_000, 8_192, None),
    Row(200_000_000, "50M to 200M", 20_000, 16_384, (12, 20)),
    Row(500_000_000, "200M to 500M", 50_000, 32_768, None),
)


def recommend(total: int) -> dict[str, Any]:
    """The object that `size --recommend --json` prints.

    `chapter` and `study` have the advice and `shapes`, counted on the real model; `disagreements` and `unknown` are
    sentences. Raises UserError above 500M, where the chapter's rows end, and below one layer of its least width.
    """
    row = next((row for row in ROWS if total <= row.largest), None)
    if row is None:
        raise UserError(f"--recommend is {total:,}, allowed: at most {ROWS[-1].largest:,}, where {_CHAPTER}'s rows end")
    chapter, study = _chapter_shapes(row, total), _counted("its skeleton", _study())
    layers = None if row.layers is None else list(row.layers)
    return {
        "budget": total,
        "chapter": {
            "row": row.label,
            "hidden_at_least": _FLOOR,
            "layers": layers,
            "vocabulary_below": row.vocabulary_below,
            "shapes": chapter,
        },
        "study": {"layers": 32, "hidden": 384, "vocabulary": 50_304, "shapes": [study]},
        "disagreements": _disagreements(row, chapter, study),
        "unknown": _unknown(row, total, chapter, study),
    }


def _study() -> RunConfig:
    return fields.build(RunConfig, configuration.run())


def _chapter_base(row: Row) -> RunConfig:
    """One layer of the least width: heads of 64, four to a key head, F = 8/3 D in whole tiles, as MiniMind has them."""
    model = replace(
        ModelConfig(),
        vocab_size=row.example_vocabulary,
        num_layers=1,
        hidden_size=_FLOOR,
        intermediate_size=1_408,
        num_heads=8,
        num_kv_heads=2,
        head_dim=64,
    )
    return replace(_study(), model=model)


def _chapter_shapes(row: Row, total: int) -> list[dict[str, Any]]:
    """At the least width, as deep as the budget allows; if that is outside the row's layers, one within them, too."""
    base = _chapter_base(row)
    one, two = (_total(replace(base.model, num_layers=layers)) for layers in (1, 2))
    layers = 1 + round((total - one) / (two - one))
    if layers < 1:
        raise UserError(f"--recommend is {total:,}, allowed: at least {one:,}, one layer of {_CHAPTER}'s least width")
    shapes = []
    if layers <= max(budget.DEPTHS):
        shapes.append(_counted("at its least width", replace(base, model=replace(base.model, num_layers=layers))))
    if row.layers is not None and not row.layers[0] <= layers <= row.layers[1]:
        inside = budget.propose(base, total, range(row.layers[0], row.layers[1] + 1))
        wide = [shape for shape in inside.shapes if shape.config.model.hidden_size >= _FLOOR]
        best = min(wide, key=lambda shape: abs(shape.ffn_ratio_deviation))
        shapes.append(_counted("within its layers", best.config))
    return shapes


def _total(model: ModelConfig) -> int:
    return flops.parameter_counts(build_model(model))["total"]


def _counted(name: str, config: RunConfig) -> dict[str, Any]:
    model, counts = config.model, flops.parameter_counts(build_model(config.model))
    return {
        "name": name,
        "family": model.family,
        "layers": model.num_layers,
        "hidden": model.hidden_size,
        "ffn": model.intermediate_size,
        "heads": model.num_heads,
        "kv_heads": model.num_kv_heads,
        "head_dim": model.head_dim,
        "vocabulary": model.vocab_size,
        "total": counts["total"],
        "non_embedding": counts["non_embedding"],
        "embedding_share": 1 - counts["non_embedding"] / counts["total"],
        "flops_per_token": flops.flops_per_token(model, config.train.seq_len),
    }


def _disagreements(row: Row, chapter: list[dict[str, Any]], study: dict[str, Any]) -> list[str]:
    out = [f"width: {_CHAPTER} wants at least {_FLOOR} (MiniMind's README calls it a floor), the study chose 384"]
    if row.layers is not None:
        low, high = row.layers
        out.append(f"layers: {_CHAPTER} wants {low} to {high}, the study chose 32")
        if chapter[0]["hidden"] == _FLOOR and not low <= chapter[0]["layers"] <= high:
            out[-1] += f"; at the chapter's least width this budget takes {chapter[0]['layers']}, outside its own row"
    out.append(
        f"vocabulary: {_CHAPTER} wants it below {row.vocabulary_below:,}, the study has 50,304 (GPT-2's, padded)"
    )
    if chapter:
        shares = f"{chapter[0]['embedding_share']:.1%} and {study['embedding_share']:.1%}"
        out[-1] += f"; embeddings are {shares} of the parameters"
    return out


def _unknown(row: Row, total: int, chapter: list[dict[str, Any]], study: dict[str, Any]) -> list[str]:
    out = [
        "which is better: the study's 12 x 512, of the chapter's width and layers, scored 38.15, its 32 x 384 38.50 "
        "with 19% more parameters, one run each; no comparison with the chapter's vocabulary is known here",
        "the study's rule (width at least 512, or exactly 32 layers, or at least 64) calls 4 x 768 good, and its own "
        "4 x 768 scored low (31.98), so the rule does not decide it",
        "what a smaller vocabulary costs: it makes more tokens of the same text, so compare bits per byte, not nats",
    ]
    if row.layers is None:
        out.append(f"the layers that {_CHAPTER} wants {row.label}: only its limit on the vocabulary is known here")
    if not chapter:
        out.append(
            f"a shape of {_CHAPTER}'s: at its least width {total:,} parameters would be deeper than anything the study "
            "trained (64 layers); configs/mobilellm.py:350m is a published one of 345,355,200"
        )
    if abs(study["total"] / total - 1) > 0.1:
        out.append(
            f"what the study would choose at {total:,}: its sweep has 62M to 77M parameters, its families 67M to 80M"
        )
    return out


def text(found: dict[str, Any]) -> str:
    """What `recommend` found, for reading."""
    chapter, study = found["chapter"], found["study"]
    layers = "unknown here" if chapter["layers"] is None else "{} to {}".format(*chapter["layers"])
    shapes = [*(("chapter", shape) for shape in chapter["shapes"]), *(("study", shape) for shape in study["shapes"])]
    lines = [
        f"{found['budget']:,} parameters: two sources that disagree",
        "",
        f"{'':<12}{'width':>14}{'layers':>14}{'vocabulary':>14}",
        f"{'chapter':<12}{'at least ' + str(chapter['hidden_at_least']):>14}{layers:>14}"
        f"{'below ' + format(chapter['vocabulary_below'], ','):>14}   {_CHAPTER}, {chapter['row']}",
        f"{'study':<12}{study['hidden']:>14}{study['layers']:>14}{study['vocabulary']:>14,}   "
        "The Optimal Architecture for Small Language Models, 70M",
        "",
        f"{'worked out':<32}{'layers x width':>15}{'heads':>8}{'feed-forward':>14}{'vocabulary':>12}{'total':>14}"
        f"{'embeddings':>12}{'MFLOP a token':>15}",
    ]
    for source, shape in shapes:
        size, heads = f"{shape['layers']} x {shape['hidden']}", f"{shape['heads']}/{shape['kv_heads']}"
        mega = shape["flops_per_token"]["with_causal_attention"] / 1e6
        lines.append(
            f"{source + ', ' + shape['name']:<32}{size:>15}{heads:>8}{shape['ffn']:>14,}"
            f"{shape['vocabulary']:>12,}{shape['total']:>14,}{shape['embedding_share']:>12.1%}{mega:>15,.2f}"
        )
    lines += ["", "they disagree on", *(f"  {sentence}" for sentence in found["disagreements"])]
    lines += ["", "unknown", *(f"  {sentence}" for sentence in found["unknown"])]
    return "\n".join(lines)
