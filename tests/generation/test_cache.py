"""Behind a cache a canvas is filled as without one, where that is called exact, and nearly so where it is not."""

import jax
import numpy as np
import pytest

from jaxlm.config import ExecutionConfig, ModelConfig
from jaxlm.errors import UserError
from jaxlm.families import build_model
from jaxlm.generation import Sampling, Selection, diffusion
from jaxlm.layers.structure import Structure

V, TOKENIZER, MASK, NEW = 40, 37, 38, 14
PROMPTS = [[1, 2, 3], [5], [7, 8, 9, 10, 11, 12, 13, 3, 4, 5]]


@pytest.fixture(scope="module")
def model():
    shape = dict(
        num_layers=2, hidden_size=16, intermediate_size=24, num_heads=2, num_kv_heads=1, head_dim=8, init_std=0.4
    )
    pattern = dict(layer_pattern="LG", sliding_window=5, canon_set="ABCD")
    config = ModelConfig(family="llama3_canon", vocab_size=V, max_positions=32, **shape, **pattern)
    return build_model(config, ExecutionConfig(dtype="float32"))


@pytest.fixture(scope="module")
def params(model):
    return model.init(jax.random.key(4))


def fill(model, params, rows, **changes):
    options = dict(sampling=Sampling(), tokenizer_size=TOKENIZER, mask_token_id=MASK, shift=False) | changes
    return diffusion.decode(model, params, rows, **options)


def canvas(prompts=PROMPTS):
    return diffusion.canvas(prompts, NEW, 32)


def same(cached, plain) -> bool:
    def what(decoded):
        return [(out.token_ids, out.committed_at, out.passes) for out in decoded]

    return what(cached) == what(plain)


@pytest.mark.parametrize(
    ("selection", "block", "shift"),
    [
        (Selection(), 4, False),
        (Selection("random"), 4, True),
        (Selection("revise", revise_rate=0.5), 5, False),
        (Selection(threshold=0.15), 4, True),
        (Selection(entropy_bound=3.0), 1, False),
        (Selection(), 1, True),
        (Selection(threshold=0.15), 32, False),
    ],
    ids=str,
)
def test_a_block_cache_is_exact_for_every_rule(model, params, selection, block, shift) -> None:
    """Rows of different length, so that they are in different places of the grid; windows and all Canon layers."""
    sampling = Sampling(temperature=0.7, top_k=9, repetition_penalty=1.3)
    options = dict(trained_block_size=block, shift=shift, selection=selection, sampling=sampling, seed=3)
    plain, cached = (fill(model, params, canvas(), cache=cache, **options) for cache in ("none", "block"))
    assert same(cached, plain)
    first = (np.array([len(p) for p in PROMPTS]) - shift) // block  # blocks that the prompts fill
    for row, (out, without) in enumerate(zip(cached, plain, strict=True)):
        last = (len(PROMPTS[row]) + NEW - 1 - shift) // block
        assert (out.cache_passes, without.cache_passes) == ((first[row] > 0) + last - first[row], 0)


def test_a_row_gives_the_same_alone_and_in_a_batch_behind_a_block_cache(model, params) -> None:
    options = dict(cache="block", trained_block_size=4, selection=Selection(threshold=0.1))
    together = fill(model, params, canvas(), **options)
    assert len({out.passes for out in together}) > 1
    for prompt, out in zip(PROMPTS[:2], together, strict=False):
        assert same([out], fill(model, params, canvas([prompt]), **options))


def test_a_block_cache_ends_where_the_text_does(model, params) -> None:
    plain = fill(model, params, canvas(), trained_block_size=4, cache="none")
    stop = plain[0].token_ids[5]
    ended = [
        fill(model, params, canvas(), trained_block_size=4, cache=c, end_of_text_id=stop) for c in ("none", "block")
    ]
    assert same(ended[1], ended[0])
    assert len(ended[0][0].token_ids) < NEW


def test_a_row_with_gaps_is_filled_behind_a_cache(model, params) -> None:
    rows = [[1, None, None, 4, 5, 6, 7, 8, 9, 10, 11, 12, None, None, 15], [1, 2, None, 4, None, None]]
    plain, cached = (fill(model, params, rows, trained_block_size=4, cache=cache) for cache in ("none", "block"))
    assert same(cached, plain)


def test_a_block_cache_is_the_default_where_it_is_exact(model, params) -> None:
    assert fill(model, params, canvas(), trained_block_size=4)[2].cache_passes > 0
    assert fill(model, params, canvas())[2].cache_passes == 0


@pytest.mark.parametrize("shift", [False, True])
def test_a_prefix_cache_is_exact_as_long_as_each_block_takes_one_pass(model, params, shift) -> None:
    """Every pass then is a whole one. What is reused in more passes is what makes it an approximation."""
    options = dict(block_size=5, shift=shift, selection=Selection(threshold=0.0))
    plain, cached = (fill(model, params, canvas(), cache=cache, **options) for cache in ("none", "prefix"))
    assert same(cached, plain)


@pytest.mark.parametrize("shift", [False, True])
def test_a_prefix_cache_sees_what_is_behind_it_as_it_was(model, params, shift) -> None:
    """One row, written down: keys and values of the prefix come from the pass that began the block."""
    prompt, block = PROMPTS[2], 7
    row = np.array([*prompt, *[MASK] * NEW])
    model_extend = jax.jit(
        lambda tokens, cache, n: model.extend(params, tokens, cache, Structure(0), n), static_argnums=()
    )
    for lo in range(0, NEW, block):
        at = len(prompt) + lo
        base = at - shift
        x, cache = model_extend(row[None], model.init_cache(1, 64), np.array([len(row)]))
        cache = model.commit(cache, np.array([base]))
        x = x[0, base:]
        for number in range(block):
            if number:
                x = model_extend(row[None, base:], cache, np.array([len(row) - base]))[0][0]
            logits = np.array(model.logits(params, x[at - shift - base :][:block]), np.float64)[:, :TOKENIZER]
            sure = logits.max(1) - np.log(np.exp(logits).sum(1))
            sure[row[at : at + block] != MASK] = -np.inf
            n = int(sure.argmax())
            row[at + n] = logits[n].argmax()
    out = fill(model, params, canvas([prompt]), cache="prefix", block_size=block, shift=shift)[0]
    assert out.token_ids == row[len(prompt) :].tolist()
    assert (out.passes, out.cache_passes) == (NEW, 0)
    exact = fill(model, params, canvas([prompt]), cache="none", block_size=block, shift=shift)[0]
    assert out.token_ids != exact.token_ids  # else this test would not tell the two apart


def test_rows_behind_a_prefix_cache_do_not_touch_each_other(model, params) -> None:
    options = dict(cache="prefix", block_size=5, selection=Selection(threshold=0.12))
    together = fill(model, params, canvas(), **options)
    assert same(together[:1], fill(model, params, canvas(PROMPTS[:1]), **options))


@pytest.mark.parametrize(
    ("cache", "block", "message"),
    [
        ("prefix", 4, "--cache=prefix of a model that reads in blocks of 4, allowed: none or block"),
        ("block", 0, "--cache=block of a model that sees the whole text"),
        ("dual", 0, "--cache is 'dual', allowed: none, block, prefix"),
    ],
)
def test_a_cache_that_does_not_fit_the_model_is_refused(model, params, cache, block, message) -> None:
    with pytest.raises(UserError, match=message):
        fill(model, params, canvas(), cache=cache, trained_block_size=block)
