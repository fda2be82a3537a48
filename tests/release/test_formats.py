"""Which class a model is exported as, and which config.json is read as which model."""

from __future__ import annotations

from typing import Any

import pytest

from jaxlm import fields
from jaxlm.config import ModelConfig, ObjectiveConfig
from jaxlm.errors import UserError
from jaxlm.families import resolve
from jaxlm.release import tables
from jaxlm.release.formats import pattern_of
from tests.release.models import MODELS, NATIVE, PLAIN, TINY

CAUSAL, DIFFUSION = ObjectiveConfig(), ObjectiveConfig(kind="diffusion")
# Every part of LLaMA's set by hand.
LLAMA_PARTS = {
    "norm": "rms",
    "norm_eps": 1e-6,
    "positions": "rope",
    "rope_theta": 1e4,
    "feed_forward": "swiglu",
    "use_bias": False,
    "num_kv_heads": 2,
}


def model(**changes: Any) -> ModelConfig:
    return resolve(ModelConfig(**TINY | PLAIN | changes))


@pytest.mark.parametrize(
    ("changes", "objective", "name"),
    [
        ({"family": "llama3"}, CAUSAL, "LlamaForCausalLM"),
        ({"family": "llama3_canon"}, CAUSAL, "LlamaForCausalLM"),  # the empty set
        ({"family": "mobilellm"}, CAUSAL, "LlamaForCausalLM"),
        ({"family": "gpt2"} | LLAMA_PARTS, CAUSAL, "LlamaForCausalLM"),
        ({"family": "llama3", "qk_norm": True}, CAUSAL, "Qwen3ForCausalLM"),
        ({"family": "moe"}, CAUSAL, "MixtralForCausalLM"),
        ({"family": "minimind", "num_experts": 4}, CAUSAL, "MixtralForCausalLM"),
        ({"family": "moe", "qk_norm": True}, CAUSAL, "Qwen3MoeForCausalLM"),
        ({"family": "llama3"}, DIFFUSION, "JaxlmForCausalLM"),
        ({"family": "qwen3"}, DIFFUSION, "JaxlmForCausalLM"),
        ({"family": "llama3_canon", "canon_set": "A"}, CAUSAL, "JaxlmForCausalLM"),
        ({"family": "mobilellm", "layer_repeats": 2}, CAUSAL, "JaxlmForCausalLM"),
        ({"family": "llama3", "layer_pattern": "GL", "sliding_window": 4}, CAUSAL, "JaxlmForCausalLM"),
    ],
)
def test_the_parts_decide_and_not_the_name(changes: dict, objective: ObjectiveConfig, name: str) -> None:
    assert tables.choose(model(**changes), objective).name == name


@pytest.mark.parametrize(
    ("changes", "objective", "kind", "message"),
    [
        (
            {"family": "llama3", "norm": "layer"},
            CAUSAL,
            "native",
            "LlamaForCausalLM: model.norm is 'layer' .it has 'rms'",
        ),
        ({"family": "llama3", "norm": "layer"}, CAUSAL, "auto", "JaxlmForCausalLM: model.norm is 'layer'"),
        ({"family": "gpt2", "num_kv_heads": 4}, CAUSAL, "native", "GPT2LMHeadModel: .*head_dim is 10 .it has 8"),
        ({"family": "gpt2"}, DIFFUSION, "auto", "JaxlmForCausalLM: .*model.positions is 'learned'"),
        ({"family": "gemma3"}, DIFFUSION, "auto", "Gemma3ForCausalLM: objective.kind is 'diffusion'"),
        ({"family": "gemma3"}, CAUSAL, "jaxlm", "model.family is 'gemma3' .it has no norms behind the branches"),
        ({"family": "lfm2"}, DIFFUSION, "jaxlm", "model.layer_pattern is 'CCGCCGCCGCGCGCGC'"),
        ({"family": "titans_mac"}, CAUSAL, "jaxlm", "model.layer_pattern is 'SMSMSMSS'"),
        ({"family": "lfm2", "layer_pattern": "C"}, CAUSAL, "auto", "Lfm2ForCausalLM: model.layer_pattern is 'C'"),
        (
            {"family": "moe", "num_shared_experts": 1},
            CAUSAL,
            "native",
            "MixtralForCausalLM: model.num_shared_experts is 1",
        ),
        ({"family": "moe", "normalize_experts": False}, CAUSAL, "auto", "model.normalize_experts is False"),
        ({"family": "mobilellm", "layer_repeats": 2}, CAUSAL, "native", "model.layer_repeats is 2 .it has 1"),
        ({"family": "llama3", "num_heads": 6}, CAUSAL, "native", "model.num_heads is 6 .it has a divisor of .* = 32"),
        ({"family": "llama3", "query_scalar": 5.0}, CAUSAL, "native", "model.query_scalar is 5.0"),
        ({"family": "llama3_canon", "canon_set": "A"}, CAUSAL, "native", "model.canon_set is 'A' .it has ''"),
    ],
)
def test_what_no_class_is_exactly_is_refused(
    changes: dict, objective: ObjectiveConfig, kind: str, message: str
) -> None:
    with pytest.raises(UserError, match=message) as error:
        tables.choose(model(**changes), objective, kind)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", NATIVE)
