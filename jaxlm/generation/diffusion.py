"""Masked-diffusion decoding: a canvas of masks, behind a prompt or inside a text, of which each pass writes a part.

What is written stays, unless `revise` masks it again. Which positions a pass writes: `generation.selection`.
Legend: B rows, S positions of a row, N positions of its canvas, V vocabulary, P entries of the plan.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxlm import randomness
from jaxlm.errors import UserError
from jaxlm.families import Model
from jaxlm.generation.result import Decoded, check_lengths, pad_right, timed
from jaxlm.generation.sampling import Sampling, draw, mark, penalise, restrict
from jaxlm.generation.schedule import Passes, block_by_block, plan
from jaxlm.generation.selection import Selection, first_ranks, log_probability, scores, written
from jaxlm.layers.structure import Structure

_ROUND = 16  # rows are compiled in multiples of this
Row = Sequence[int | None]  # given tokens, and None where one is to be written
Carry = dict[str, jax.Array]


def canvas(prompts: Sequence[Sequence[int]], max_new_tokens: int, max_positions: int) -> list[Row]:
    """Rows that go on from prompts; UserError where one does not fit into the model's context."""
    check_lengths(prompts, max_new_tokens, max_positions)
    return [[*prompt, *[None] * max_new_tokens] for prompt in prompts]


