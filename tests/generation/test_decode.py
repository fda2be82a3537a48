"""Both decoders against brute force; rows of a batch against rows alone."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlm.config import ExecutionConfig, ModelConfig
from jaxlm.errors import UserError
from jaxlm.families import build_model
from jaxlm.generation import Sampling, autoregressive, diffusion
from jaxlm.layers.structure import Structure

V, TOKENIZER, MASK, NEW = 40, 37, 38, 12
PROMPTS = [[1, 2, 3], [5], [7, 8, 9, 10, 11, 12, 13]]
SAMPLED = Sampling(temperature=0.8, top_k=9, top_p=0.9, repetition_penalty=1.4)


@pytest.fixture(scope="module")
def model():
    shape = dict(
        num_layers=2, hidden_size=16, intermediate_size=24, num_heads=2, num_kv_heads=1, head_dim=8, init_std=0.4
    )
    config = ModelConfig(family="llama3_canon", canon_set="ABCD", vocab_size=V, max_positions=32, **shape)
    return build_model(config, ExecutionConfig(dtype="float32"))


@pytest.fixture(scope="module")
def params(model):
    return model.init(jax.random.key(2))


def ar(model, params, prompts, **changes):
    options = dict(max_new_tokens=NEW, sampling=Sampling(), tokenizer_size=TOKENIZER, end_of_text_id=None) | changes
    return autoregressive.decode(model, params, prompts, **options)


def fill(model, params, prompts, **changes):
    options = dict(sampling=Sampling(), tokenizer_size=TOKENIZER, mask_token_id=MASK, shift=False) | changes
    rows = diffusion.canvas(prompts, options.pop("max_new_tokens", NEW), model.config.max_positions)
    return diffusion.decode(model, params, rows, **options)


def test_greedy_equals_a_full_forward_for_every_token(model, params) -> None:
    forward = jax.jit(lambda tokens: model.logits(params, model.hidden(params, tokens, Structure(1))))
    for prompt, out in zip(PROMPTS, ar(model, params, PROMPTS), strict=True):
        ids = list(prompt)
        for _ in range(NEW):
            padded = jnp.array([ids + [0] * (20 - len(ids))])  # causal: what follows changes nothing
            ids.append(int(jnp.argmax(forward(padded)[0, len(ids) - 1, :TOKENIZER])))
        assert out.token_ids == ids[len(prompt) :]
        assert (out.passes, out.cache_passes) == (NEW - 1, 1)


@pytest.mark.parametrize("sampling", [Sampling(), SAMPLED], ids=["greedy", "sampled"])
def test_a_row_gives_the_same_alone_and_in_a_batch(model, params, sampling) -> None:
    together = ar(model, params, PROMPTS, sampling=sampling)
    assert together[0].token_ids == ar(model, params, PROMPTS[:1], sampling=sampling)[0].token_ids
    if sampling.temperature == 0:  # sampled rows draw by their number, so only row 0 can be compared
        for prompt, out in zip(PROMPTS, together, strict=True):
            assert out.token_ids == ar(model, params, [prompt])[0].token_ids


def test_a_row_stops_at_end_of_text(model, params) -> None:
    free = ar(model, params, PROMPTS)
    stop = free[0].token_ids[4]
    for before, out in zip(free, ar(model, params, PROMPTS, end_of_text_id=stop), strict=True):
        ids = before.token_ids
        assert out.token_ids == (ids[: ids.index(stop) + 1] if stop in ids else ids)


def test_a_seed_decides_what_is_sampled(model, params) -> None:
    first, again, other = (ar(model, params, PROMPTS, sampling=SAMPLED, seed=s)[0].token_ids for s in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize(
    "options", [{}, {"steps": 5}, {"steps": 6, "block_size": 4}, {"shift": True, "steps": 7}], ids=str
)
def test_diffusion_equals_a_plain_loop(model, params, options) -> None:
    """LLaDA's decoder written down naively: one row, one pass, one position at a time."""
    forward = jax.jit(lambda tokens: model.logits(params, model.hidden(params, tokens, Structure(0))))
    steps, size, shift = options.get("steps", NEW), options.get("block_size", NEW), options.get("shift", False)
    prompt = PROMPTS[2]
    canvas = [MASK] * NEW
    count = NEW // size
    for number in range(count):
        passes = steps // count + (number < steps % count)
        for i in range(passes):
            logits = np.array(forward(jnp.array([prompt + canvas]))[0], np.float64)
            logits[:, TOKENIZER:] = -np.inf
            candidates = []
            for n in range(number * size, (number + 1) * size):
                if canvas[n] == MASK:
                    row = logits[len(prompt) + n - shift]
                    candidates.append((row.max() - np.log(np.exp(row).sum()), -n, int(row.argmax())))
            write = size // passes + (i < size % passes)
            for _, n, token in sorted(candidates, reverse=True)[:write]:
                canvas[-n] = token
    assert fill(model, params, [prompt], **options)[0].token_ids == canvas