def test_a_written_config_is_read_as_the_same_model(name: str) -> None:
    config = model(**NATIVE[name])
    found = tables.choose(config, CAUSAL, "native")
    values = {"model_type": found.model_type, "architectures": [found.name], **found.to_config(config)}
    again, objective = tables.of_config_json(values).from_config(values)
    assert objective == CAUSAL
    known = {"model.family", "model.layer_pattern", "model.mask_token_id"}
    assert {text.split()[0] for text in fields.differences(again, config, "model.")} <= known
    assert again.layer_kinds == config.layer_kinds
    assert tables.of_config_json(values | {"architectures": None}) is found


@pytest.mark.parametrize("name", MODELS)
def test_our_own_config_is_read_as_the_same_model_and_objective(name: str) -> None:
    changes, reading = MODELS[name]
    config = resolve(ModelConfig(**TINY | {"mask_token_id": 300} | changes))
    objective = ObjectiveConfig(**reading | ({"eps": 0.01} if reading else {}))
    found = tables.get("remote")
    values = found.to_config(config) | tables.remote.reading(objective)
    assert tables.of_config_json(values).from_config(values) == (config, objective)


LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 300,
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}
GPT2 = {
    "architectures": ["GPT2LMHeadModel"],
    "vocab_size": 300,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 9,
}


