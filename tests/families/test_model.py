"""The trunk and its two forms, for every family and Canon set."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlm.config import ModelConfig
from jaxlm.errors import UserError
from jaxlm.families import build_model
from jaxlm.layers.parameters import paths
from jaxlm.layers.structure import Structure

MEMBERS = [
    {"family": "llama3"},
    {"family": "llama3_canon", "canon_set": "ABCD"},
    {
        "family": "llama3_canon",
        "canon_set": "AD",
        "canon_d_width": "product",
        "canon_bias": True,
        "tie_embeddings": False,
    },
    {"family": "llama3_canon", "canon_set": "BC", "layer_pattern": "LG", "sliding_window": 5, "canon_kernel": 3},
]


def tokens(rows: int, length: int) -> jax.Array:
    return jax.random.randint(jax.random.key(9), (rows, length), 0, 61)


def count(model) -> int:
    return sum(int(np.prod(leaf.shape)) for _, leaf in paths(model.abstract_params()))


def test_parameter_counts_of_the_study() -> None:
    assert count(build_model(ModelConfig(family="llama3"))) == 71_246_208
    assert count(build_model(ModelConfig(family="llama3_canon", canon_set="AC"))) == 71_344_512
    # ABCD adds 458,752 to plain LLaMA 3 when D covers [gate, up] (study's formula).
    assert count(build_model(ModelConfig(family="llama3_canon", canon_set="ABCD"))) - 71_246_208 == 458_752


def test_dhara_250m_canon_count_with_d_on_the_product() -> None:
    """The published 638,976 of dhara-250m: Canon D once the feed-forward width."""
    shape = dict(num_layers=32, hidden_size=768, intermediate_size=2176, num_heads=12, num_kv_heads=4, head_dim=64)
    config = ModelConfig(family="llama3_canon", canon_set="ABCD", canon_d_width="product", vocab_size=49_152, **shape)
    canon = [leaf for path, leaf in paths(build_model(config).abstract_params()) if "canon" in path]
    assert sum(int(np.prod(leaf.shape)) for leaf in canon) == 638_976


@pytest.mark.parametrize("member", MEMBERS, ids=str)
@pytest.mark.parametrize("structure", [Structure(1), Structure(0), Structure(6, streams=2)], ids=str)
def test_scan_and_unroll_and_remat_agree(member, structure, tiny, random_params) -> None:
    plain = tiny({"layers": "unroll", "attention": "xla"}, **member)
    looped = tiny({"layers": "scan", "attention": "blocked", "remat": "dots"}, **member)
    params, tokens_BT = random_params(plain), tokens(2, 24)

    def loss(model):
        return jax.jit(jax.value_and_grad(lambda p: jnp.sum(jnp.sin(model.hidden(p, tokens_BT, structure)))))(params)

    (a, grads_a), (b, grads_b) = loss(plain), loss(looped)
    np.testing.assert_allclose(a, b, rtol=2e-5)
    for (path, x), (_, y) in zip(paths(grads_a), paths(grads_b), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-4 * float(jnp.abs(x).max() + 1e-3), err_msg=path)


@pytest.mark.parametrize("member", MEMBERS, ids=str)
def test_extending_equals_the_whole(member, tiny, random_params) -> None:
    """Step by step and in pieces, through lengths around the kernel and the window, after rejected proposals."""
    model = tiny(**member)
    params, tokens_BT = random_params(model), tokens(2, 22)
    whole = model.logits(params, model.hidden(params, tokens_BT, Structure(1)))
    extend = jax.jit(model.extend, static_argnums=3)
    for pieces in ([1] * 22, [2, 1, 4, 1, 6, 8]):
        cache, at, out = model.init_cache(2, 32), 0, []
        for size in pieces:
            n_B = jnp.full(2, size)
            x, proposal = extend(params, tokens_BT[:, at : at + size], cache, Structure(1), n_B)
            cache, at = model.commit(proposal, n_B), at + size
            out.append(model.logits(params, x))
        np.testing.assert_allclose(jnp.concatenate(out, axis=1), whole, atol=1e-4)
        assert cache["length"].tolist() == [22, 22]


@pytest.mark.parametrize("member", MEMBERS[1:3], ids=str)
def test_a_block_of_a_block_causal_model_is_one_extend(member, tiny, random_params) -> None:
    model = tiny(**member)
    params, tokens_BT, structure = random_params(model), tokens(2, 21), Structure(7)
    whole = model.hidden(params, tokens_BT, structure)
    cache, n_B = model.init_cache(2, 21), jnp.full(2, 7)
    for at in (0, 7, 14):
        # Several drafts of the block are read and thrown away before the final one is kept.
        for draft in (tokens_BT[:, :7], tokens_BT[:, at : at + 7]):
            x, proposal = model.extend(params, draft, cache, structure, n_B)
        np.testing.assert_allclose(x, whole[:, at : at + 7], atol=1e-4)
        cache = model.commit(proposal, n_B)


def test_rows_of_different_length_share_a_padded_prefill(tiny, random_params) -> None:
    model = tiny(family="llama3_canon", canon_set="ABCD")
    params, tokens_BT = random_params(model), tokens(3, 12)
    lengths_B = jnp.array([1, 5, 12])
    _, proposal = model.extend(params, tokens_BT, model.init_cache(3, 32), Structure(1), lengths_B)
    cache = model.commit(proposal, lengths_B)
    x, _ = model.extend(params, jnp.full((3, 1), 7), cache, Structure(1), jnp.ones(3, jnp.int32))
    for row, length in enumerate(lengths_B.tolist()):
        alone = jnp.concatenate([tokens_BT[row, :length], jnp.array([7])])[None]
        np.testing.assert_allclose(x[row, 0], model.hidden(params, alone, Structure(1))[0, -1], atol=1e-4)


@pytest.mark.parametrize("member", MEMBERS, ids=str)
@pytest.mark.parametrize("structure", [Structure(1), Structure(0)], ids=str)
def test_a_packed_document_equals_the_document_alone(member, structure, tiny, random_params) -> None:
    model = tiny(**member)
    params, tokens_BT = random_params(model), tokens(2, 20)
    segments = jnp.array([[1] * 6 + [2] * 14] * 2)
    packed = model.hidden(params, tokens_BT, structure, segments)
    np.testing.assert_allclose(packed[:, 6:], model.hidden(params, tokens_BT[:, 6:], structure), atol=1e-4)
    np.testing.assert_allclose(packed[:, :6], model.hidden(params, tokens_BT[:, :6], structure), atol=1e-4)


def test_a_shared_part_starts_alike_in_every_family(tiny) -> None:
    with_canon = dict(paths(tiny(family="llama3_canon", canon_set="ABCD").init(jax.random.key(0))))
    without = dict(paths(tiny(family="llama3").init(jax.random.key(0))))
    assert set(without) < set(with_canon)
    for path, leaf in without.items():
        np.testing.assert_array_equal(leaf, with_canon[path], err_msg=path)


def test_parameters_are_fp32_and_compute_is_what_was_asked(tiny) -> None:
    model = tiny({"dtype": "bfloat16"}, family="llama3_canon", canon_set="AC")
    params = model.init(jax.random.key(0))
    assert {leaf.dtype for _, leaf in paths(params)} == {jnp.dtype("float32")}
    x = model.hidden(params, tokens(1, 8), Structure(1))
    assert (x.dtype, model.logits(params, x).dtype) == (jnp.bfloat16, jnp.float32)


def test_bf16_stays_near_fp32(tiny, random_params) -> None:
    member = dict(family="llama3_canon", canon_set="AC")
    exact, rounded = tiny(**member), tiny({"dtype": "bfloat16"}, **member)
    params, tokens_BT = random_params(exact), tokens(2, 24)
    a, b = (m.logits(params, m.hidden(params, tokens_BT, Structure(1))) for m in (exact, rounded))
    assert float(jnp.abs(a - b).max()) < 0.05 * float(jnp.abs(a).max())


def test_untied_heads_are_counted_and_used(tiny) -> None:
    tied, untied = tiny(family="llama3"), tiny(family="llama3", tie_embeddings=False)
    assert count(untied) - count(tied) == 61 * 24
    assert untied.head_VD(untied.init(jax.random.key(0))).shape == (61, 24)


def test_logical_axes_name_every_dimension(tiny) -> None:
    model = tiny(family="llama3_canon", canon_set="ABCD", canon_bias=True)
    axes = dict(paths(model.logical_axes()))
    for path, leaf in paths(model.abstract_params()):
        assert len(axes[path]) == len(leaf.shape), path


def test_refusals() -> None:
    with pytest.raises(UserError, match=r"model.family is 'lama3'.*did you mean 'llama3'"):
        build_model(ModelConfig(family="lama3"))
    with pytest.raises(UserError, match=r"canon_set is 'AC', allowed: '' for model.family 'llama3'"):
        build_model(ModelConfig(family="llama3", canon_set="AC"))