def decode(
    model: Model,
    params: dict[str, Any],
    rows: Sequence[Row],
    *,
    sampling: Sampling,
    tokenizer_size: int,
    mask_token_id: int,
    shift: bool,
    selection: Selection | None = None,
    end_of_text_id: int | None = None,
    never: tuple[int, ...] = (),
    trained_block_size: int = 0,
    steps: int = 0,
    block_size: int = 0,
    seed: int = 0,
) -> list[Decoded]:
    """Writes what is missing in each row; given tokens never change. Row r draws from its own key.

    Args:
      rows: each with something to write, and no longer than the model's context.
      shift: the model reads the logits that predict i at i-1.
      selection: which positions a pass writes; None: `Selection()`.
      end_of_text_id: a row ends as soon as it is written up to one; None: never.
      never: further ids that are not written.
      trained_block_size: block of a block-causal model, 0 for a bidirectional one.
      steps: passes over the whole canvas; 0: one for each token.
      block_size: fill the canvas in blocks from left to right; 0: all at once (or the model's own blocks).
    """
    selection = selection or Selection()
    canvases = [[at for at, token in enumerate(row) if token is None] for row in rows]
    if shift and any(positions[0] == 0 for positions in canvases):
        raise UserError(
            "a prompt has no tokens or a template begins with its hole, allowed: at least one token before what is new "
            "(the model reads each logit one position before)"
        )
    lengths_B = np.array([len(row) for row in rows], np.int32)
    width = -(-int(lengths_B.max()) // _ROUND) * _ROUND
    at_BN = np.full((len(rows), max(map(len, canvases))), width, np.int32)  # what lies outside is neither read nor set
    for at_N, positions in zip(at_BN, canvases, strict=True):
        at_N[: len(positions)] = positions
    fill = jax.jit(
        functools.partial(
            _fill,
            model=model,
            sampling=sampling,
            selection=selection,
            tokenizer_size=tokenizer_size,
            mask_token_id=mask_token_id,
            never=never,
            # A token that may still change ends nothing.
            end_of_text_id=-1 if end_of_text_id is None or selection.rule == "revise" else end_of_text_id,
            shift=shift,
            structure=Structure(trained_block_size),
        )
    )
    keys_B = jax.vmap(lambda row: randomness.key(seed, "sampling", row))(jnp.arange(len(rows)))
    given_BS = pad_right([[mask_token_id if token is None else token for token in row] for row in rows], width)
    passes = _planned(selection, canvases, steps, block_size, trained_block_size)
    table = np.stack([passes.start, passes.stop, passes.count, passes.revise])
    out, seconds = timed(fill, params, given_BS, lengths_B, at_BN, table, passes.per_row, keys_B)
    out = {name: np.asarray(value) for name, value in out.items()}
    decoded = []
    for row, positions in enumerate(canvases):
        tokens, committed = (out[name][row, : len(positions)].tolist() for name in ("tokens", "committed"))
        places = out["committed"][row] >= 0
        changed = float(np.mean(out["first"][row, places] != out["tokens"][row, places]))
        if end_of_text_id in tokens:
            length = tokens.index(end_of_text_id) + 1
            tokens, committed = tokens[:length], committed[:length]
        # Every pass costs the same, so the share of passes is the share of time.
        first = seconds * (committed[0] + 1) / int(out["passes"].max())
        decoded.append(Decoded(tokens, int(out["passes"][row]), 0, seconds, first, committed, changed))
    return decoded


def _planned(selection: Selection, canvases: Sequence[Sequence[int]], steps: int, block_size: int, grid: int) -> Passes:
    if not selection.adaptive:
        return plan(canvases, steps, block_size, grid, selection.revise_rate or 0.0)
    if steps:
        name = "--threshold" if selection.threshold is not None else "--entropy_bound"
        raise UserError(f"--steps and {name} are both given, allowed: one of them")
    return block_by_block(canvases, block_size, grid)


def _fill(
    params: Any,
    given_BS: jax.Array,
    lengths_B: jax.Array,
    at_BN: jax.Array,
    table_4PB: jax.Array,
    entries_B: jax.Array,
    keys_B: jax.Array,
    *,
    model: Model,
    sampling: Sampling,
    selection: Selection,
    tokenizer_size: int,
    mask_token_id: int,
    never: tuple[int, ...],
    end_of_text_id: int,
    shift: bool,
    structure: Structure,
) -> Carry:
    """Passes until every row is finished: `tokens`, `first` written ones, `committed` in which pass; `passes` [B].

    Each row walks through its entries of the plan, [start, stop, count, revise]: one a pass, or one a block.
    """
    B, S = given_BS.shape
    rows_B, index_N = jnp.arange(B), jnp.arange(at_BN.shape[1])
    rows_B1, index_S = rows_B[:, None], jnp.arange(S)
    # What lies behind a row is another document, so nothing that is real sees it.
    real_BS = index_S < lengths_B[:, None]
    known_BS = real_BS.at[rows_B1, at_BN].set(False, mode="drop")
    given_BV = mark(jnp.zeros((B, model.config.vocab_size), bool), given_BS, known_BS)

    def going(carry: Carry) -> jax.Array:
        return ~jnp.all(carry["done"])

    def one_pass(carry: Carry) -> Carry:
        i, tokens_BN, committed_BN = carry["i"], carry["tokens"], carry["committed"]
        start_B, stop_B, count_B, revise_B = table_4PB[:, carry["entry"], rows_B]
        tokens_BS = given_BS.at[rows_B1, at_BN].set(tokens_BN, mode="drop")
        x_BSD = model.hidden(params, tokens_BS, structure, real_BS.astype(jnp.int32))
        x_BND = jnp.take_along_axis(x_BSD, (at_BN - shift)[:, :, None], axis=1, mode="clip")
        logits_BNV = restrict(model.logits(params, x_BND), tokenizer_size, mask_token_id, *never)
        counted_BV = mark(given_BV, tokens_BN, committed_BN >= 0)
        logits_BNV = penalise(logits_BNV, counted_BV[:, None], sampling.repetition_penalty)
        pass_keys_B = jax.vmap(jax.random.fold_in, (0, None))(keys_B, i)
        choice_BN = draw(logits_BNV, pass_keys_B, sampling)
        block_BN = (index_N >= start_B[:, None]) & (index_N < stop_B[:, None]) & ~carry["done"][:, None]
        open_BN = block_BN & (committed_BN < 0)
        score_BN = scores(selection.rule, logits_BNV, choice_BN, pass_keys_B)
        write_BN = written(selection, score_BN, open_BN, count_B + revise_B)
        new_BN = jnp.where(write_BN, choice_BN, tokens_BN)
        now_BN = jnp.where(write_BN, i, committed_BN)
        if selection.rule == "revise":
            old_BN = block_BN & (committed_BN >= 0)
            doubt_BN = -log_probability(logits_BNV, tokens_BN)
            again_BN = old_BN & (first_ranks(doubt_BN, old_BN) < revise_B[:, None])
            new_BN, now_BN = jnp.where(again_BN, mask_token_id, new_BN), jnp.where(again_BN, -1, now_BN)
        stays = jnp.any(block_BN & (now_BN < 0), axis=1) if selection.adaptive else jnp.zeros(B, bool)
        entry_B = carry["entry"] + ~(stays | carry["done"])
        up_to_here_BN = jnp.cumprod(now_BN >= 0, axis=1) > 0
        ended_B = jnp.any(up_to_here_BN & (new_BN == end_of_text_id), axis=1)
        return {
            "i": i + 1,
            "tokens": new_BN,
            "first": jnp.where(write_BN & (carry["first"] < 0), choice_BN, carry["first"]),
            "committed": now_BN,
            "entry": entry_B,
            "passes": carry["passes"] + ~carry["done"],
            "done": carry["done"] | ended_B | (entry_B >= entries_B),
        }

    none_B, none_BN = jnp.zeros(B, jnp.int32), jnp.full(at_BN.shape, -1, jnp.int32)
    start = {"i": jnp.int32(0), "tokens": jnp.full_like(none_BN, mask_token_id), "first": none_BN}
    start |= {"committed": none_BN, "entry": none_B, "passes": none_B, "done": jnp.zeros(B, bool)}
    out = jax.lax.while_loop(going, one_pass, start)
    return {name: out[name] for name in ("tokens", "first", "committed", "passes")}
