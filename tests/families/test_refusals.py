"""What makes no sense is refused in one line, with the field, the value and what is allowed."""

import jax
import numpy as np
import pytest

from jaxlm.config import ModelConfig
from jaxlm.errors import UserError
from jaxlm.families import build_model, resolve
from jaxlm.layers.structure import Structure

REFUSED: list[tuple[dict, str]] = [
    ({"family": "lama3"}, r"model.family is 'lama3', allowed: one of gpt2, .*minimind; did you mean 'llama3'"),
    ({"num_heads": 8, "num_kv_heads": 3}, r"model.num_kv_heads is 3, allowed: a divisor of model.num_heads = 8"),
    ({"head_dim": 7}, r"model.head_dim is 7, allowed: an even number"),
    ({"canon_set": "CA"}, r"model.canon_set is 'CA', allowed: any of ABCD, each once, in order"),
    ({"canon_set": "AA"}, r"model.canon_set is 'AA', allowed"),
    ({"canon_set": "E"}, r"model.canon_set is 'E', allowed"),
    ({"mask_token_id": 50304}, r"model.mask_token_id is 50304, allowed: below model.vocab_size = 50304"),
    # Layers.
    ({"layer_pattern": ""}, r"model.layer_pattern is '', allowed: a string of G, L, C, S and M"),
    ({"layer_pattern": "GX"}, r"model.layer_pattern is 'GX', allowed"),
    ({"layer_pattern": "GL"}, r"model.sliding_window is 0, allowed: at least 1 with L layers"),
    ({"sliding_window": 8}, r"model.sliding_window is 8, allowed: .*0 without \(it is 'G'\)"),
    ({"layer_pattern": "G", "sliding_window": 8}, r"model.sliding_window is 8, allowed"),
    ({"layer_pattern": "GC"}, r"model.layer_pattern is 'GC', allowed: no C for model.family 'llama3', .* G and L"),
    ({"family": "gemma3", "layer_pattern": "C"}, r"model.layer_pattern is 'C', allowed: no C for .*'gemma3'"),
    ({"family": "lfm2", "use_bias": True}, r"model.use_bias is True, allowed: False with C layers"),
    ({"rope_theta": 0.5}, r"model.rope_theta is 0.5, allowed: at least 1"),
    ({"family": "gemma3", "rope_theta_local": 0.5}, r"model.rope_theta_local is 0.5, allowed: at least 1"),
    ({"rope_theta_local": 1e4}, r"model.rope_theta_local is 10000.0, allowed: 0 without L layers"),
    # Canon.
    ({"family": "gemma3", "canon_set": "AC"}, r"model.canon_set is 'AC', allowed: '' for model.family 'gemma3'"),
    ({"family": "lfm2", "canon_set": "B"}, r"model.canon_set is 'B', allowed: '' for model.family 'lfm2'"),
    (
        {"family": "gpt2", "canon_set": "D", "canon_d_width": "product"},
        r"model.canon_d_width is 'product' with model.feed_forward 'gelu', allowed: 'gate_up'",
    ),
    # Experts.
    ({"family": "moe", "canon_set": "CD"}, r"model.canon_set is 'CD' with model.num_experts 4, allowed: no D"),
    ({"family": "moe", "num_experts": 2, "experts_per_token": 3}, r"model.experts_per_token is 3, allowed: at most"),
    ({"family": "moe", "feed_forward": "gelu"}, r"model.num_experts is 4 .*allowed: gated experts without biases"),
    ({"family": "moe", "use_bias": True}, r"model.num_experts is 4 .*allowed: gated experts without biases"),
    ({"family": "gpt2", "num_experts": 4, "experts_per_token": 2}, r"gated experts without biases"),
    ({"family": "llama3", "num_experts": 4}, r"model.experts_per_token is 0, allowed: 1 to model.num_experts = 4"),
    ({"family": "llama3", "experts_per_token": 2}, r"model.experts_per_token is 2, allowed: 0 without"),
    ({"family": "minimind", "experts_per_token": 2}, r"model.experts_per_token is 2, allowed: 0 without"),
    ({"family": "llama3", "num_shared_experts": 1}, r"model.num_shared_experts is 1, allowed: 0 without"),
    ({"family": "moe", "experts_per_token": 1}, r"model.normalize_experts True, allowed: .*False for one a token"),
    (
        {"family": "moe", "num_experts": 1, "experts_per_token": 1},
        r"model.num_experts is 1 with .*at least two",
    ),
]


