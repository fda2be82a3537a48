"""Texts with holes: how they are read, that nothing given changes, and what cannot be filled."""

import jax
import pytest

from jaxlm.config import ExecutionConfig, ModelConfig
from jaxlm.errors import UserError
from jaxlm.families import build_model
from jaxlm.generation import Sampling, Selection, diffusion, template

TOKENIZER, MASK, NEVER = 37, 38, 7
ROWS = [
    [1, 2, None, None, None, 3, 4, None, 5],
    [None, None, None, 6],
    [8, *[None] * 12, 9, 10, 11, None],
]


def encode(text: str) -> list[int]:
    return list(text.encode())


@pytest.fixture(scope="module")
def model():
    shape = dict(
        num_layers=2, hidden_size=16, intermediate_size=24, num_heads=2, num_kv_heads=1, head_dim=8, init_std=0.4
    )
    config = ModelConfig(family="llama3_canon", canon_set="AC", vocab_size=40, max_positions=32, **shape)
    return build_model(config, ExecutionConfig(dtype="float32"))


@pytest.fixture(scope="module")
def params(model):
    return model.init(jax.random.key(2))


def fill(model, params, rows, **changes):
    options = dict(sampling=Sampling(), tokenizer_size=TOKENIZER, mask_token_id=MASK, shift=False) | changes
    return diffusion.decode(model, params, rows, **options)


def test_a_hole_has_a_token_for_each_underscore_and_shorter_runs_are_text() -> None:
    assert template.read("a_b ___.", encode) == [*b"a_b ", None, None, None, *b"."]
    assert template.read("_____", encode) == [None] * 5
    assert template.read("__ ____ x ___", encode) == [*b"__ ", *[None] * 4, *b" x ", *[None] * 3]
    with pytest.raises(UserError, match="--template='snake_case__' has no hole, allowed: ___"):
        template.read("snake_case__", encode)


def test_only_the_holes_of_the_text_change() -> None:
    def decode(ids: list[int]) -> str:
        return "".join(f"<{i}>" for i in ids)

    assert template.join("a_b ___, ____.", range(7), decode) == "a_b <0><1><2>, <3><4><5><6>."


@pytest.mark.parametrize("selection", [Selection(), Selection(threshold=0.2), Selection("revise", revise_rate=0.5)])
def test_rows_give_the_same_alone_and_in_a_batch_and_fill_exactly_their_holes(model, params, selection) -> None:
    together = fill(model, params, ROWS, selection=selection, never=(NEVER,), block_size=2)
    for row, out in zip(ROWS, together, strict=True):
        assert len(out.token_ids) == row.count(None)
        assert max(out.token_ids) < TOKENIZER
        assert min(out.committed_at) >= 0
    for row in (0, 2):
        out, alone = (
            together[row],
            fill(model, params, [ROWS[row]], selection=selection, never=(NEVER,), block_size=2)[0],
        )
        assert (out.token_ids, out.committed_at, out.passes) == (alone.token_ids, alone.committed_at, alone.passes)


def test_a_hole_is_filled_with_regard_to_what_follows_it(model, params) -> None:
    given = [[1, 2, None, None, None, *after] for after in (range(3, 15), range(20, 32))]
    first, second = fill(model, params, given, steps=1)
    assert first.token_ids != second.token_ids


def test_holes_behind_a_prompt_are_its_canvas(model, params) -> None:
    row = [1, 2, 3, *[None] * 6]
    assert fill(model, params, [row])[0].token_ids == (
        fill(model, params, diffusion.canvas([[1, 2, 3]], 6, 32))[0].token_ids
    )


def test_an_id_that_is_never_to_be_written_is_not(model, params) -> None:
    free = fill(model, params, ROWS, sampling=Sampling(temperature=5.0))
    common = free[2].token_ids[0]
    without = fill(model, params, ROWS, sampling=Sampling(temperature=5.0), never=(common,))
    assert any(common in out.token_ids for out in free)
    assert not any(common in out.token_ids for out in without)


def test_the_penalty_counts_what_stands_behind_a_hole(model, params) -> None:
    """Nearly all ids stand behind the hole; under an endless penalty the hole gets one of the others."""
    row = [None, None, *(i for i in range(30))]
    out = fill(model, params, [row], sampling=Sampling(repetition_penalty=1e3))[0]
    assert min(out.token_ids) >= 30


def test_what_cannot_be_filled_is_refused(model, params) -> None:
    with pytest.raises(UserError, match="--template has 33 tokens, holes included, allowed: at most model.max_pos"):
        template.check([1] * 30 + [None] * 3, 32, 0, shift=False)
    with pytest.raises(UserError, match="reads in blocks of 4 from left to right, allowed: no text behind the block"):
        template.check([1, None, None, None, 2], 32, 4, shift=False)
    # The hole is token 4, which is read at position 3, from where token 5 is not seen.
    template.check([1, 2, 3, 4, None, 6], 32, 4, shift=False)
    with pytest.raises(UserError, match="reads in blocks of 4 from left to right"):
        template.check([1, 2, 3, 4, None, 6], 32, 4, shift=True)
    with pytest.raises(UserError, match="a prompt has no tokens or a template begins with its hole"):
        fill(model, params, ROWS, shift=True)


def test_a_model_of_blocks_fills_what_it_sees_as_a_whole(model, params) -> None:
    row = [1, 2, 3, 4, 5, None, 6, None, None, None, None]
    template.check(row, 32, 4, shift=False)
    out = fill(model, params, [row], trained_block_size=4)[0]
    assert max(out.committed_at[:2]) < min(out.committed_at[2:4]) <= max(out.committed_at[2:])
