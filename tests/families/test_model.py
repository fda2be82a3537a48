"""What every family must be able to do: two forms that agree, however the layers are run, alone or packed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlm.families import Model
from jaxlm.layers.parameters import paths
from jaxlm.layers.structure import Structure
from tests.families.members import ANY_READING, MEMBERS, WINDOW
from tests.quick_jit import quick_jit

T = 3 * WINDOW
CAUSAL = Structure(1)
every_family = pytest.mark.parametrize("member", MEMBERS.values(), ids=MEMBERS)
not_only_causal = pytest.mark.parametrize("member", ANY_READING.values(), ids=ANY_READING)


def tokens(rows: int, length: int) -> jax.Array:
    return jax.random.randint(jax.random.key(9), (rows, length), 0, 61)


def count(model: Model) -> int:
    return sum(int(np.prod(leaf.shape)) for _, leaf in paths(model.abstract_params()))


def forward(model: Model, structure: Structure):
    """(params, tokens, and perhaps segments) to logits, compiled."""
    return quick_jit(lambda params, *row: model.logits(params, model.hidden(params, row[0], structure, *row[1:])))


@every_family
def test_a_cache_gives_what_the_whole_sequence_gives(member, tiny, random_params) -> None:
    """Step by step, and in pieces that are not the same for the rows of a batch, each after a rejected draft."""
    model = tiny(**member)
    config, params, tokens_BT, whole = model.config, random_params(model), tokens(2, T), forward(model, CAUSAL)
    expected = np.asarray(whole(params, tokens_BT))

    @quick_jit
    def extend(tokens_Bb, cache, num_new_B, accepted_B):
        x_BbD, proposal = model.extend(params, tokens_Bb, cache, CAUSAL, num_new_B)
        return model.logits(params, x_BbD), model.commit(proposal, accepted_B)

    for pieces in ([(1, 1)] * T, [(1, 5), (2, 1), (3, 6), (4, 3), (5, 0)]):
        size = max(max(both) for both in pieces)
        draft = np.full((2, size), 60)
        cache, out, at = model.init_cache(2, T + size), ([], []), np.zeros(2, np.int32)
        for both in pieces:
            _, cache = extend(draft, cache, np.full(2, size), np.zeros(2, int))
            piece = draft.copy()  # also what lies behind the new tokens of a row that has fewer
            for row, n in enumerate(both):
                piece[row, :n] = tokens_BT[row, at[row] : at[row] + n]
            y_BbV, cache = extend(piece, cache, np.array(both), np.array(both))
            at += both
            for row, n in enumerate(both):
                out[row].append(np.asarray(y_BbV)[row, :n])
        assert cache["length"].tolist() == [T, T]
        np.testing.assert_allclose([np.concatenate(pieces) for pieces in out], expected, atol=1e-4)

    # That went through every length; where something changes, it is what a forward over just so much text gives.
    lengths = {1, 2}
    if config.canon_set:
        lengths |= {config.canon_kernel - 1, config.canon_kernel}
    if "C" in config.layer_kinds:
        lengths |= {config.conv_kernel - 1, config.conv_kernel}
    if window := config.sliding_window:
        lengths |= {window - 1, window, window + 1}
    for length in sorted(lengths):
        np.testing.assert_allclose(whole(params, tokens_BT[:, :length]), expected[:, :length], atol=1e-4)


@not_only_causal
def test_block_diffusion_reads_what_a_cache_of_finished_blocks_gives(member, tiny, random_params) -> None:
    """Two streams in one forward, and block by block: the noise on finished blocks, thrown away, then the text."""
    model = tiny(**member)
    block, params, clean = 4, random_params(model), np.asarray(tokens(2, 12))
    noisy = np.where(np.random.default_rng(0).random(clean.shape) < 0.5, 60, clean)
    both = np.asarray(forward(model, Structure(block, streams=2))(params, np.concatenate([noisy, clean], axis=1)))
    one = np.asarray(forward(model, Structure(block))(params, clean))
    np.testing.assert_allclose(both[:, 12:], one, atol=1e-4)

    @quick_jit
    def extend(tokens_Bb, cache, accepted_B):
        x_BbD, proposal = model.extend(params, tokens_Bb, cache, Structure(block), jnp.full(2, block))
        return model.logits(params, x_BbD), model.commit(proposal, accepted_B)

    cache = model.init_cache(2, 12)
    for start in range(0, 12, block):
        now = slice(start, start + block)
        draft, cache = extend(noisy[:, now], cache, np.zeros(2, int))
        final, cache = extend(clean[:, now], cache, np.full(2, block))
        np.testing.assert_allclose(draft, both[:, now], atol=1e-4)
        np.testing.assert_allclose(final, one[:, now], atol=1e-4)


@not_only_causal
def test_a_packed_document_equals_the_document_alone(member, tiny, random_params) -> None:
    """Causal and both ways; with learned positions, too, which start anew."""
    model = tiny(**member)
    params, tokens_BT = random_params(model), tokens(2, T)
    segments = np.repeat(np.array([[7, 2, 3]] * 2), WINDOW, axis=1)
    for structure in (CAUSAL, Structure(0)):
        packed = np.asarray(forward(model, structure)(params, tokens_BT, segments))
        alone = np.asarray(forward(model, structure)(params, tokens_BT.reshape(6, WINDOW)))
        np.testing.assert_allclose(packed, alone.reshape(packed.shape), atol=1e-4)


def losses_and_gradients(model: Model, params, structure: Structure):
    """A number that depends on every hidden state and auxiliary loss, those losses, and its gradient."""
    tokens_BT = tokens(2, 12 * structure.streams)
    segments = np.tile([[1] * 5 + [2] * 7, [1] * 12], (1, structure.streams))

    def loss(params):
        x_BTD, losses = model.hidden_and_losses(params, tokens_BT, structure, segments)
        return jnp.sum(jnp.sin(x_BTD)) + sum(loss_B @ jnp.array([3.0, -50.0]) for loss_B in losses.values()), losses

    (value, losses), grads = quick_jit(jax.value_and_grad(loss, has_aux=True))(params)
    return value, losses, dict(paths(jax.tree.map(np.asarray, grads)))


@pytest.mark.parametrize(
    ("member", "structure", "remat"),
    [
        *((member, Structure(5), "dots") for member in ANY_READING.values()),
        *((member, CAUSAL, "full") for name, member in MEMBERS.items() if name not in ANY_READING),
        (MEMBERS["llama3_canon"], Structure(0), "full"),
        (MEMBERS["minimind, experts"], Structure(5, streams=2), "full"),
        (MEMBERS["lfm2"], Structure(5, streams=2), "none"),
    ],
    ids=str,
)
def test_scan_and_unroll_and_remat_agree(member, structure, remat, tiny, random_params) -> None:
    """Also where the period of the layer pattern does not divide the number of layers."""
    plain = tiny({"layers": "unroll", "attention": "xla"}, **member)
    other = "blocked" if set("GL") & set(plain.config.layer_kinds) else "xla"
    looped = tiny({"layers": "scan", "attention": other, "remat": remat}, **member)
    params = random_params(plain)
    expected, losses, grads = losses_and_gradients(plain, params, structure)
    assert set(losses) == ({"router_balance", "router_z"} if plain.config.num_experts else set())
    value, other_losses, other_grads = losses_and_gradients(looped, params, structure)
    np.testing.assert_allclose(value, expected, rtol=2e-5)
    assert set(losses) == set(other_losses)
    for name in losses:
        np.testing.assert_allclose(other_losses[name], losses[name], rtol=1e-5, err_msg=name)
    for path, x in grads.items():
        np.testing.assert_allclose(other_grads[path], x, atol=1e-4 * (np.abs(x).max() + 1e-3), err_msg=path)


def test_unrolled_layers_may_be_recomputed_too(tiny, random_params) -> None:
    plain, again = (
        tiny({"layers": "unroll", "remat": remat}, **MEMBERS["minimind, experts"]) for remat in ("none", "full")
    )
    params = random_params(plain)
    (_, losses, grads), (_, other_losses, other_grads) = (
        losses_and_gradients(model, params, CAUSAL) for model in (plain, again)
    )
    for name in losses:
        np.testing.assert_allclose(other_losses[name], losses[name], rtol=1e-5, err_msg=name)
    for path, x in grads.items():
        np.testing.assert_allclose(other_grads[path], x, atol=1e-4 * (np.abs(x).max() + 1e-3), err_msg=path)


def test_rows_that_are_padded_past_the_last_learned_position_are_unharmed(tiny, random_params) -> None:
    model = tiny(**MEMBERS["gpt2"] | {"max_positions": 6})
    params, tokens_BT, new_B = random_params(model), tokens(2, 8), np.array([3, 5])
    expected = forward(model, CAUSAL)(params, tokens_BT[:, :6])

    @quick_jit
    def extend(tokens_Bb, cache, num_new_B):
        x_BbD, proposal = model.extend(params, tokens_Bb, cache, CAUSAL, num_new_B)
        return model.logits(params, x_BbD), model.commit(proposal, num_new_B)

    y_BbV, cache = extend(tokens_BT, model.init_cache(2, 16), new_B)
    for row, n in enumerate(new_B):
        np.testing.assert_allclose(y_BbV[row, :n], expected[row, :n], atol=1e-4)
    y_BbV, _ = extend(tokens_BT[:, 5:6], cache, np.ones(2, int))
    np.testing.assert_allclose(y_BbV[1, 0], expected[1, 5], atol=1e-4)


def test_layers_that_repeat_are_those_layers_stored_twice(tiny, random_params) -> None:
    """MobileLLM-LS: each block twice in a row, with the same weights."""
    shared, unshared = tiny(**MEMBERS["mobilellm, LS"]), tiny(family="mobilellm", num_layers=4)
    params = random_params(shared)
    layers = {f"{i:02}": params["layers"][f"{i // 2:02}"] for i in range(4)}
    a = forward(shared, CAUSAL)(params, tokens(2, 9))
    np.testing.assert_allclose(a, forward(unshared, CAUSAL)({**params, "layers": layers}, tokens(2, 9)), atol=1e-6)
    assert count(shared) < count(unshared)


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
    x = jax.eval_shape(lambda params: model.hidden(params, tokens(1, 8), CAUSAL), params)
    y = jax.eval_shape(model.logits, params, x)
    assert (x.dtype, y.dtype) == (jnp.bfloat16, jnp.float32)


@pytest.mark.parametrize(
    "member",
    [{"family": "llama3_canon", "canon_set": "AC"}, *(MEMBERS[name] for name in ("gpt2", "gemma3", "lfm2"))],
    ids=str,
)
def test_bf16_stays_near_fp32(member, tiny, random_params) -> None:
    exact, rounded = tiny(**member), tiny({"dtype": "bfloat16"}, **member)
    params, tokens_BT = random_params(exact), tokens(2, 24)
    a, b = (np.asarray(forward(model, CAUSAL)(params, tokens_BT)) for model in (exact, rounded))
    assert np.sqrt(np.mean(np.square(a - b))) < 0.03 * np.sqrt(np.mean(np.square(a)))


def test_untied_heads_are_counted_and_used(tiny) -> None:
    tied, untied = tiny(family="llama3"), tiny(family="llama3", tie_embeddings=False)
    assert count(untied) - count(tied) == 61 * 24
    assert untied.head_VD(untied.init(jax.random.key(0))).shape == (61, 24)


@every_family
def test_logical_axes_name_every_dimension(member, tiny) -> None:
    model = tiny(**member)
    axes = dict(paths(model.logical_axes()))
    for path, leaf in paths(model.abstract_params()):
        assert len(axes[path]) == len(leaf.shape), path
