"""The tables are bijections, with the names that others use."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable

import jax
import numpy as np
import pytest

from jaxlm.config import ModelConfig, ObjectiveConfig
from jaxlm.errors import UserError
from jaxlm.families import Model, build_model
from jaxlm.layers.parameters import from_paths, paths
from jaxlm.release import tables
from jaxlm.release.formats import Format
from jaxlm.release.mapping import from_hugging_face, to_hugging_face
from tests.release.models import NATIVE, TINY

REMOTE = tables.get("remote")
SETS = ["".join(s) for n in range(5) for s in itertools.combinations("ABCD", n)]


@pytest.mark.parametrize("canon_set", SETS)
@pytest.mark.parametrize("options", [{}, {"canon_bias": True, "canon_d_width": "product", "tie_embeddings": False}])
def test_what_is_written_comes_back_bitwise(canon_set: str, options: dict) -> None:
    assert_bijection(build_model(ModelConfig(**{**TINY, **options, "canon_set": canon_set})), REMOTE)


@pytest.mark.parametrize("name", NATIVE)
@pytest.mark.parametrize("tied", [True, False])
def test_what_is_written_for_transformers_own_classes_comes_back_bitwise(name: str, tied: bool) -> None:
    model = build_model(ModelConfig(**{**TINY, **NATIVE[name], "tie_embeddings": tied}))
    assert_bijection(model, tables.choose(model.config, ObjectiveConfig(), "native"))


def assert_bijection(model: Model, found: Format) -> None:
    params, table = model.init(jax.random.key(1)), found.table(model.config)
    tensors = to_hugging_face(table, params)
    assert sum(t.size for t in tensors.values()) == sum(leaf.size for _, leaf in paths(params))
    assert all(t.flags.c_contiguous for t in tensors.values())
    back = dict(paths(from_hugging_face(table, tensors, model.abstract_params())))
    for path, leaf in paths(params):
        np.testing.assert_array_equal(back.pop(path), np.asarray(leaf), err_msg=path)
    assert not back


def test_experts_are_apart_on_disk() -> None:
    config = build_model(ModelConfig(**{**TINY, **NATIVE["MixtralForCausalLM"], "num_layers": 1})).config
    names = to_hugging_face(tables.get("mixtral").table(config), _zeros(config))
    experts = {name: t.shape for name, t in names.items() if "block_sparse_moe" in name}
    layer = "model.layers.0.block_sparse_moe"
    assert experts == {f"{layer}.gate.weight": (4, 32)} | {
        f"{layer}.experts.{e}.{name}.weight": shape
        for e in range(4)
        for name, shape in (("w1", (20, 32)), ("w2", (32, 20)), ("w3", (20, 32)))
    }


def test_the_names_are_those_of_dhara() -> None:
    config = ModelConfig(**{**TINY, "canon_set": "ABCD", "canon_d_width": "product", "num_layers": 1})
    shapes = {n: t.shape for n, t in to_hugging_face(REMOTE.table(config), _zeros(config)).items()}
    layer = "model.layers.0"
    assert shapes == {
        "model.embed_tokens.weight": (384, 32),
        f"{layer}.input_layernorm.weight": (32,),
        f"{layer}.canon_a.conv.weight": (32, 1, 4),
        f"{layer}.self_attn.q_proj.weight": (40, 32),
        f"{layer}.self_attn.k_proj.weight": (20, 32),
        f"{layer}.self_attn.v_proj.weight": (20, 32),
        f"{layer}.self_attn.canon_b_q.conv.weight": (40, 1, 4),
        f"{layer}.self_attn.canon_b_k.conv.weight": (20, 1, 4),
        f"{layer}.self_attn.canon_b_v.conv.weight": (20, 1, 4),
        f"{layer}.self_attn.o_proj.weight": (32, 40),
        f"{layer}.post_attention_layernorm.weight": (32,),
        f"{layer}.canon_c.conv.weight": (32, 1, 4),
        f"{layer}.mlp.gate_proj.weight": (48, 32),
        f"{layer}.mlp.up_proj.weight": (48, 32),
        f"{layer}.mlp.canon_d.conv.weight": (48, 1, 4),
        f"{layer}.mlp.down_proj.weight": (32, 48),
        "model.norm.weight": (32,),
    }


def test_canon_d_on_gate_and_up_is_two_convolutions() -> None:
    config = ModelConfig(**{**TINY, "canon_set": "D", "num_layers": 1})
    names = [n for n in to_hugging_face(REMOTE.table(config), _zeros(config)) if "canon" in n]
    assert names == [f"model.layers.0.mlp.canon_d_{part}.conv.weight" for part in ("gate", "up")]


def test_more_than_a_hundred_layers_keep_their_order() -> None:
    config = ModelConfig(**{**TINY, "num_layers": 101})
    params = _zeros(config)
    for number, key in enumerate(sorted(params["layers"])):
        params["layers"][key]["attention_norm"]["scale"][:] = number
    tensors = to_hugging_face(REMOTE.table(config), params)
    for number in (0, 9, 10, 99, 100):
        assert tensors[f"model.layers.{number}.input_layernorm.weight"][0] == number


def test_the_studys_dhara_has_its_published_size() -> None:
    config = ModelConfig(family="llama3_canon", canon_set="AC")
    leaves = dict(paths(build_model(config).abstract_params()))
    matched = {re.sub(r"/\d+/", "/*/", path) for path in leaves}
    assert matched == {entry.path for entry in REMOTE.table(config)}
    assert sum(math.prod(leaf.shape) for leaf in leaves.values()) == 71_344_512


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda t: t.pop("model.norm.weight"), "model.norm.weight is missing"),
        (lambda t: t.update(extra=np.zeros(1)), "extra .* is no part of this model"),
        (
            lambda t: t.update({"model.norm.weight": np.zeros(33)}),
            r"model.norm.weight has shape \(33,\), allowed: \(32,\)",
        ),
        (
            lambda t: t.update({"model.layers.0.self_attn.q_proj.weight": np.zeros((32, 40))}),
            r"q_proj.weight has shape \(32, 40\), allowed: \(40, 32\)",
        ),
    ],
)
def test_other_tensors_are_refused(spoil: Callable, message: str) -> None:
    config = ModelConfig(**TINY)
    tensors = to_hugging_face(REMOTE.table(config), _zeros(config))
    spoil(tensors)
    with pytest.raises(UserError, match=message):
        from_hugging_face(REMOTE.table(config), tensors, build_model(config).abstract_params())


def _zeros(config: ModelConfig) -> dict:
    leaves = paths(build_model(config).abstract_params())
    return from_paths({path: np.zeros(leaf.shape, np.float32) for path, leaf in leaves})
