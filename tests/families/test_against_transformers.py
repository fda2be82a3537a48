"""Logits, gradients and greedy text against transformers' own classes: random weights in everything, norms too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import save_file
from transformers import AutoModelForCausalLM

import jaxlm
from jaxlm import import_hf
from jaxlm.config import ObjectiveConfig
from jaxlm.data.tokenizer import Tokenizer
from jaxlm.families import Model
from jaxlm.generation import Sampling, autoregressive
from jaxlm.layers.parameters import Tree
from jaxlm.layers.structure import Structure
from jaxlm.release import tables
from jaxlm.release.mapping import to_hugging_face

TOLERANCE = 1e-4
WINDOW = 5
LENGTH = 29  # longer than any window
NEW_TOKENS = 64
PROMPTS = [[7, 3, 7], [50], list(range(20, 33))]  # one is shorter than the taps, one longer than the window

# One model, at least, for each of transformers' classes.
NATIVE: dict[str, dict[str, Any]] = {
    "LlamaForCausalLM": {"family": "llama3"},
    "LlamaForCausalLM, biases, untied": {"family": "mobilellm", "use_bias": True, "tie_embeddings": False},
    "Qwen3ForCausalLM": {"family": "qwen3", "rope_theta": 777.0},
    "GPT2LMHeadModel": {"family": "gpt2", "num_kv_heads": 4, "head_dim": 6},
    "Gemma3ForCausalLM": {"family": "gemma3", "layer_pattern": "LLG", "sliding_window": WINDOW, "query_scalar": 11.0},
    "Lfm2ForCausalLM": {"family": "lfm2", "layer_pattern": "CGC"},
    "MixtralForCausalLM": {"family": "moe"},
    "Qwen3MoeForCausalLM": {
        "family": "moe",
        "qk_norm": True,
        "normalize_experts": False,
        "num_experts": 5,
        "experts_per_token": 3,
    },
}
each_class = pytest.mark.parametrize("member", NATIVE.values(), ids=list(NATIVE))


def theirs(model: Model, params: Tree, directory: Path) -> Any:
    """transformers' class with our weights, through a directory as it is exported."""
    config, target = model.config, tables.choose(model.config, ObjectiveConfig(), "native")
    assert target.to_config is not None
    directory.mkdir()
    values = {"model_type": target.model_type, "architectures": [target.name], **target.to_config(config)}
    (directory / "config.json").write_text(json.dumps(values | dict.fromkeys(["pad_token_id", "eos_token_id"])))
    save_file(to_hugging_face(target.table(config), params), directory / "model.safetensors", {"format": "pt"})
    hf, info = AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    assert not any(info.values()), info
    assert type(hf).__name__ == target.name
    return hf.eval()


def with_canon(hf: Any, convolutions: dict[str, np.ndarray]) -> Any:
    """A depthwise Conv1d of torch hooked in behind the norms, for Canon A and C."""
    for name, weight in convolutions.items():
        layer = hf.model.layers[int(name.split(".")[2])]
        norm = layer.input_layernorm if "canon_a" in name else layer.post_attention_layernorm
        channels, _, taps = weight.shape
        conv = torch.nn.Conv1d(channels, channels, taps, groups=channels, padding=taps - 1, bias=False)
        conv.weight.data.copy_(torch.tensor(weight))
        norm.register_forward_hook(
            lambda module, args, x, conv=conv: x + conv(x.swapaxes(1, 2))[:, :, : x.shape[1]].swapaxes(1, 2)
        )
    return hf


def llama_with_canon(tiny, model: Model, params: Tree, directory: Path) -> Any:
    """transformers' Llama for a model with Canon A and C, or none."""
    tensors = to_hugging_face(tables.get("remote").table(model.config), params)
    plain = {
        name: {key: value for key, value in layer.items() if not key.startswith("canon")}
        for name, layer in params["layers"].items()
    }
    hf = theirs(tiny(family="llama3"), params | {"layers": plain}, directory)
    return with_canon(hf, {name: tensor for name, tensor in tensors.items() if "canon" in name})


def text(model: Model, length: int = LENGTH) -> np.ndarray:
    return np.random.default_rng(0).integers(0, model.config.vocab_size, (2, length))


def ours(model: Model, params: Tree, tokens: np.ndarray, block_size: int = 1) -> np.ndarray:
    return np.asarray(model.logits(params, model.hidden(params, jnp.asarray(tokens), Structure(block_size))))


def assert_close(logits: np.ndarray, expected: torch.Tensor) -> None:
    difference = np.abs(logits - expected.detach().numpy()).max()
    print(f"max |logit difference| {difference:.1e}")
    assert difference < TOLERANCE


@each_class
def test_causal_logits(member, tiny, random_params, tmp_path) -> None:
    model = tiny(**member)
    params, tokens = random_params(model), text(model)
    assert_close(ours(model, params, tokens), theirs(model, params, tmp_path / "hf")(torch.tensor(tokens)).logits)


