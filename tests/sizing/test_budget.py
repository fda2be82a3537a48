"""Proposals meet the budget, are counted on the real model, keep what they promise to keep, and train."""

from __future__ import annotations

import json
import math
import shlex
from functools import cache
from typing import Any

import jax
import numpy as np
import optax
import pytest

from jaxlm import command_line, size
from jaxlm.config import RunConfig, replace
from jaxlm.errors import UserError
from jaxlm.families import build_model
from jaxlm.families.registry import FAMILIES
from jaxlm.objectives import build_objective
from jaxlm.sizing import budget
from jaxlm.training import flops
from jaxlm.training.sharding import make_mesh
from jaxlm.training.state import abstract_state, around
from jaxlm.training.step import train_step
from tests.quick_jit import quick_jit

TRAINED = ("gpt2", "llama3", "qwen3")


def base(family: str, *overrides: tuple[str, str]) -> RunConfig:
    return command_line.load_config(f"configs/{family}.py", [(*pair, False) for pair in overrides], RunConfig)


@cache
def seven(family: str) -> budget.Proposal:
    return budget.propose(base(family), 70_000_000, budget.DEPTHS)


def printed(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    size.main(list(argv))
    return capsys.readouterr().out


@pytest.mark.parametrize("family", TRAINED)
def test_seven_depths_cost_70_million_within_half_a_percent(family: str) -> None:
    assert [shape.config.model.num_layers for shape in seven(family).shapes] == [4, 12, 16, 24, 32, 48, 64]
    usual = base(family).model
    for shape in seven(family).shapes:
        model = shape.config.model
        total = flops.parameter_counts(build_model(model))["total"]
        assert abs(total / 70e6 - 1) <= 0.005
        assert shape.counts["total"] == total
        assert shape.deviation == pytest.approx(total / 70e6 - 1)
        assert model.head_dim == usual.head_dim
        assert model.hidden_size == model.num_heads * model.head_dim
        assert model.num_heads // model.num_kv_heads == usual.num_heads // usual.num_kv_heads
        assert model.intermediate_size % shape.ffn_multiple == 0
        assert shape.ffn_ratio == model.intermediate_size / model.hidden_size
        usual_ratio = usual.intermediate_size / usual.hidden_size
        assert shape.ffn_ratio_deviation == pytest.approx(shape.ffn_ratio / usual_ratio - 1)
    assert {shape.ffn_multiple for shape in seven(family).shapes} > {64}, "64 alone would do: what are the others for?"


@pytest.mark.parametrize("depth", [budget.DEPTHS[0], budget.DEPTHS[-1]])  # all seven were tried; they take a minute
@pytest.mark.parametrize("family", TRAINED)
def test_each_of_them_trains(family: str, depth: int) -> None:
    """One update of one row. Scanned, so that 64 layers compile as fast as 4, and by plain descent: the compiler would
    spend most of a minute on AdamW's arithmetic for the 768 arrays of 64 layers, in which a shape plays no part.
    """
    shape = next(shape for shape in seven(family).shapes if shape.config.model.num_layers == depth)
    config = replace(
        shape.config,
        train={"total_tokens": 16, "batch_tokens": 16, "seq_len": 16, "micro_batch": 0},
        execution={"dtype": "float32", "layers": "scan", "loss_chunk": 0, "data_parallel": 1},
    )
    model, optimizer, mesh = build_model(config.model, config.execution), optax.sgd(1e-3), make_mesh(config.execution)
    objective = build_objective(config.objective, model, mask_token_id=None)
    step = train_step(config, objective, optimizer, mesh, abstract_state(model, optimizer, mesh))
    params = model.init(jax.random.key(0))
    before = jax.tree.map(np.asarray, params["layers"])
    tokens = np.random.default_rng(0).integers(0, 50_000, (1, 17), np.int32)
    rows = {"tokens": tokens, "segment_ids": np.zeros_like(tokens), "loss_mask": np.ones_like(tokens, bool)}
    state, metrics = quick_jit(step, donate_argnums=0)(around(params, optimizer), rows)
    assert abs(float(metrics["loss"]) - math.log(config.model.vocab_size)) < 1
    moved = jax.tree.map(lambda old, new: float(np.abs(new - old).max()), before, state["params"]["layers"])
    assert min(jax.tree.leaves(moved)) > 0


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - set(TRAINED)))
def test_every_family_has_proposals(family: str) -> None:
    for shape in budget.propose(base(family), 70_000_000, (8, 24)).shapes:
        assert abs(flops.parameter_counts(build_model(shape.config.model))["total"] / 70e6 - 1) <= 0.005


