"""One leak harness for all families: gradients prove which positions see which.

The gradient of a hidden state with respect to the embedding of a position is exactly zero where the rules hide that
position, and not zero where they show it: through attention and convolutions, over several layers, over a whole
sequence and through a cache. The rules are written down here once more, as plain loops over pairs of positions.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlm.families import Model
from jaxlm.families.registry import FAMILIES
from jaxlm.layers.structure import Structure
from tests.families.members import ANY_READING, MEMBERS
from tests.families.reach import influence, pairs, then
from tests.quick_jit import quick_jit

T, WINDOW = 12, 3
DOCUMENTS = [1] * 5 + [2] * 7

SHAPES = {
    **ANY_READING,
    "gemma3, only local": MEMBERS["gemma3"] | {"layer_pattern": "L"},
    "lfm2, local attention": MEMBERS["lfm2"] | {"layer_pattern": "CL", "sliding_window": WINDOW},
}
STRUCTURES = [Structure(1), Structure(0), Structure(5), Structure(3, streams=2)]


@pytest.fixture(name="model", params=SHAPES.values(), ids=SHAPES)
def model_fixture(request, tiny) -> Model:
    windows = {"sliding_window": WINDOW} if "sliding_window" in request.param else {}
    return tiny(**request.param | windows | {"num_layers": 2 // request.param.get("layer_repeats", 1)})


def inputs(rows: int, model: Model) -> jax.Array:
    return jax.random.normal(jax.random.key(5), (rows, model.config.hidden_size))


def allowed(model: Model, structure: Structure, documents: list[int], length: int = T) -> np.ndarray:
    """What the rules let each position depend on, in all: bool [positions, positions]."""
    config, size = model.config, length * structure.streams
    two, same = structure.streams == 2, np.eye(size, dtype=bool)

    def half(index: int) -> tuple[bool, int, int]:
        at = index % length
        return two and index < length, at, at // structure.block_size if structure.block_size else 0

    def attention(window: int) -> np.ndarray:
        def rule(query: int, key: int) -> bool:
            (noisy, at, block), (key_noisy, key_at, key_block) = half(query), half(key)
            if documents[at] != documents[key_at] or (window and abs(at - key_at) >= window):
                return False
            if noisy:  # one's own noisy block, and the finished ones before it
                return key_block == block if key_noisy else key_block < block
            return not key_noisy and key_block <= block

        return pairs(rule, size)

    def taps(kernel: int) -> np.ndarray:
        def rule(query: int, key: int) -> bool:
            (noisy, at, block), (key_noisy, key_at, key_block) = half(query), half(key)
            if documents[at] != documents[key_at] or not 0 <= at - key_at < kernel:
                return False
            return key_noisy == (noisy and key_block == block)

        return pairs(rule, size)

    canon = {place: taps(config.canon_kernel) if place in config.canon_set else same for place in "ABCD"}
    seen = same
    for kind in config.layer_kinds:
        if kind == "C":
            mixed = taps(config.conv_kernel)
        else:
            mixed = then(attention(config.sliding_window if kind == "L" else 0), then(canon["B"], canon["A"])) | same
        for _ in range(config.layer_repeats):
            seen = then(canon["D"], then(canon["C"], then(mixed, seen))) | then(mixed, seen)
    return seen


def test_every_family_is_here() -> None:
    """But for one, whose rules are others: see test_titans_mac.py."""
    assert {shape["family"] for shape in SHAPES.values()} == set(FAMILIES) - {"titans_mac"}


@pytest.mark.parametrize("structure", STRUCTURES, ids=str)
def test_a_sequence_sees_just_what_the_rules_allow(model, structure, random_params) -> None:
    """As one document, and as two packed ones that must not see each other."""
    size = T * structure.streams

    @quick_jit
    def found(params, x_RD, segments_T):
        def hidden(x_RD):
            trunk = model.bind(params)
            trunk.embedding = lambda tokens_BT: x_RD[tokens_BT]
            return trunk(jnp.arange(size)[None], structure, jnp.tile(segments_T, structure.streams)[None])[0][0]

        return influence(hidden, x_RD)

    params, x_RD = random_params(model), inputs(size, model)
    for documents in ([1] * T, DOCUMENTS):
        expected = allowed(model, structure, documents)
        np.testing.assert_array_equal(found(params, x_RD, jnp.array(documents)), expected, err_msg=str(documents))


@pytest.mark.parametrize(("structure", "pieces"), [(Structure(1), (3, 1, 4)), (Structure(2), (4, 2, 1))], ids=str)
def test_a_cache_hands_on_just_what_the_rules_allow(model, structure, pieces, random_params) -> None:
    """In pieces, padded, the last one not a whole block. Padding and drafts that are rejected leave no trace."""
    length, width = sum(pieces), max(pieces)
    # Rows of the input after those of the sequence: the drafts', then the padding's.
    draft, fill = np.arange(length, length + width), np.arange(length + width, length + 2 * width)
    tokens_Pb, new_P, kept_P, real = [], [], [], []
    for start, size in zip(np.cumsum((0, *pieces)), pieces, strict=False):
        tokens_Pb += [draft, np.concatenate([np.arange(start, start + size), fill[size:]])]
        new_P += [width, size]
        kept_P += [0, size]
        real += [len(tokens_Pb) * width - width + place for place in range(size)]
    steps = tuple(jnp.array(column)[:, None] for column in (tokens_Pb, new_P, kept_P))

    def hidden(trunk, x_RD):
        trunk.embedding = lambda tokens_Bb: x_RD[tokens_Bb]

        def extend(cache, step):
            tokens_Bb, new_B, kept_B = step
            y_BbD, proposal = trunk.extend(tokens_Bb, cache, structure, new_B)
            return trunk.commit(proposal, kept_B), y_BbD

        _, y_PBbD = jax.lax.scan(extend, trunk.init_cache(1, length + width), steps)
        return y_PBbD.reshape(-1, x_RD.shape[-1])[np.array(real)]

    @quick_jit
    def found(params, x_RD):
        return influence(lambda x_RD: hidden(model.bind(params), x_RD), x_RD)

    seen = found(random_params(model), inputs(length + 2 * width, model))
    np.testing.assert_array_equal(seen[:, :length], allowed(model, structure, [1] * length, length))
    assert not seen[:, length:].any(), "the hidden states depend on padding or on a rejected draft"


@pytest.mark.parametrize("block", [1, 4, 5])
def test_a_noisy_block_never_depends_on_clean_text_of_itself_or_later(block, tiny, random_params) -> None:
    """The statement that block diffusion rests on, said without the rules above, with Canon everywhere.

    The last block of 5 is shorter.
    """
    model = tiny(**MEMBERS["llama3_canon"])
    params = random_params(model)

    def hidden(x_RD):
        trunk = model.bind(params)
        trunk.embedding = lambda tokens_BT: x_RD[tokens_BT]
        return trunk(jnp.arange(2 * T)[None], Structure(block, streams=2))[0][0]

    found = np.asarray(quick_jit(lambda x_RD: influence(hidden, x_RD))(inputs(2 * T, model)))
    blocks = np.arange(T) // block
    noisy_on_clean = found[:T, T:]
    assert not noisy_on_clean[blocks[None] >= blocks[:, None]].any()
    assert noisy_on_clean[blocks[None] < blocks[:, None]].all()
    assert not found[T:, :T].any(), "a clean position depends on noise"
