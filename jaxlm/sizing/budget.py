"""Shapes of one family that cost the same: layers are given, width and feed-forward follow from a budget.

Legend: L layers, D width, F feed-forward width (of one expert, if there are experts), n query heads.
"""

from __future__ import annotations

import functools
import math
import operator
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jaxlm import fields
from jaxlm.config import RunConfig
from jaxlm.errors import UserError
from jaxlm.families import resolve
from jaxlm.model_config import ModelConfig
from jaxlm.objectives import Objective
from jaxlm.training import flops
from jaxlm.training.run import check_reading

DEPTHS = (4, 12, 16, 24, 32, 48, 64)  # the study's sweep
TOLERANCE = 0.005  # of the budget
MULTIPLES = (64, 32, 16, 8)  # of F, the coarsest that reaches the budget first: matrix units work on such tiles
FINE = (*MULTIPLES, 4, 2, 1)  # of models so small that a step of 8 is more than the tolerance
_LARGEST, _DEEPEST = 1e11, 512  # beyond, the search takes minutes, and nobody's small model is there


@dataclass(frozen=True)
class Shape:
    """A configuration that meets the budget.

    Attributes:
      config: the base with this shape.
      deviation: of what is matched from the budget, as a share of it.
      ffn_ratio: F / D.
      ffn_ratio_deviation: of that ratio from the base's, as a share of it.
      ffn_multiple: of 64, 32, 16 and 8 the first by which F had to be divisible to come near enough.
      counts: `total` and `non_embedding` parameters, and `flops_per_token` in three conventions.
    """

    config: RunConfig
    deviation: float
    ffn_ratio: float
    ffn_ratio_deviation: float
    ffn_multiple: int
    counts: dict[str, Any]


@dataclass(frozen=True)
class Proposal:
    """Shapes for one budget: of `match`, which is total, non_embedding or flops."""

    budget: float
    match: str
    shapes: tuple[Shape, ...]


@dataclass(frozen=True)
class _Candidate:
    """A shape whose cost is foretold, not yet counted."""

    heads: int
    ffn: int
    multiple: int
    cost: float


def step_flops(config: RunConfig) -> tuple[float, str]:
    """FLOPs per token of a training step as its objective reads the row, and the name of that convention."""
    return flops.training_flops(Objective(config.objective, flops.described(config.model)), config.train.seq_len)


@functools.cache
def cost(config: RunConfig, match: str) -> float:
    """What a configuration costs by `match`: parameters (total, non_embedding), or FLOPs per token (flops)."""
    if match == "flops":
        return step_flops(config)[0]
    return float(flops.parameter_counts(flops.described(config.model))[match])


def propose(
    base: RunConfig,
    budget: float,
    depths: Sequence[int],
    match: str = "total",
    multiples: Sequence[int] = MULTIPLES,
) -> Proposal:
    """One shape a depth, within 0.5 % of the budget.

    The base gives everything but layers, width, heads and feed-forward: its head size stays, its query heads to a key
    head stay, and the width is heads times head size. For each such width the feed-forward is the nearest multiple of
    64 to what the budget leaves, or of 32, 16 or 8 where a coarser one is not within 0.5 %; of the widths for which
    there is one, the shape takes that whose F / D is nearest to the base's.

    Args:
      base: the family's usual configuration.
      budget: parameters, or FLOPs per token of training at `train.seq_len` (see `step_flops`); at most 1e11.
      depths: numbers of layers, at most 512.
      match: total, non_embedding (without the tables of tokens and positions) or flops.
      multiples: of the feed-forward, the coarsest first.

    Raises UserError for a budget that a depth cannot reach, with what it can, and where the family and the objective
    make no sense together.
    """
    check_reading(replace(base, model=resolve(base.model)))
    if budget > _LARGEST:
        raise UserError(f"--budget is {budget:,.0f}, allowed: at most {_LARGEST:,.0f}")
    if max(depths) > _DEEPEST:
        raise UserError(f"--depths has {max(depths)}, allowed: at most {_DEEPEST} layers")
    return Proposal(budget, match, tuple(_shape(base, budget, layers, match, multiples) for layers in depths))