@each_class
def test_greedy_text_with_a_cache(member, tiny, random_params, tmp_path) -> None:
    model = tiny(**member, max_positions=96)
    params = random_params(model)
    hf = theirs(model, params, tmp_path / "hf")
    settings = dict(max_new_tokens=NEW_TOKENS, do_sample=False, pad_token_id=0, eos_token_id=None)
    width = max(map(len, PROMPTS))
    ids = torch.tensor([[0] * (width - len(p)) + p for p in PROMPTS])
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in PROMPTS])
    batched = hf.generate(ids, attention_mask=mask, **settings)[:, width:].tolist()
    single = [hf.generate(torch.tensor([p]), **settings)[0, len(p) :].tolist() for p in PROMPTS]
    assert batched == single
    assert decode(model, params, PROMPTS) == batched
    assert [row for prompt in PROMPTS for row in decode(model, params, [prompt])] == single


def decode(model: Model, params: Tree, prompts: list[list[int]]) -> list[list[int]]:
    out = autoregressive.decode(
        model,
        params,
        prompts,
        max_new_tokens=NEW_TOKENS,
        sampling=Sampling(),
        tokenizer_size=model.config.vocab_size,
        end_of_text_id=None,
    )
    return [row.token_ids for row in out]


@pytest.mark.parametrize("family", ["dllm", "dllm_canon"])
def test_bidirectional_logits_against_an_all_visible_mask(family, tiny, random_params, tmp_path) -> None:
    model = tiny(family=family)
    params, tokens = random_params(model), text(model)
    hf = llama_with_canon(tiny, model, params, tmp_path / "hf")
    everything = torch.zeros(2, 1, LENGTH, LENGTH)
    assert_close(ours(model, params, tokens, 0), hf(torch.tensor(tokens), attention_mask=everything).logits)


def test_causal_canon_logits_against_hooked_convolutions(tiny, random_params, tmp_path) -> None:
    model = tiny(family="llama3_canon", canon_set="AC")
    params, tokens = random_params(model), text(model)
    hf = llama_with_canon(tiny, model, params, tmp_path / "hf")
    assert_close(ours(model, params, tokens), hf(torch.tensor(tokens)).logits)


@pytest.mark.parametrize("canon_d_width", ["gate_up", "product"])
def test_canon_b_and_d_against_a_plain_loop(canon_d_width, tiny, random_params) -> None:
    model = tiny(family="llama3_canon", canon_set="BD", canon_d_width=canon_d_width, num_layers=2)
    params, tokens = random_params(model), text(model)[0]
    expected = torch.tensor(looped(jax.tree.map(np.asarray, params), tokens, canon_d_width))
    assert_close(ours(model, params, tokens[None])[0], expected)


