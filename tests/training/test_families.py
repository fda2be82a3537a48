"""Every family trains, stops and goes on bitwise, writes with a cache, and converts to diffusion, or says why not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jaxlm
from jaxlm.config import RunConfig
from jaxlm.errors import UserError
from jaxlm.families.registry import FAMILIES, family
from jaxlm.layers.parameters import paths
from jaxlm.training import loop, workdir
from jaxlm.training.metrics import read_lines

SHAPES: dict[str, dict[str, Any]] = {
    "gpt2": {"num_kv_heads": 2},
    "gemma3": {"layer_pattern": "LG", "sliding_window": 5},
    "lfm2": {"layer_pattern": "CG"},
    "mobilellm": {"layer_repeats": 2},
    "titans_mac": {"layer_pattern": "SM", "segment_len": 6, "num_longterm_tokens": 2, "memory_batch": 8},
    "minimind": {"num_experts": 3, "num_shared_experts": 1},
}
STEPS = 6


def config_of(name: str, tiny: Callable[..., RunConfig], **sections: Any) -> RunConfig:
    model = {"family": name, "canon_set": "family"} | SHAPES.get(name, {})
    kind = "diffusion" if family(name).diffusion else "causal"
    train = {"total_tokens": STEPS * 128, "save_every": 3} | sections.pop("train", {})
    return tiny(**({"model": model, "objective": {"kind": kind}, "train": train} | sections))


def parameters(run: Path) -> dict[str, np.ndarray]:
    return dict(paths(jaxlm.load(run).params))


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_does_all_that_the_others_do(name: str, tiny: Callable[..., RunConfig], tmp_path: Path) -> None:
    loop.train(config_of(name, tiny), tmp_path / "straight", kind="train")
    loop.train(config_of(name, tiny, train={"stop_at": 3}), tmp_path / "run", kind="train")
    loop.train(config_of(name, tiny), tmp_path / "run", kind="train")
    losses = [line["loss"] for line in read_lines(tmp_path / "straight")]
    assert losses == [line["loss"] for line in read_lines(tmp_path / "run")]
    assert losses[-1] < losses[0]
    expected = parameters(tmp_path / "straight")
    for path, leaf in parameters(tmp_path / "run").items():
        np.testing.assert_array_equal(leaf, expected[path], err_msg=path)

    written = jaxlm.load(tmp_path / "run").generate(["a model", "numbers"], max_new_tokens=6, ignore_eos=True)
    assert [len(one.token_ids) for one in written] == [6, 6]

    diffusion = config_of(name, tiny, objective={"kind": "diffusion"}, train={"total_tokens": 3 * 128})
    if reason := family(name).causal_only:
        refusal = f"objective.kind is 'diffusion', allowed: 'causal' for model.family '{name}': {reason}"
        with pytest.raises(UserError, match=refusal):
            loop.train(diffusion, tmp_path / "converted", kind="convert", init_from=str(tmp_path / "run"))
        assert not (tmp_path / "converted").exists()
        return
    loop.train(diffusion, tmp_path / "converted", kind="convert", init_from=str(tmp_path / "run"))
    assert workdir.is_complete(tmp_path / "converted")
    assert [line["block_size"] for line in read_lines(tmp_path / "converted")] == [4, 0, 0]


def test_the_experts_losses_are_in_the_metrics(tiny: Callable[..., RunConfig], tmp_path: Path) -> None:
    loop.train(config_of("moe", tiny, train={"stop_at": 1}), tmp_path / "run", kind="train")
    (line,) = read_lines(tmp_path / "run")
    # 2 of 4 experts, about evenly chosen at the start: 0.01 times about 2; the scores are near even, so z is near ln 4.
    assert line["router_balance"] == pytest.approx(0.02, rel=0.05)
    assert line["router_z"] == pytest.approx(0.001 * np.log(4) ** 2, rel=0.05)


@pytest.mark.parametrize("name", ["dllm", "dllm_canon", "dhara"])
def test_a_diffusion_family_refuses_the_causal_objective(
    name: str, tiny: Callable[..., RunConfig], tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=f"objective.kind is 'causal', allowed: 'diffusion' for model.family '{name}'"):
        loop.train(config_of(name, tiny, objective={"kind": "causal"}), tmp_path / "run", kind="train")


def test_llama3_canon_becomes_dhara(tiny: Callable[..., RunConfig], tmp_path: Path) -> None:
    loop.train(config_of("llama3_canon", tiny, train={"total_tokens": 128}), tmp_path / "ar", kind="train")
    config = config_of("dhara", tiny, train={"total_tokens": 128})
    loop.train(config, tmp_path / "dhara", kind="convert", init_from=str(tmp_path / "ar"))
    assert workdir.read(tmp_path / "dhara")[0].model.family == "dhara"


def test_without_positions_and_without_direction_order_is_lost(tiny: Callable[..., RunConfig], tmp_path: Path) -> None:
    model = {"family": "llama3", "canon_set": "", "positions": "none"}
    with pytest.raises(UserError, match="model.positions is 'none' with objective.kind 'diffusion'"):
        loop.train(tiny(model=model, objective={"kind": "diffusion"}), tmp_path / "run", kind="train")
    loop.train(tiny(model=model, train={"stop_at": 1}), tmp_path / "run", kind="train")