@pytest.mark.parametrize("match", ["non_embedding", "flops"])
@pytest.mark.parametrize("family", ["gpt2", "gemma3", "moe", "dllm"])
def test_other_quantities_can_be_matched(family: str, match: str) -> None:
    """FLOPs as the objective spends them: causal attention is half of that which sees everything."""
    target = {"non_embedding": 50e6, "flops": 450e6}[match]
    for shape in budget.propose(base(family), target, (8, 16), match).shapes:
        if match == "flops":
            spent = "with_attention" if family == "dllm" else "with_causal_attention"
            cost = flops.flops_per_token(shape.config.model, 1_024)[spent]
        else:
            cost = flops.parameter_counts(build_model(shape.config.model))["non_embedding"]
        assert abs(cost / target - 1) <= 0.005
        assert shape.deviation == pytest.approx(cost / target - 1)


def test_the_shape_that_the_budget_was_taken_from_comes_back() -> None:
    """And 64 is tried before 32, 16 and 8."""
    [shape] = budget.propose(base("llama3"), 71_246_208, [32]).shapes
    assert shape.config == base("llama3")
    assert (shape.ffn_multiple, shape.deviation, shape.ffn_ratio_deviation) == (64, 0, 0)


def test_of_all_widths_the_one_whose_ratio_is_nearest_is_taken() -> None:
    """By trying every shape of the grid."""
    usual, target = base("gpt2").model, 3_000_000
    config = base("gpt2", ("model.vocab_size", "1024"), ("model.head_dim", "16"))
    [shape] = budget.propose(config, target, [6]).shapes

    def total(width: int, ffn: int) -> int:  # the count of GPT-2, written out
        layer = 4 * width**2 + 2 * width * ffn + 9 * width + ffn
        return (1_024 + 1_024) * width + 6 * layer + 2 * width

    near: dict[int, int] = {}
    for width in range(16, 400, 16):
        for multiple in (64, 32, 16, 8):
            fit = [f for f in range(multiple, 8_000, multiple) if abs(total(width, f) / target - 1) <= 0.005]
            if fit:
                near[width] = min(fit, key=lambda f: abs(total(width, f) - target))
                break
    best = min(near, key=lambda width: abs(near[width] / width - usual.intermediate_size / usual.hidden_size))
    assert len(near) > 3
    assert (shape.config.model.hidden_size, shape.config.model.intermediate_size) == (best, near[best])


