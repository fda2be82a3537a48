"""One leak harness: gradients prove which positions see which, through attention and convolutions alike.

The gradient of a hidden state with respect to the embedding of a position is zero exactly where the structure forbids
that position, also through several layers.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlm.layers.structure import Structure

T = 12
SEGMENTS = np.array([[1] * 5 + [2] * 7])


def influence(model, params, structure: Structure, segments=None) -> np.ndarray:
    """bool [T, T]: whether the hidden state of a row depends on the embedding of a column."""

    def hidden(x_BTD):
        trunk = model.bind(params)
        trunk.embedding = lambda tokens: x_BTD
        return trunk(jnp.zeros(x_BTD.shape[:2], jnp.int32), structure, segments)[0]

    x = jax.random.normal(jax.random.key(5), (1, T * structure.streams, model.config.hidden_size))
    return np.asarray(jnp.abs(jax.jacrev(hidden)(x)).sum(axis=(1, 2, 4)) > 0)


def reachable(structure: Structure, window: int, canon: bool, layers: int, segments=None) -> np.ndarray:
    """What the rules allow, through `layers` blocks, each of which may reach back by attention and by taps."""
    size = T * structure.streams
    index = np.arange(size)
    attention = np.broadcast_to(structure.visible(index[:, None], index[None], T, window), (size, size))
    taps = np.eye(size, dtype=bool)
    if canon:
        query, key = index[:, None], index[None]
        back = ((query - key) >= 0) & ((query - key) < 4)
        if structure.streams == 2:
            offset = query % T - key % T
            near = (offset >= 0) & (offset < 4)
            same_block = structure.block(query % T) == structure.block(key % T)
            noisy = (query < T) & np.where(key < T, same_block, ~same_block)
            back = near & (noisy | ((query >= T) & (key >= T)))
        taps = back
    if segments is not None:
        own = np.tile(segments[0], structure.streams)
        own = own[:, None] == own[None]
        attention, taps = attention & own, taps & own

    def then(later: np.ndarray, earlier: np.ndarray) -> np.ndarray:
        return (later.astype(int) @ earlier.astype(int)) > 0

    seen = np.eye(size, dtype=bool)
    one_layer = then(taps, then(taps, then(attention, taps)) | np.eye(size, dtype=bool))
    for _ in range(layers):
        seen = then(one_layer | np.eye(size, dtype=bool), seen)
    return seen


@pytest.mark.parametrize("isolated", [False, True])
@pytest.mark.parametrize(
    "structure",
    [Structure(1), Structure(0), Structure(4), Structure(5), Structure(3, streams=2), Structure(1, streams=2)],
    ids=str,
)
@pytest.mark.parametrize("member", [{"family": "llama3"}, {"family": "llama3_canon", "canon_set": "ABCD"}], ids=str)
def test_nothing_forbidden_is_seen_and_everything_allowed_is(member, structure, isolated, tiny, random_params) -> None:
    model = tiny(num_layers=2, **member)
    segments = np.tile(SEGMENTS, (1, structure.streams)) if isolated else None
    found = influence(model, random_params(model), structure, None if segments is None else jnp.asarray(segments))
    allowed = reachable(structure, 0, bool(model.config.canon_set), 2, SEGMENTS if isolated else None)
    assert not (found & ~allowed).any(), np.argwhere(found & ~allowed)
    # Everything that one layer lets through must be used; the closure over layers is an upper bound.
    direct = reachable(structure, 0, False, 1, SEGMENTS if isolated else None)
    assert not (direct & ~found).any(), np.argwhere(direct & ~found)


def test_a_window_limits_what_one_layer_sees(tiny, random_params) -> None:
    model = tiny(family="llama3", num_layers=1, layer_pattern="L", sliding_window=4)
    params = random_params(model)
    index = np.arange(T)
    np.testing.assert_array_equal(
        influence(model, params, Structure(1)), (index[None] <= index[:, None]) & (index[:, None] - index[None] < 4)
    )
    np.testing.assert_array_equal(influence(model, params, Structure(0)), np.abs(index[:, None] - index[None]) < 4)


@pytest.mark.parametrize("block", [1, 3, 4])
def test_a_noisy_block_never_depends_on_clean_text_of_itself_or_later(block, tiny, random_params) -> None:
    """The statement that block diffusion rests on, read off the gradients with Canon everywhere."""
    model = tiny(family="llama3_canon", canon_set="ABCD", num_layers=2)
    found = influence(model, random_params(model), Structure(block, streams=2))
    blocks = np.arange(T) // block
    noisy_on_clean = found[:T, T:]
    assert not noisy_on_clean[blocks[None] >= blocks[:, None]].any()
    assert noisy_on_clean[blocks[None] < blocks[:, None]].all()
    assert not found[T:, :T].any(), "a clean position depends on noise"
