"""Each rule against a plain loop over one row, one pass, one position at a time."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlm.config import ExecutionConfig, ModelConfig
from jaxlm.errors import UserError
from jaxlm.families import build_model
from jaxlm.generation import Sampling, Selection, diffusion
from jaxlm.layers.structure import Structure

V, TOKENIZER, MASK, NEW = 40, 37, 38, 12
PROMPTS = [[1, 2, 3], [5], [7, 8, 9, 10, 11, 12, 13]]
EVERY = [
    Selection(),
    Selection("random"),
    Selection("margin"),
    Selection("entropy"),
    Selection("revise", revise_rate=0.4),
    Selection(threshold=0.2),
    Selection("margin", threshold=0.15),
    Selection(entropy_bound=4.0),
]


@pytest.fixture(scope="module")
def model():
    shape = dict(
        num_layers=2, hidden_size=16, intermediate_size=24, num_heads=2, num_kv_heads=1, head_dim=8, init_std=0.4
    )
    config = ModelConfig(family="llama3_canon", canon_set="AC", vocab_size=V, max_positions=32, **shape)
    return build_model(config, ExecutionConfig(dtype="float32"))


@pytest.fixture(scope="module")
def params(model):
    return model.init(jax.random.key(2))


def fill(model, params, prompts, selection, new=NEW, **changes):
    options = dict(sampling=Sampling(), tokenizer_size=TOKENIZER, mask_token_id=MASK, shift=False) | changes
    return diffusion.decode(model, params, diffusion.canvas(prompts, new, 32), selection=selection, **options)


@pytest.fixture(scope="module")
def look(model, params):
    """Probabilities [N, V] of each place of a canvas behind a prompt, in fp64."""
    forward = jax.jit(lambda tokens: model.logits(params, model.hidden(params, tokens, Structure(0))))

    def probabilities(prompt, canvas, penalty):
        logits = np.array(forward(jnp.array([prompt + canvas]))[0, len(prompt) :], np.float64)
        for token in {*prompt, *canvas} - {MASK}:
            logits[:, token] *= np.where(logits[:, token] > 0, 1 / penalty, penalty)
        logits[:, TOKENIZER:] = -np.inf
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        return odds / odds.sum(axis=1, keepdims=True)

    return probabilities


def entropy(p):
    return -sum(x * np.log(x) for x in p if x > 0)


def preference(rule, p):
    if rule == "margin":
        return np.sort(p)[-1] - np.sort(p)[-2]
    return -entropy(p) if rule == "entropy" else p.max()


def plain(look, prompt, selection, size, passes=(), penalty=1.0):
    """The canvas, and in which pass each place was written for the last time; `passes` of each block."""
    canvas, at, number, first = [MASK] * NEW, [-1] * NEW, 0, {}
    for lo in range(0, NEW, size):
        block = range(lo, min(lo + size, NEW))
        step = 0
        while any(canvas[n] == MASK for n in block):
            p = look(prompt, canvas, penalty)
            order = sorted((n for n in block if canvas[n] == MASK), key=lambda n: -preference(selection.rule, p[n]))
            write, again = order[:1], []
            if selection.threshold is not None:
                write += [n for n in order[1:] if preference(selection.rule, p[n]) >= selection.threshold]
            elif selection.entropy_bound is not None:
                while len(write) < len(order) and sum(entropy(p[n]) for n in write) <= selection.entropy_bound:
                    write.append(order[len(write)])
            else:
                count = len(block) // passes[lo // size] + (step < len(block) % passes[lo // size])
                old = sorted((n for n in block if canvas[n] != MASK), key=lambda n: p[n, canvas[n]])
                again = old[: min(int((selection.revise_rate or 0) * len(old)), len(order) - count)]
                write = order[: count + len(again)]
            for n in write:
                canvas[n], at[n] = int(p[n].argmax()), number
                first.setdefault(n, canvas[n])
            for n in again:
                canvas[n], at[n] = MASK, -1
            step, number = step + 1, number + 1
    return canvas, at, number, np.mean([first[n] != canvas[n] for n in range(NEW)])


@pytest.mark.parametrize("size", [12, 5])
@pytest.mark.parametrize("selection", [s for s in EVERY if s.rule != "random"], ids=str)
def test_a_rule_picks_what_a_plain_loop_picks(model, params, look, selection, size) -> None:
    shares = (4,) if size == NEW else (3, 2, 1)  # six passes over blocks of 5, 5 and 2
    steps = {} if selection.adaptive else {"steps": sum(shares)}
    out = fill(model, params, PROMPTS[2:], selection, block_size=size, **steps)[0]
    canvas, at, passes, changed = plain(look, PROMPTS[2], selection, size, shares)
    assert (out.token_ids, out.committed_at, out.passes) == (canvas, at, passes)
    assert out.changed_share == pytest.approx(changed)
    if selection.adaptive:
        assert -(-NEW // size) < out.passes < NEW  # or it would decide nothing here


@pytest.mark.parametrize("selection", EVERY, ids=str)
def test_a_row_gives_the_same_alone_and_in_a_batch(model, params, selection) -> None:
    together = fill(model, params, PROMPTS, selection, block_size=5, shift=True)
    for row in (0,) if selection.rule == "random" else (0, 2):  # rows draw by their number
        alone = fill(model, params, [PROMPTS[row]], selection, block_size=5, shift=True)[0]
        for name in ("token_ids", "committed_at", "passes", "changed_share"):
            assert getattr(together[row], name) == getattr(alone, name), name
    for out in together:
        assert max(out.token_ids) < TOKENIZER
        assert min(out.committed_at) >= 0


def test_a_random_order_is_the_seeds_and_not_the_models(model, params) -> None:
    one = fill(model, params, PROMPTS, Selection("random"), steps=6)
    other = fill(model, model.init(jax.random.key(9)), PROMPTS, Selection("random"), steps=6)
    again = fill(model, params, PROMPTS, Selection("random"), steps=6, seed=1)
    assert [out.committed_at for out in one] == [out.committed_at for out in other]
    assert [out.token_ids for out in one] != [out.token_ids for out in other]
    assert len({tuple(out.committed_at) for out in one + again}) == 6


def test_a_random_order_is_even(model, params) -> None:
    """The pass in which a place is written has the mean of 0..11 at every place, over 192 rows."""
    passes = [out.committed_at for out in fill(model, params, [[1]] * 192, Selection("random"))]
    spread = np.sqrt((NEW**2 - 1) / 12 / len(passes))
    np.testing.assert_allclose(np.mean(passes, axis=0), (NEW - 1) / 2, atol=4 * spread)


@pytest.mark.parametrize("rule", ["low_confidence", "margin"])
def test_a_threshold_above_1_is_one_token_a_pass_and_of_0_one_pass_a_block(model, params, rule) -> None:
    slow = fill(model, params, PROMPTS, Selection(rule, threshold=1.1), block_size=4)
    steady = fill(model, params, PROMPTS, Selection(rule), block_size=4)
    for out, other in zip(slow, steady, strict=True):
        assert (out.token_ids, out.committed_at, out.passes) == (other.token_ids, other.committed_at, NEW)
    for out in fill(model, params, PROMPTS, Selection(rule, threshold=0.0), block_size=5):
        assert (out.passes, out.committed_at) == (3, [0] * 5 + [1] * 5 + [2] * 2)


def test_an_entropy_bound_of_0_is_one_token_a_pass_and_a_large_one_one_pass(model, params) -> None:
    slow = fill(model, params, PROMPTS, Selection(entropy_bound=0.0))
    steady = fill(model, params, PROMPTS, Selection("entropy"))
    assert [out.committed_at for out in slow] == [out.committed_at for out in steady]
    assert [out.passes for out in fill(model, params, PROMPTS, Selection(entropy_bound=1e9))] == [1, 1, 1]


def test_rows_that_are_done_do_not_count_the_passes_of_others(model, params) -> None:
    together = fill(model, params, PROMPTS, Selection(threshold=0.5))
    assert len({out.passes for out in together}) > 1
    assert [out.passes for out in together] == [max(out.committed_at) + 1 for out in together]


def test_revision_at_rate_0_is_low_confidence(model, params) -> None:
    sampled = Sampling(temperature=0.9, top_k=9, repetition_penalty=1.4)
    for options in ({"steps": 5}, {"block_size": 5, "sampling": sampled}):
        revised = fill(model, params, PROMPTS, Selection("revise", revise_rate=0.0), **options)
        for out, other in zip(revised, fill(model, params, PROMPTS, Selection(), **options), strict=True):
            assert (out.token_ids, out.committed_at, out.passes) == (other.token_ids, other.committed_at, other.passes)
            assert out.changed_share == other.changed_share == 0


def test_revision_changes_tokens_and_fills_everything_in_the_planned_passes(model, params) -> None:
    rows = fill(model, params, PROMPTS, Selection("revise", revise_rate=0.5), steps=8)
    assert any(out.changed_share > 0 for out in rows)
    for out in rows:
        assert out.passes == 8
        assert (len(out.token_ids), max(out.token_ids) < TOKENIZER, min(out.committed_at) >= 0) == (NEW, True, True)
        assert 0 <= out.changed_share <= 1


def test_what_is_masked_again_is_no_longer_counted_by_the_penalty(model, params, look) -> None:
    selection, sampling = Selection("revise", revise_rate=0.5), Sampling(repetition_penalty=3.0)
    out = fill(model, params, PROMPTS[2:], selection, sampling=sampling, steps=8)[0]
    canvas, at, passes, changed = plain(look, PROMPTS[2], selection, NEW, (8,), penalty=3.0)
    assert (out.token_ids, out.committed_at, out.passes) == (canvas, at, passes)
    assert out.changed_share == pytest.approx(changed)


@pytest.mark.parametrize("selection", [EVERY[0], *EVERY[4:6]], ids=str)
def test_a_row_ends_with_its_end_of_text(model, params, selection) -> None:
    free = fill(model, params, PROMPTS, selection, block_size=2)
    ends = free[0].token_ids[2]
    cut = fill(model, params, PROMPTS, selection, block_size=2, end_of_text_id=ends)
    for out, whole in zip(cut, free, strict=True):
        ids = whole.token_ids
        length = ids.index(ends) + 1 if ends in ids else NEW
        assert (out.token_ids, out.committed_at) == (ids[:length], whole.committed_at[:length])
    if selection.rule == "revise":  # a token that may still change ends nothing
        assert cut[0].passes == free[0].passes
    else:
        assert cut[0].passes <= 4 < free[0].passes


def test_no_pass_is_run_once_every_row_has_ended(model, params, monkeypatch) -> None:
    counted = []
    hidden = type(model).hidden

    def watched(self, *args):
        jax.debug.callback(lambda: counted.append(1))
        return hidden(self, *args)

    monkeypatch.setattr(type(model), "hidden", watched)
    out = functools.partial(fill, model, params, PROMPTS[:1], Selection(), block_size=2)
    free = out()[0]
    jax.effects_barrier()
    assert len(counted) == free.passes == NEW
    counted.clear()
    ended = out(end_of_text_id=free.token_ids[2])[0]
    jax.effects_barrier()
    assert len(counted) == ended.passes <= 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"remasking": "best"}, "--remasking is 'best', allowed: low_confidence, random, margin, entropy, revise"),
        ({"threshold": -0.1}, "--threshold is -0.1, allowed: at least 0"),
        ({"threshold": float("nan")}, "--threshold is nan"),
        ({"entropy_bound": -1.0}, "--entropy_bound is -1.0, allowed: at least 0"),
        ({"remasking": "revise", "revise_rate": 1.5}, "--revise_rate is 1.5, allowed: from 0 to 1"),
        ({"threshold": 0.9, "entropy_bound": 1.0}, "--threshold and --entropy_bound are both given"),
        ({"remasking": "random", "threshold": 0.9}, "--threshold with --remasking=random, allowed: low_confidence or"),
        ({"remasking": "margin", "entropy_bound": 1.0}, "--entropy_bound with --remasking=margin, allowed: entropy"),
        ({"remasking": "revise"}, "--remasking=revise with --revise_rate=None, allowed: revise with a rate"),
        ({"revise_rate": 0.1}, "--remasking=low_confidence with --revise_rate=0.1, allowed: revise with a rate"),
    ],
    ids=str,
)
def test_refusals(options, message) -> None:
    with pytest.raises(UserError, match=message) as caught:
        Selection(**options)
    assert "\n" not in str(caught.value)
