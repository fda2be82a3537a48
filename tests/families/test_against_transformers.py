"""Logits against transformers' Llama: random weights in the norms too, grouped queries, Canon by hooked Conv1d."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from jaxlm.layers.structure import Structure
from jaxlm.release.mapping import to_hugging_face
from jaxlm.release.tables import table

LENGTH = 29


def llama(model, params) -> LlamaForCausalLM:
    """transformers' class with our weights, and a depthwise Conv1d hooked in behind the norms for Canon A and C."""
    c = model.config
    hf = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=c.vocab_size,
            hidden_size=c.hidden_size,
            intermediate_size=c.intermediate_size,
            num_hidden_layers=c.num_layers,
            num_attention_heads=c.num_heads,
            num_key_value_heads=c.num_kv_heads,
            head_dim=c.head_dim,
            rms_norm_eps=c.norm_eps,
            max_position_embeddings=c.max_positions,
            rope_parameters={"rope_theta": c.rope_theta, "rope_type": "default"},
            tie_word_embeddings=c.tie_embeddings,
            attn_implementation="eager",
        )
    ).eval()
    tensors = {name: torch.tensor(value) for name, value in to_hugging_face(table(c), params).items()}
    canon = {name: tensors.pop(name) for name in list(tensors) if "canon" in name}
    missing, unexpected = hf.load_state_dict(tensors, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}
    hf.tie_weights()
    for name, weight in canon.items():
        layer = hf.model.layers[int(name.split(".")[2])]
        norm = layer.input_layernorm if "canon_a" in name else layer.post_attention_layernorm
        channels, _, taps = weight.shape
        conv = torch.nn.Conv1d(channels, channels, taps, groups=channels, padding=taps - 1, bias=False)
        conv.weight.data.copy_(weight)
        norm.register_forward_hook(
            lambda module, args, x, conv=conv: x + conv(x.swapaxes(1, 2))[:, :, : x.shape[1]].swapaxes(1, 2)
        )
    return hf


@pytest.mark.parametrize(
    "member",
    [
        {"family": "llama3"},
        {"family": "llama3", "tie_embeddings": False},
        {"family": "llama3_canon", "canon_set": "AC"},
    ],
    ids=str,
)
def test_causal_logits(member, tiny, random_params) -> None:
    model = tiny(**member)
    params = random_params(model)
    tokens = np.random.default_rng(0).integers(0, 61, (2, LENGTH))
    with torch.no_grad():
        expected = llama(model, params)(torch.tensor(tokens)).logits.numpy()
    ours = model.logits(params, model.hidden(params, jnp.asarray(tokens), Structure(1)))
    assert np.abs(ours - expected).max() < 1e-4, np.abs(ours - expected).max()


def test_bidirectional_logits_against_an_all_visible_mask(tiny, random_params) -> None:
    model = tiny(family="llama3_canon", canon_set="AC")
    params = random_params(model)
    tokens = np.random.default_rng(0).integers(0, 61, (2, LENGTH))
    with torch.no_grad():
        mask = torch.zeros(2, 1, LENGTH, LENGTH)
        expected = llama(model, params)(torch.tensor(tokens), attention_mask=mask).logits.numpy()
    ours = model.logits(params, model.hidden(params, jnp.asarray(tokens), Structure(0)))
    assert np.abs(ours - expected).max() < 1e-4, np.abs(ours - expected).max()


def test_gradients_of_the_loss(tiny, random_params) -> None:
    model = tiny(family="llama3_canon", canon_set="AC")
    params = random_params(model)
    tokens = np.random.default_rng(0).integers(0, 61, (2, LENGTH + 1))
    hf = llama(model, params)
    torch.nn.functional.cross_entropy(
        hf(torch.tensor(tokens[:, :-1])).logits.flatten(0, 1), torch.tensor(tokens[:, 1:]).flatten()
    ).backward()

    def loss(p):
        logits = model.logits(p, model.hidden(p, jnp.asarray(tokens[:, :-1]), Structure(1)))
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), jnp.asarray(tokens[:, 1:, None]), axis=-1))

    ours = to_hugging_face(table(model.config), jax.grad(loss)(params))
    for name, parameter in hf.named_parameters():
        np.testing.assert_allclose(ours[name], parameter.grad.numpy(), atol=1e-5, err_msg=name)