def of(name: str, **changes: Any) -> dict[str, Any]:
    return LLAMA | {"architectures": [name]} | changes


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            of("MambaForCausalLM"),
            "architectures of config.json has 'MambaForCausalLM', allowed: one of LlamaForCausalLM",
        ),
        ({"model_type": "mamba"}, "no architectures and model_type 'mamba'"),
        (of("Gemma3ForConditionalGeneration"), "has 'Gemma3ForConditionalGeneration'"),
        ({"architectures": ["LlamaForCausalLM"]}, "config.json has no hidden_size"),
        (LLAMA | {"hidden_act": "gelu"}, "hidden_act of config.json is 'gelu', allowed: 'silu'"),
        (LLAMA | {"rope_scaling": {"rope_type": "llama3"}}, "rope_type of config.json is 'llama3'"),
        (LLAMA | {"rope_scaling": {"type": "linear"}}, "rope_type of config.json is 'linear'"),
        (LLAMA | {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, "rope_type of config.json is 'yarn'"),
        (LLAMA | {"rope_parameters": {"partial_rotary_factor": 0.25}}, "partial_rotary_factor of config.json is 0.25"),
        (LLAMA | {"attention_bias": True}, "mlp_bias of config.json is None, allowed: True"),
        (LLAMA | {"num_key_value_heads": 3}, "model.num_kv_heads is 3"),
        (of("Qwen3ForCausalLM", attention_bias=True), "attention_bias of config.json is True, allowed: False"),
        (of("Qwen3ForCausalLM", use_sliding_window=True), "use_sliding_window of config.json is True"),
        (
            of("Qwen3ForCausalLM", layer_types=["sliding_attention"]),
            "layer_types of config.json has 'sliding_attention'",
        ),
        (of("Gemma3ForCausalLM", final_logit_softcapping=30.0), "final_logit_softcapping of config.json is 30.0"),
        (of("Gemma3ForCausalLM"), "config.json has no sliding_window"),
        (of("Gemma3ForCausalLM", layer_types=["conv"] * 6), "layer_types of config.json has 'conv'"),
        (of("Lfm2ForCausalLM", conv_bias=True), "conv_bias of config.json is True"),
        (of("Lfm2ForCausalLM", layer_types=["mamba"] * 6), "layer_types of config.json has 'mamba'"),
        (of("Lfm2ForCausalLM", layer_types=["conv"]), "layer_types of config.json has 1 entries, allowed: 6"),
        (
            of("MixtralForCausalLM", num_local_experts=0),
            "num_local_experts of config.json is 0, allowed: a whole number above 0",
        ),
        (of("MixtralForCausalLM", sliding_window=4096), "sliding_window of config.json is 4096"),
        (of("MixtralForCausalLM"), "config.json has no num_local_experts"),
        (of("Qwen3MoeForCausalLM", decoder_sparse_step=2), "decoder_sparse_step of config.json is 2"),
        (of("Qwen3MoeForCausalLM", mlp_only_layers=[1]), r"mlp_only_layers of config.json is \[1\]"),
        (GPT2 | {"activation_function": "gelu"}, "activation_function of config.json is 'gelu'"),
        (GPT2 | {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx of config.json is True"),
        (GPT2 | {"add_cross_attention": True}, "add_cross_attention of config.json is True"),
    ],
)
def test_a_config_that_jaxlm_cannot_be_is_refused(values: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        tables.of_config_json(values).from_config(values)


def read(values: dict[str, Any]) -> ModelConfig:
    return tables.of_config_json(values).from_config(values)[0]


def test_what_a_config_leaves_out_is_as_transformers_has_it() -> None:
    llama = read(LLAMA)
    assert (llama.num_kv_heads, llama.head_dim, llama.tie_embeddings, llama.rope_theta) == (4, 8, False, 10_000.0)
    assert read(of("Qwen3ForCausalLM")).head_dim == 128
    assert read(GPT2).intermediate_size == 128
    assert read(GPT2).tie_embeddings
    gemma = read(of("Gemma3ForCausalLM", sliding_window=8))
    assert (gemma.layer_pattern, gemma.head_dim, gemma.rope_theta, gemma.rope_theta_local) == ("LLLLLG", 256, 1e6, 1e4)
    assert read(of("Gemma3ForCausalLM", sliding_window=8, sliding_window_pattern=3)).layer_pattern == "LLG"
    lfm2 = read(of("Lfm2ForCausalLM", block_ff_dim=6656, full_attn_idxs=[2, 5], tie_embedding=False))
    assert (lfm2.intermediate_size, lfm2.layer_pattern, lfm2.tie_embeddings) == (4608, "CCG", False)
    assert read(of("Lfm2ForCausalLM", block_auto_adjust_ff_dim=False)).intermediate_size == 40
    mixtral = read(of("MixtralForCausalLM", num_local_experts=8))
    assert (mixtral.rope_theta, mixtral.norm_eps, mixtral.experts_per_token) == (1e6, 1e-5, 2)


def test_both_spellings_of_the_rotary_base_are_read() -> None:
    assert read(LLAMA | {"rope_theta": 5e5}).rope_theta == 5e5
    assert read(LLAMA | {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}).rope_theta == 5e5
    old = of("Gemma3ForCausalLM", sliding_window=8, rope_theta=7.0, rope_local_base_freq=8.0)
    new = of(
        "Gemma3ForCausalLM",
        sliding_window=8,
        rope_parameters={"full_attention": {"rope_theta": 7.0}, "sliding_attention": {"rope_theta": 8.0}},
    )
    assert read(old) == read(new)
    assert (read(old).rope_theta, read(old).rope_theta_local) == (7.0, 8.0)


@pytest.mark.parametrize(
    ("letters", "pattern"), [("GGG", "G"), ("LLLLLGLLL", "LLLLLG"), ("CGC", "CG"), ("CCGCG", "CCGCG"), ("L", "L")]
)
def test_a_pattern_is_as_short_as_can_be(letters: str, pattern: str) -> None:
    assert pattern_of(letters) == pattern