def test_json_has_the_keys_that_others_read(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(printed(capsys, "--budget=70M", "--family=qwen3", "--depths=12,32", "--json"))
    assert (found["family"], found["budget"], found["match"]) == ("qwen3", 70_000_000, "total")
    shape = found["shapes"][1]
    assert (shape["layers"], shape["hidden"], shape["ffn"]) == (32, 384, 992)
    assert (shape["heads"], shape["kv_heads"], shape["head_dim"]) == (8, 4, 48)
    assert shape["total"] == 70_069_632
    assert shape["deviation"] == pytest.approx(70_069_632 / 70e6 - 1)
    assert shape["ffn_ratio_deviation"] == pytest.approx(992 / 1024 - 1)
    assert set(shape["flops_per_token"]) == {"six_n", "with_attention", "with_causal_attention"}


def test_the_last_line_of_the_table_is_a_command_that_trains_the_most_usual_shape(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With what was overridden, and nothing that the file says already."""
    text = printed(capsys, "--budget=70M", "--family=llama3", "--depths=4,12", "--config.model.head_dim=64")
    words = shlex.split(text.splitlines()[-1])
    assert words[:4] == ["python", "-m", "jaxlm.train", "--config=configs/llama3.py"]
    assert words[-1] == "--workdir=runs/llama3_4"
    overrides = [(*word.removeprefix("--config.").split("=", 1), False) for word in words[4:-1]]
    config: Any = command_line.load_config("configs/llama3.py", overrides, RunConfig)  # type: ignore[arg-type]
    proposal = budget.propose(base("llama3", ("model.head_dim", "64")), 70e6, (4, 12))
    assert config == min(proposal.shapes, key=lambda shape: abs(shape.ffn_ratio_deviation)).config
    assert "--config.model.vocab_size" not in text
    for shape in proposal.shapes:
        assert f"{shape.counts['total']:,}" in text
        assert f"{shape.ffn_ratio_deviation:+.1%}" in text


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--budget=1M", "--family=gpt2", "--depths=4"], "--budget is 1,000,000.*allowed: near 3,354,080"),
        (["--budget=70M"], "--config and --family are both missing or both given"),
        (["--budget=70M", "--family=gpt2", "--config=configs/gpt2.py"], "--config and --family are both"),
        (["--budget=70M", "--family=gtp2"], "did you mean 'configs/gpt2.py'"),
        (["--budget=seventy", "--family=gpt2"], "--budget is 'seventy', allowed: a number above 0"),
        (["--budget=70M", "--family=gpt2", "--depths=4,0"], "--depths is '0', allowed: a number above 0"),
        (["--budget=70M", "--family=gpt2", "--match=size"], "invalid choice: 'size'"),
        (["--budget=70M", "--family=gpt2", "--plot=x.png"], "--plot is not used with --budget"),
        (["--config=configs/gpt2.py", "--depths=4"], "--depths is not used with --config, allowed with it: --plot"),
        ([], "--config is missing"),
    ],
)
def test_mistakes_are_told_in_one_line(argv: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        size.main(argv)


def test_mobilellms_pairs_cost_what_125m_costs(capsys: pytest.CaptureFixture[str]) -> None:
    names = ",".join(f"configs/mobilellm.py:{name}" for name in ("125m", "125m_12l", "125m_42l"))
    totals = [found["total"] for found in json.loads(printed(capsys, f"--compare={names}", "--json"))]
    assert totals == [124_635_456, 124_865_280, 124_463_616]
    assert max(abs(total / totals[0] - 1) for total in totals) <= 0.005


def test_a_budget_of_flops_is_that_of_the_step() -> None:
    """Block diffusion reads each window twice, so that the same budget buys less."""
    blocks = base("dllm", ("objective.block_size", "32"))
    (shape,) = budget.propose(blocks, 700e6, [8], "flops").shapes
    assert budget.step_flops(shape.config)[0] == pytest.approx(700e6, rel=0.005)
    assert shape.counts["flops_per_token"]["with_attention"] < 550e6


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--budget=1e12", "--family=llama3"], "--budget is 1,000,000,000,000, allowed: at most 100,000,000,000"),
        (["--budget=70M", "--family=llama3", "--depths=8,513"], "--depths has 513, allowed: at most 512 layers"),
        (["--budget=70M", "--family=llama3", "--depths="], "--depths is '', allowed: a number above 0, as 12"),
        (["--budget=70M", "--family=llama3", "--config.model.num_layers=4"], "num_layers is not used with --budget"),
        (["--budget=70M", "--family=dllm", "--config.objective.kind=causal"], "objective.kind is 'causal', allowed"),
    ],
)
def test_what_cannot_be_searched_is_refused(argv: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        size.main(argv)