@pytest.mark.parametrize(("values", "message"), REFUSED, ids=[str(values) for values, _ in REFUSED])
def test_refused(values, message) -> None:
    with pytest.raises(UserError, match=message) as refusal:
        build_model(ModelConfig(**values))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "values",
    [
        {"family": "llama3", "canon_set": "AC"},  # llama3_canon by another name
        {"family": "llama3_canon", "canon_set": ""},
        {"family": "gpt2", "canon_set": "ABCD"},
        {"family": "gemma3", "layer_pattern": "G"},  # the family's window goes with its L layers
        {"family": "gemma3", "sliding_window": 64},
        {"family": "gpt2", "head_dim": 7},  # nothing is rotated
        {"family": "gemma3", "num_experts": 4, "experts_per_token": 2},
        {"family": "lfm2", "layer_pattern": "CL", "sliding_window": 8},
        {"family": "lfm2", "num_experts": 4, "experts_per_token": 2},
        {"family": "llama3", "layer_pattern": "LG", "sliding_window": 8, "num_experts": 4, "experts_per_token": 2},
        {"family": "moe", "experts_per_token": 1, "normalize_experts": False},
        {"family": "minimind", "num_experts": 8},
        {"family": "dllm", "layer_repeats": 3},
    ],
    ids=str,
)
def test_taken(values) -> None:
    """And what is filled in stays filled in."""
    resolved = resolve(ModelConfig(**values, num_layers=2))
    assert resolve(resolved) == resolved == build_model(resolved).config
    for name, value in values.items():
        assert getattr(resolved, name) == value


def test_what_is_left_open_is_the_family_s() -> None:
    gemma3 = resolve(ModelConfig(family="gemma3"))
    assert (gemma3.layer_kinds[:6], gemma3.sliding_window) == ("LLLLLG", 256)
    assert (gemma3.rope_theta, gemma3.rope_theta_local) == (1e6, 1e4)
    minimind = resolve(ModelConfig(family="minimind", num_experts=4))
    assert (minimind.experts_per_token, minimind.rope_theta, minimind.norm_eps) == (2, 1e6, 1e-5)
    llama3 = resolve(ModelConfig(family="llama3", rope_theta=5e5))
    assert (llama3.rope_theta, llama3.use_bias, llama3.canon_set) == (5e5, False, "")
    # False is an answer, too.
    assert resolve(ModelConfig(family="gpt2", use_bias=False)).use_bias is False
    assert resolve(ModelConfig(family="llama3_canon", canon_set="")).canon_set == ""


def test_rows_longer_than_the_learned_positions_are_refused(tiny, random_params) -> None:
    """Not quietly read with the last position's vector; documents in them may be short enough."""
    model = tiny(family="gpt2", num_kv_heads=4, max_positions=6)
    params, tokens_BT = random_params(model), np.zeros((1, 8), np.int32)

    def shape(segments_BT: np.ndarray | None, streams: int = 1) -> tuple[int, ...]:
        structure = Structure(2, streams=streams)
        return jax.eval_shape(lambda params: model.hidden(params, tokens_BT, structure, segments_BT), params).shape

    with pytest.raises(UserError, match=r"a row has 8 positions, allowed: at most model.max_positions = 6"):
        shape(None)
    assert shape(None, streams=2) == shape(np.array([[1] * 4 + [2] * 4])) == (1, 8, 24)