@pytest.mark.parametrize(
    "options", [{}, {"steps": 5}, {"block_size": 5}, {"trained_block_size": 4}, {"shift": True}], ids=str
)
def test_a_canvas_gives_the_same_alone_and_in_a_batch(model, params, options) -> None:
    for prompt, out in zip(PROMPTS, fill(model, params, PROMPTS, **options), strict=True):
        alone = fill(model, params, [prompt], **options)[0]
        assert (out.token_ids, out.committed_at, out.passes) == (alone.token_ids, alone.committed_at, alone.passes)


@pytest.mark.parametrize("shift", [False, True])
def test_a_models_blocks_lie_over_the_positions_where_its_logits_are_read(model, params, shift) -> None:
    """Behind a prompt of three, and blocks of four: token 4 is read at 4, or with a shift at 3, in the first block."""
    edges = [0, 2, 6, 10, NEW] if shift else [0, 1, 5, 9, NEW]
    at = fill(model, params, PROMPTS[:1], trained_block_size=4, shift=shift)[0].committed_at
    assert sorted(at) == list(range(NEW))
    assert [sorted(at[lo:hi]) for lo, hi in pairwise(edges)] == [list(range(lo, hi)) for lo, hi in pairwise(edges)]
    assert at != sorted(at)  # blocks of one would be in order too


def test_no_mask_and_nothing_outside_the_tokenizer_is_ever_written(model, params) -> None:
    for sampling in (Sampling(), Sampling(temperature=5.0)):
        for out in fill(model, params, PROMPTS, sampling=sampling) + ar(model, params, PROMPTS, sampling=sampling):
            assert max(out.token_ids) < TOKENIZER


def test_an_empty_prompt_is_a_canvas_but_not_a_start(model, params) -> None:
    assert len(fill(model, params, [[]])[0].token_ids) == NEW
    with pytest.raises(UserError, match="a prompt has no tokens"):
        ar(model, params, [[]])
    with pytest.raises(UserError, match="a prompt has no tokens"):
        fill(model, params, [[]], shift=True)


def test_what_does_not_fit_is_refused(model, params) -> None:
    for decode in (ar, fill):
        with pytest.raises(UserError, match="make 35, allowed: at most model.max_positions = 32"):
            decode(model, params, [[1] * 23])
        with pytest.raises(UserError, match="--max_new_tokens is 0"):
            decode(model, params, PROMPTS, max_new_tokens=0)


def test_a_model_whose_logits_are_not_numbers_is_a_fault_and_no_endless_loop(model, params) -> None:
    broken = jax.tree.map(lambda leaf: leaf * jnp.nan, params)
    for decode in (ar, fill):
        with pytest.raises(FloatingPointError, match="not numbers"):
            decode(model, broken, PROMPTS)


@pytest.mark.parametrize("decode", [ar, fill])
def test_rows_in_parts_draw_what_they_draw_together(model, params, decode) -> None:
    together = decode(model, params, PROMPTS, sampling=SAMPLED)
    parts = [decode(model, params, [p], sampling=SAMPLED, first_row=i)[0] for i, p in enumerate(PROMPTS)]
    assert [out.token_ids for out in parts] == [out.token_ids for out in together]
