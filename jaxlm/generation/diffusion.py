"""Masked-diffusion decoding: a canvas of masks behind the prompt, of which each pass writes the most confident tokens.

LLaDA's low-confidence remasking (arXiv 2502.09992, `generate.py`): confidence is the probability of the token that was
chosen; what is written stays. Legend: B rows, S positions of prompt and canvas, N canvas positions, V vocabulary.
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
from jaxlm.generation.schedule import plan
from jaxlm.layers.structure import Structure

_ROUND = 16  # canvas lengths are compiled in multiples of this


def decode(
    model: Model,
    params: dict[str, Any],
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    sampling: Sampling,
    tokenizer_size: int,
    mask_token_id: int,
    shift: bool,
    trained_block_size: int = 0,
    steps: int = 0,
    block_size: int = 0,
    seed: int = 0,
) -> list[Decoded]:
    """Fills a canvas of `max_new_tokens` behind each prompt.

    Args:
      shift: the model reads the logits that predict i at i-1.
      trained_block_size: block of a block-causal model, 0 for a bidirectional one.
      steps: passes over the whole canvas; 0: one for each token.
      block_size: fill the canvas in blocks from left to right; 0: all at once (or the model's own blocks).
    """
    check_lengths(prompts, max_new_tokens, model.config.max_positions)
    lengths_B = np.array([len(p) for p in prompts], np.int32)
    if shift and lengths_B.min() == 0:
        raise UserError(
            "a prompt has no tokens, allowed: at least one (the model reads each logit one position before)"
        )
    passes = plan(lengths_B.tolist(), max_new_tokens, steps or max_new_tokens, block_size, trained_block_size)
    width = -(-int(lengths_B.max() + max_new_tokens) // _ROUND) * _ROUND
    fill = jax.jit(
        functools.partial(
            _fill,
            model=model,
            sampling=sampling,
            tokenizer_size=tokenizer_size,
            mask_token_id=mask_token_id,
            shift=shift,
            structure=Structure(trained_block_size),
            canvas=max_new_tokens,
        )
    )
    keys_B = jax.vmap(lambda row: randomness.key(seed, "sampling", row))(jnp.arange(len(prompts)))
    schedule = (passes.start, passes.stop, passes.count)
    (tokens_BN, committed_BN), seconds = timed(fill, params, pad_right(prompts, width), lengths_B, schedule, keys_B)
    out = []
    for tokens, committed, own in zip(np.asarray(tokens_BN), np.asarray(committed_BN), passes.per_row, strict=True):
        # Every pass costs the same, so the share of passes is the share of time.
        first = seconds * (int(committed[0]) + 1) / len(passes.count)
        out.append(Decoded(tokens.tolist(), int(own), 0, seconds, first, committed.tolist()))
    return out


def _fill(
    params: Any,
    prompts_BS: jax.Array,
    lengths_B: jax.Array,
    schedule: tuple[jax.Array, jax.Array, jax.Array],
    keys_B: jax.Array,
    *,
    model: Model,
    sampling: Sampling,
    tokenizer_size: int,
    mask_token_id: int,
    shift: bool,
    structure: Structure,
    canvas: int,
) -> tuple[jax.Array, jax.Array]:
    """Runs the schedule: tokens and the pass that wrote each, int32 [B, N] both."""
    B, S = prompts_BS.shape
    index_S, index_N = jnp.arange(S), jnp.arange(canvas)
    at_BN = lengths_B[:, None] + index_N
    # What lies behind a row's canvas is another document, so nothing that is real sees it.
    segments_BS = (index_S < lengths_B[:, None] + canvas).astype(jnp.int32)
    counted_BV = mark(jnp.zeros((B, model.config.vocab_size), bool), prompts_BS, index_S < lengths_B[:, None])
    rows = jnp.arange(B)[:, None]

    def one_pass(i: jax.Array, carry: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        tokens_BN, committed_BN, counted_BV = carry
        start_B, stop_B, count_B = (part[i] for part in schedule)
        x_BSD = model.hidden(params, prompts_BS.at[rows, at_BN].set(tokens_BN), structure, segments_BS)
        x_BND = jnp.take_along_axis(x_BSD, (at_BN - shift)[:, :, None], axis=1)
        logits_BNV = restrict(model.logits(params, x_BND), tokenizer_size, mask_token_id)
        logits_BNV = penalise(logits_BNV, counted_BV[:, None], sampling.repetition_penalty)
        choice_BN = draw(logits_BNV, jax.vmap(jax.random.fold_in, (0, None))(keys_B, i), sampling)
        log_probs_BNV = jax.nn.log_softmax(logits_BNV, axis=-1)
        confidence_BN = jnp.take_along_axis(log_probs_BNV, choice_BN[:, :, None], axis=-1)[:, :, 0]
        open_BN = (committed_BN < 0) & (index_N >= start_B[:, None]) & (index_N < stop_B[:, None])
        # A stable sort gives equal confidences to the lowest position, here and in the exported PyTorch code.
        order_BN = jnp.argsort(jnp.where(open_BN, -confidence_BN, jnp.inf), axis=1, stable=True)
        rank_BN = jnp.zeros_like(order_BN).at[rows, order_BN].set(index_N)
        write_BN = open_BN & (rank_BN < count_B[:, None])
        return (
            jnp.where(write_BN, choice_BN, tokens_BN),
            jnp.where(write_BN, i, committed_BN),
            mark(counted_BV, choice_BN, write_BN),
        )

    masks_BN = jnp.full((B, canvas), mask_token_id, jnp.int32)
    start = (masks_BN, jnp.full((B, canvas), -1, jnp.int32), counted_BV)
    tokens_BN, committed_BN, _ = jax.lax.fori_loop(0, schedule[0].shape[0], one_pass, start)
    return tokens_BN, committed_BN