def _shape(base: RunConfig, budget: float, layers: int, match: str, multiples: Sequence[int]) -> Shape:
    usual = base.model.intermediate_size / base.model.hidden_size
    candidates = list(_candidates(base, budget, layers, match, multiples))
    near = [c for c in candidates if abs(c.cost / budget - 1) <= TOLERANCE]
    if not near:
        below = max((c.cost for c in candidates if c.cost < budget), default=None)
        above = min((c.cost for c in candidates if c.cost > budget), default=None)
        nearest = " and ".join(f"{cost:,.0f}" for cost in (below, above) if cost is not None)
        raise UserError(
            f"--budget is {budget:,.0f} ({match}), which no {base.model.family} of {layers} layers with heads of "
            f"{base.model.head_dim} and vocabulary {base.model.vocab_size} meets within {TOLERANCE:.1%}; "
            f"allowed: near {nearest}, or other depths, head sizes or vocabularies"
        )
    best = min(near, key=lambda c: abs(c.ffn / (c.heads * base.model.head_dim) / usual - 1))
    config = replace(base, model=_reshaped(base.model, layers, best.heads, best.ffn))
    counts = flops.parameter_counts(flops.described(config.model))
    per_token = flops.flops_per_token(config.model, config.train.seq_len)
    real = cost(config, match)
    assert math.isclose(real, best.cost, rel_tol=1e-9), f"{config.model}: {real}, foretold {best.cost}; no polynomial?"
    ratio = best.ffn / config.model.hidden_size
    return Shape(
        config=config,
        deviation=real / budget - 1,
        ffn_ratio=ratio,
        ffn_ratio_deviation=ratio / usual - 1,
        ffn_multiple=best.multiple,
        counts={"total": counts["total"], "non_embedding": counts["non_embedding"], "flops_per_token": per_token},
    )


def _reshaped(model: ModelConfig, layers: int, heads: int, ffn: int) -> ModelConfig:
    group = model.num_heads // model.num_kv_heads
    return replace(
        model,
        num_layers=layers,
        hidden_size=heads * model.head_dim,
        intermediate_size=ffn,
        num_heads=heads,
        num_kv_heads=heads // group,
    )


def _candidates(
    base: RunConfig, budget: float, layers: int, match: str, multiples: Sequence[int]
) -> Iterator[_Candidate]:
    """For each width the feed-forward that comes nearest; the last width is the first that is too large at any."""
    group, cost_of = base.model.num_heads // base.model.num_kv_heads, _cost(base, layers, match)
    heads = group
    while True:
        least, step = cost_of(heads, 0), cost_of(heads, 1) - cost_of(heads, 0)
        for multiple in multiples:
            ffn = max(round((budget - least) / step / multiple), 1) * multiple
            candidate = _Candidate(heads, ffn, multiple, cost_of(heads, ffn))
            if abs(candidate.cost / budget - 1) <= TOLERANCE:
                break
        yield candidate
        if cost_of(heads, multiples[-1]) > budget * (1 + TOLERANCE):
            return
        heads += group


