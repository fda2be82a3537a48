"""Masked-diffusion decoding: a canvas of masks, behind a prompt or inside a text, of which each pass writes a part.

The blocks of a canvas are filled one after another, in all rows at a time. What is written stays, unless `revise` masks
it again. Which positions a pass writes: `generation.selection`; what runs on the device: `generation.denoiser`.
Legend: B rows, S positions of a row, N positions of its canvas.
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
from jaxlm.generation.denoiser import Arrays, Denoiser
from jaxlm.generation.result import Decoded, Timeline, check_lengths, num_bytes, pad_right, round_up
from jaxlm.generation.sampling import Sampling
from jaxlm.generation.schedule import Round, block_by_block, plan, rounds
from jaxlm.generation.selection import Selection
from jaxlm.layers.reading import Cache
from jaxlm.layers.structure import Structure

CACHES = ("none", "block", "prefix")
_ROUND = 16  # rows are compiled in multiples of this
# One object a setting: only then are its methods the same functions, which are not compiled again.
_denoiser = functools.lru_cache(maxsize=32)(Denoiser)
Row = Sequence[int | None]  # given tokens, and None where one is to be written


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
    cache: str | None = None,
    seed: int = 0,
    first_row: int = 0,
) -> list[Decoded]:
    """Writes what is missing in each row; given tokens never change. Row r draws from a key of its own.

    Args:
      rows: each with something to write, and no longer than the model's context.
      shift: the model reads the logits that predict i at i-1.
      selection: which positions a pass writes; None: `Selection()`.
      end_of_text_id: a row ends as soon as it is written up to one; None: never.
      never: further ids that are not written.
      trained_block_size: block of a block-causal model, 0 for a bidirectional one.
      steps: passes over the whole canvas; 0: one for each token.
      block_size: fill the canvas in blocks from left to right; 0: all at once (or the model's own blocks).
      cache: `none`: each pass sees the whole rows; `block`: only the present block, behind the keys and values of the
        finished ones, which is exact for a block-causal model; `prefix`: the present block and what follows, behind
        keys and values of what precedes as they were when the block was begun, an approximation for a bidirectional
        model (Fast-dLLM, arXiv 2505.22618). None: `block` where it is exact, else `none`.
      first_row: r of the first row, where the rows of a larger batch are decoded in parts.

    Raises FloatingPointError for a model whose logits are not numbers.
    """
    selection = selection or Selection()
    cache = _checked_cache(cache, trained_block_size)
    canvases = [[at for at, token in enumerate(row) if token is None] for row in rows]
    if shift and any(positions[0] == 0 for positions in canvases):
        raise UserError(
            "a prompt has no tokens or a template begins with its hole, allowed: at least one token before what is new "
            "(the model reads each logit one position before)"
        )
    # Blocks lie over the positions at which tokens are read, in training as here.
    read_at = [[at - shift for at in positions] for positions in canvases]
    blocks = _planned(selection, read_at, steps, block_size, trained_block_size)
    lengths_B = np.array([len(row) for row in rows], np.int32)
    width = round_up(int(lengths_B.max()), _ROUND)
    at_BN = np.full((len(rows), max(map(len, canvases))), width, np.int32)  # what lies outside is neither read nor set
    for at_N, positions in zip(at_BN, canvases, strict=True):
        at_N[: len(positions)] = positions
    denoiser = _denoiser(
        model=model,
        sampling=sampling,
        selection=selection,
        tokenizer_size=tokenizer_size,
        mask_token_id=mask_token_id,
        never=never,
        # A token that may still change ends nothing.
        end_of_text_id=-1 if end_of_text_id is None or selection.rule == "revise" else end_of_text_id,
        shift=int(shift),
        structure=Structure(trained_block_size),
        width=max(int((block.stop - block.start).max()) for block in blocks),
    )
    arrays: Arrays = {
        "given": jnp.asarray(pad_right([[mask_token_id if t is None else t for t in row] for row in rows], width)),
        "lengths": jnp.asarray(lengths_B),
        "at": jnp.asarray(at_BN),
        "keys": jax.vmap(lambda row: randomness.key(seed, "sampling", row))(first_row + jnp.arange(len(rows))),
    }
    timeline = Timeline()
    state, stores_B, kept = _fill(denoiser, params, arrays, blocks, cache, timeline)
    if bool(state["broken"]):
        raise FloatingPointError("the logits of the model are not numbers (NaN): nothing can be chosen")
    tokens_BN, first_BN, committed_BN = (np.asarray(state[name]) for name in ("tokens", "first", "committed"))
    decoded = []
    for row, positions in enumerate(canvases):
        tokens, committed = (out[row, : len(positions)].tolist() for out in (tokens_BN, committed_BN))
        places = committed_BN[row] >= 0
        changed = float(np.mean(first_BN[row, places] != tokens_BN[row, places]))
        if end_of_text_id in tokens:
            length = tokens.index(end_of_text_id) + 1
            tokens, committed = tokens[:length], committed[:length]
        decoded.append(
            Decoded(
                token_ids=tokens,
                passes=int(state["passes"][row]),
                cache_passes=int(stores_B[row]),
                seconds=timeline.seconds,
                seconds_to_first_token=timeline.until(committed[0] + 1),
                seconds_to_first_pass=timeline.until(1),
                cache_bytes=num_bytes(kept),
                logits_bytes=4 * len(rows) * denoiser.width * model.config.vocab_size,
                committed_at=committed,
                changed_share=changed,
            )
        )
    return decoded


def _fill(
    denoiser: Denoiser, params: Any, rows: Arrays, blocks: Sequence[Round], cache: str, timeline: Timeline
) -> tuple[Arrays, np.ndarray, Cache | None]:
    """Calls the denoiser block after block.

    Returns the last state, of each row the forwards that only filled a cache, and the cache.
    """
    B, S = rows["given"].shape
    grid, lengths_B = denoiser.structure.block_size, np.asarray(rows["lengths"])
    begins = [_first_read(denoiser, rows, block) for block in blocks]
    windows = [0] * len(blocks)  # positions behind the cache that a pass sees
    kept, room = None, 0
    if cache == "block":
        begins = [begin_B // grid * grid for begin_B in begins]
        windows = [grid] * len(blocks)
        kept = denoiser.model.init_cache(B, round_up(S, grid))
    if cache == "prefix":
        pairs = zip(blocks, begins, strict=True)
        longest = [int(np.where(block.stop > 0, lengths_B - begin_B, 0).max()) for block, begin_B in pairs]
        windows = [round_up(size, _ROUND) for size in longest]
        room = max(S, *(int(begin_B.max()) + size for begin_B, size in zip(begins, windows, strict=True)))
    state, stores_B, stored_B = denoiser.start(rows), np.zeros(B, np.int32), np.zeros(B, np.int32)
    for block, begin_B, window in zip(blocks, begins, windows, strict=True):
        if bool(state["ended"].all()):
            break
        arrays: Arrays = {name: jnp.asarray(getattr(block, name)) for name in ("start", "stop", "count", "revise")}
        done = 0
        while cache == "block" and (stored_B < begin_B).any():
            size = grid if stored_B.any() else int(begin_B.max())  # the prompts at once
            kept, took_B = timeline.run(denoiser.store, params, rows, state, kept, begin_B, size=size)
            stored_B = np.minimum(stored_B + size, np.maximum(begin_B, stored_B))
            stores_B += np.asarray(took_B)
        if cache == "prefix":
            looked = (params, rows, state, arrays, begin_B)
            state, kept = timeline.run(denoiser.see_all, *looked, passes=1, cache_size=room)
            done = 1
        before_B = np.asarray(state["passes"])
        seen = (params, rows, state, arrays, kept, np.int32(done))
        state, kept = timeline.run(denoiser.passes, *seen, size=window)
        timeline.took(int((np.asarray(state["passes"]) - before_B).max()))
    return state, stores_B, kept


def _first_read(denoiser: Denoiser, rows: Arrays, block: Round) -> np.ndarray:
    """The position of each row at which the block's first token is read, 0 in a row that has no such block."""
    at_BN = np.asarray(rows["at"])
    return np.where(block.stop > 0, at_BN[np.arange(len(at_BN)), block.start] - denoiser.shift, 0)


def _planned(
    selection: Selection, read_at: Sequence[Sequence[int]], steps: int, block_size: int, grid: int
) -> list[Round]:
    if not selection.adaptive:
        return rounds(plan(read_at, steps, block_size, grid, selection.revise_rate or 0.0))
    if steps:
        name = "--threshold" if selection.threshold is not None else "--entropy_bound"
        raise UserError(f"--steps and {name} are both given, allowed: one of them")
    return rounds(block_by_block(read_at, block_size, grid))


def _checked_cache(cache: str | None, trained_block_size: int) -> str:
    exact = "block" if trained_block_size else "none"
    if cache not in (None, *CACHES):
        raise UserError(f"--cache is {cache!r}, allowed: {', '.join(CACHES)}")
    if cache == "block" and not trained_block_size:
        raise UserError(
            "--cache=block of a model that sees the whole text: what follows would change what is kept, allowed: none, "
            "prefix (an approximation), or a model whose conversion ends in blocks (configs/dhara_block.py)"
        )
    if cache == "prefix" and trained_block_size:
        raise UserError(
            f"--cache=prefix of a model that reads in blocks of {trained_block_size}, allowed: none or block, which is "
            "exact for it"
        )
    return cache or exact