def looped(params: Tree, tokens: np.ndarray, canon_d_width: str) -> np.ndarray:
    """The whole model with Canon B and D in float64, a position and a head at a time; 4 query and 2 key heads of 8."""

    def norm(x_TD: np.ndarray, scale: np.ndarray) -> np.ndarray:
        return x_TD / np.sqrt((x_TD**2).mean(-1, keepdims=True) + 1e-6) * scale

    def canon(x_TC: np.ndarray, kernel_kC: np.ndarray) -> np.ndarray:
        out = x_TC.copy()
        for t in range(len(x_TC)):
            for back in range(min(4, t + 1)):
                out[t] += kernel_kC[3 - back] * x_TC[t - back]
        return out

    def rotated(x_H: np.ndarray, position: int) -> np.ndarray:
        turn = np.exp(1j * position * 10_000.0 ** (-np.arange(4) / 4))
        z = (x_H[:4] + 1j * x_H[4:]) * turn
        return np.concatenate([z.real, z.imag])

    x_TD = params["embedding"]["table"][tokens].astype(np.float64)
    for layer in params["layers"].values():
        qkv = norm(x_TD, layer["attention_norm"]["scale"]) @ layer["attention"]["qkv"]["kernel"]
        heads = canon(qkv, layer["attention"]["canon_b"]["kernel"]).reshape(len(tokens), 8, 8)
        mixed = np.zeros((len(tokens), 4, 8))
        for t in range(len(tokens)):
            for head in range(4):
                query = rotated(heads[t, head], t)
                keys = [rotated(heads[s, 4 + head // 2], s) for s in range(t + 1)]
                weights = np.exp([query @ key / 8**0.5 for key in keys])
                mixed[t, head] = weights / weights.sum() @ heads[: t + 1, 6 + head // 2]
        x_TD = x_TD + mixed.reshape(len(tokens), -1) @ layer["attention"]["out"]["kernel"]
        part, taps = layer["feed_forward"], layer["feed_forward"]["canon_d"]["kernel"]
        gate_up = norm(x_TD, layer["feed_forward_norm"]["scale"]) @ part["gate_up"]["kernel"]
        if canon_d_width == "gate_up":
            gate_up = canon(gate_up, taps)
        gate, up = np.split(gate_up, 2, axis=-1)
        product = gate / (1 + np.exp(-gate)) * up
        x_TD = x_TD + (canon(product, taps) if canon_d_width == "product" else product) @ part["down"]["kernel"]
    return norm(x_TD, params["final_norm"]["scale"]) @ params["embedding"]["table"].T


def test_a_block_that_runs_twice_is_two_layers_with_the_same_weights(tiny, random_params, tmp_path) -> None:
    model = tiny(family="mobilellm", layer_repeats=2)
    params, tokens = random_params(model), text(model)
    names = sorted(params["layers"])
    repeated = {f"{i:02}": params["layers"][names[i // 2]] for i in range(2 * len(names))}
    deep = tiny(family="mobilellm", num_layers=2 * len(names))
    hf = theirs(deep, params | {"layers": repeated}, tmp_path / "hf")
    assert_close(ours(model, params, tokens), hf(torch.tensor(tokens)).logits)


@pytest.mark.parametrize("family", ["llama3", "llama3_canon"])
def test_gradients_of_the_loss(family, tiny, random_params, tmp_path) -> None:
    model = tiny(family=family)
    params, tokens = random_params(model), text(model, LENGTH + 1)
    hf = llama_with_canon(tiny, model, params, tmp_path / "hf")
    logits = hf(torch.tensor(tokens[:, :-1])).logits
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.tensor(tokens[:, 1:]).flatten()).backward()

    def loss(p):
        logits = model.logits(p, model.hidden(p, jnp.asarray(tokens[:, :-1]), Structure(1)))
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), jnp.asarray(tokens[:, 1:, None]), axis=-1))

    gradients = to_hugging_face(tables.get("remote").table(model.config), jax.grad(loss)(params))
    for name, parameter in hf.named_parameters():
        np.testing.assert_allclose(gradients[name], parameter.grad.numpy(), atol=1e-5, err_msg=name)


SIZES = dict(
    vocab_size=300,
    hidden_size=32,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=10,
    max_position_embeddings=80,
    initializer_range=0.1,
    bos_token_id=None,
    eos_token_id=None,
    pad_token_id=None,
)
ROPE = {"rope_type": "default", "rope_theta": 777.0}
LLAMA = SIZES | dict(intermediate_size=44, rms_norm_eps=3e-6, rope_parameters=ROPE)
LOCAL, GLOBAL, CONVOLUTION = "sliding_attention", "full_attention", "conv"
WRITTEN: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", "LlamaConfig", LLAMA),
    "llama, tied, biases": (
        "LlamaForCausalLM",
        "LlamaConfig",
        LLAMA | dict(tie_word_embeddings=True, attention_bias=True, mlp_bias=True),
    ),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", LLAMA),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", dict(vocab_size=300, n_positions=80, n_embd=32, n_layer=3, n_head=4)),
    "gpt2, untied": (
        "GPT2LMHeadModel",
        "GPT2Config",
        dict(vocab_size=300, n_positions=80, n_embd=32, n_layer=3, n_head=2, n_inner=44, tie_word_embeddings=False),
    ),
    "gemma3": (
        "Gemma3ForCausalLM",
        "Gemma3TextConfig",
        LLAMA
        | dict(
            sliding_window=7,
            query_pre_attn_scalar=13,
            layer_types=[LOCAL, GLOBAL, LOCAL],
            rope_parameters={GLOBAL: ROPE, LOCAL: ROPE | {"rope_theta": 99.0}},
        ),
    ),
    "lfm2": (
        "Lfm2ForCausalLM",
        "Lfm2Config",
        SIZES
        | dict(
            intermediate_size=50,  # of which its MLP makes 40
            block_multiple_of=8,
            conv_L_cache=4,
            layer_types=[CONVOLUTION, GLOBAL, CONVOLUTION],
            rope_parameters=ROPE,
        ),
    ),
    "mixtral": ("MixtralForCausalLM", "MixtralConfig", LLAMA | dict(num_local_experts=5, num_experts_per_tok=2)),
    "qwen3_moe": (
        "Qwen3MoeForCausalLM",
        "Qwen3MoeConfig",
        LLAMA | dict(moe_intermediate_size=20, num_experts=5, num_experts_per_tok=3, norm_topk_prob=True),
    ),
}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(["Returns the sum of the numbers. If True, the array is changed."] * 3, 280)


@pytest.mark.parametrize("name", WRITTEN)
def test_what_transformers_wrote_is_imported(name, tokenizer, tmp_path) -> None:
    model_class, config_class, fields = WRITTEN[name]
    torch.manual_seed(0)
    hf = getattr(transformers, model_class)(getattr(transformers, config_class)(**fields)).eval()
    with torch.no_grad():
        for parameter in hf.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    hf.save_pretrained(tmp_path / "hf")
    tokenizer.save(tmp_path / "hf")
    import_hf.main([f"--model={tmp_path / 'hf'}", f"--workdir={tmp_path / 'run'}"])
    loaded = jaxlm.load(tmp_path / "run")
    tokens = text(loaded.model)
    assert_close(np.asarray(loaded.logits(tokens)), hf(torch.tensor(tokens)).logits)
    assert sum(leaf.size for leaf in jax.tree.leaves(loaded.params)) == sum(p.numel() for p in hf.parameters())