def _cost(base: RunConfig, layers: int, match: str) -> Callable[[int, int], float]:
    """The cost by heads and F, from six real models.

    Parameters and FLOPs are a polynomial of second degree in D and of first in F (a matrix has two sides, and none has
    two of F), so three widths and two F give all of it. `_shape` counts what it chooses by this.
    """
    group = base.model.num_heads // base.model.num_kv_heads
    sizes = (1, 2)

    def real(heads: int, ffn: int) -> float:
        model = _reshaped(base.model, layers, heads, ffn)
        if len(set(model.layer_kinds)) > 1:
            return cost(replace(base, model=model), match)
        # Layers of one kind cost the same, and two are made sooner than 64.
        one, two = (cost(replace(base, model=replace(model, num_layers=few)), match) for few in (1, 2))
        return one + (layers - 1) * (two - one)

    at = {(i, ffn): real(i * group, ffn) for i in (1, 2, 3) for ffn in sizes}

    def quadratic(values: tuple[float, float, float], i: int) -> float:
        first, second = values[1] - values[0], values[2] - 2 * values[1] + values[0]
        return values[0] + (i - 1) * first + (i - 1) * (i - 2) / 2 * second

    def foretold(heads: int, ffn: int) -> float:
        one, two = (quadratic((at[1, f], at[2, f], at[3, f]), heads // group) for f in sizes)
        return one + (ffn - 1) * (two - one)

    return foretold


def as_json(proposal: Proposal) -> dict[str, Any]:
    """The object that `size --budget --json` prints; FLOPs in all conventions, deviations as shares."""
    return {
        "family": proposal.shapes[0].config.model.family,
        "budget": proposal.budget,
        "match": proposal.match,
        "shapes": [
            {
                "layers": shape.config.model.num_layers,
                "hidden": shape.config.model.hidden_size,
                "ffn": shape.config.model.intermediate_size,
                "heads": shape.config.model.num_heads,
                "kv_heads": shape.config.model.num_kv_heads,
                "head_dim": shape.config.model.head_dim,
                **shape.counts,
                "deviation": shape.deviation,
                "ffn_ratio": shape.ffn_ratio,
                "ffn_ratio_deviation": shape.ffn_ratio_deviation,
                "ffn_multiple": shape.ffn_multiple,
            }
            for shape in proposal.shapes
        ],
    }


def text(proposal: Proposal, file: str, as_it_stands: RunConfig) -> str:
    """The shapes, a line each, and the command that trains the one whose F / D is nearest to the usual one.

    Args:
      proposal: what `propose` returned.
      file: the config file, as after `--config`, that the base was made from.
      as_it_stands: the configuration of that file without overrides.
    """
    base = proposal.shapes[0].config
    flop = f"FLOPs per token ({step_flops(base)[1]}, {base.train.seq_len} positions)"
    what = flop if proposal.match == "flops" else f"parameters ({proposal.match})"
    lines = [
        f"{base.model.family}: {proposal.budget:,.0f} {what}, heads of {base.model.head_dim}, "
        f"vocabulary {base.model.vocab_size:,}",
        "",
        f"{'layers x width':>15}{'heads':>8}{'feed-forward':>14}{'of':>5}{'F / D':>8}{'to usual':>10}"
        f"{'total':>14}{'non-embedding':>15}{'MFLOP a token':>15}{'to budget':>11}",
    ]
    for shape in proposal.shapes:
        model = shape.config.model
        size, heads = f"{model.num_layers} x {model.hidden_size}", f"{model.num_heads}/{model.num_kv_heads}"
        mega = step_flops(shape.config)[0] / 1e6
        lines.append(
            f"{size:>15}{heads:>8}{model.intermediate_size:>14,}{shape.ffn_multiple:>5}{shape.ffn_ratio:>8.3f}"
            f"{shape.ffn_ratio_deviation:>+10.1%}{shape.counts['total']:>14,}{shape.counts['non_embedding']:>15,}"
            f"{mega:>15,.2f}{shape.deviation:>+11.2%}"
        )
    usual = min(proposal.shapes, key=lambda shape: abs(shape.ffn_ratio_deviation)).config
    workdir = f"--workdir=runs/{usual.model.family}_{usual.model.num_layers}"
    words = ["python", "-m", "jaxlm.train", f"--config={file}", *_overrides(as_it_stands, usual), workdir]
    return "\n".join([*lines, "", shlex.join(words)])


def _overrides(before: RunConfig, after: RunConfig) -> list[str]:
    """The flags that make one configuration of the other."""
    words = []
    for name, _, _ in fields.leaves(RunConfig):
        old, new = (operator.attrgetter(name)(config) for config in (before, after))
        if old != new:
            value = ",".join(map(str, new)) if isinstance(new, tuple) else new
            words.append(f"--config.{name}={value}")
    return words
