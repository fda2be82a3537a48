"""Left to right with a cache: one forward for the prompts, then one jitted loop.

Legend: B rows, T prompt positions, N new tokens, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxlm import randomness
from jaxlm.errors import UserError
from jaxlm.families import Model
from jaxlm.generation.result import Decoded, Timeline, bucket, check_lengths, num_bytes, pad_right, round_up
from jaxlm.generation.sampling import Sampling, draw, mark, penalise, restrict
from jaxlm.layers.structure import Structure

CAUSAL = Structure(block_size=1)


def decode(
    model: Model,
    params: dict[str, Any],
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    sampling: Sampling,
    tokenizer_size: int,
    end_of_text_id: int | None,
    mask_token_id: int | None = None,
    seed: int = 0,
    first_row: int = 0,
) -> list[Decoded]:
    """Continues each prompt; row r draws from a key of its own, whatever the other rows are.

    Args:
      prompts: token ids, each at least one.
      end_of_text_id: a row stops at it; None: never.
      first_row: r of the first prompt, where the prompts of a larger batch are decoded in parts.

    Raises FloatingPointError for a model whose logits are not numbers.
    """
    check_lengths(prompts, max_new_tokens, model.config.max_positions)
    if not all(prompts):
        raise UserError(
            "a prompt has no tokens, allowed: at least one (write <|endoftext|> for the start of a document)"
        )
    lengths_B = np.array([len(p) for p in prompts], np.int32)
    width = bucket(int(lengths_B.max()))
    static: dict[str, Any] = dict(
        model=model, sampling=sampling, tokenizer_size=tokenizer_size, mask_token_id=mask_token_id
    )
    keys_B = jax.vmap(lambda row: randomness.key(seed, "sampling", row))(first_row + jnp.arange(len(prompts)))
    timeline, size = Timeline(), max(width, round_up(int(lengths_B.max()) + max_new_tokens, 32))
    read = (params, pad_right(prompts, width), lengths_B, keys_B)
    state = timeline.run(_prefill, *read, passes=1, size=size, **static)
    first = timeline.seconds
    stop = -1 if end_of_text_id is None else end_of_text_id
    limits = dict(capacity=bucket(max_new_tokens), end_of_text_id=stop)
    out = timeline.run(_loop, params, state, np.int32(max_new_tokens), keys_B, **limits, **static)
    if bool(out["broken"]):
        raise FloatingPointError("the logits of the model are not numbers (NaN): nothing can be chosen")
    return [
        Decoded(
            token_ids=tokens[:n].tolist(),
            passes=int(n) - 1,
            cache_passes=1,
            seconds=timeline.seconds,
            seconds_to_first_token=first,
            seconds_to_first_pass=first,
            cache_bytes=num_bytes(state["cache"]),
            logits_bytes=4 * len(prompts) * model.config.vocab_size,
            committed_at=list(range(n)),
        )
        for tokens, n in zip(np.asarray(out["tokens"]), np.asarray(out["count"]), strict=True)
    ]


def _prefill(
    params: Any,
    tokens_BT: jax.Array,
    lengths_B: jax.Array,
    keys_B: jax.Array,
    *,
    model: Model,
    size: int,
    **choice: Any,
) -> dict[str, Any]:
    """Reads the prompts, which are padded on the right, and chooses the first new token of each."""
    B = tokens_BT.shape[0]
    x_BTD, cache = model.extend(params, tokens_BT, model.init_cache(B, size), CAUSAL, lengths_B)
    real_BT = jnp.arange(tokens_BT.shape[1]) < lengths_B[:, None]
    counted_BV = mark(jnp.zeros((B, model.config.vocab_size), bool), tokens_BT, real_BT)
    last_BD = jnp.take_along_axis(x_BTD, lengths_B[:, None, None] - 1, axis=1)[:, 0]
    token_B, broken = _choose(model, params, last_BD, counted_BV, keys_B, 0, **choice)
    return {"token": token_B, "cache": model.commit(cache, lengths_B), "counted": counted_BV, "broken": broken}


def _loop(
    params: Any,
    state: dict[str, Any],
    max_new: jax.Array,
    keys_B: jax.Array,
    *,
    model: Model,
    capacity: int,
    end_of_text_id: int,
    **choice: Any,
) -> dict[str, Any]:
    """One token a pass until every row has ended or has `max_new` tokens."""
    B = state["token"].shape[0]
    one_B = jnp.ones(B, jnp.int32)

    def going(carry: dict[str, Any]) -> jax.Array:
        return (carry["i"] < max_new) & ~jnp.all(carry["done"])

    def step(carry: dict[str, Any]) -> dict[str, Any]:
        counted_BV = mark(carry["counted"], carry["token"][:, None], one_B[:, None] > 0)
        x_B1D, cache = model.extend(params, carry["token"][:, None], carry["cache"], CAUSAL, one_B)
        token_B, broken = _choose(model, params, x_B1D[:, 0], counted_BV, keys_B, carry["i"], **choice)
        return {
            "i": carry["i"] + 1,
            "token": token_B,
            "tokens": carry["tokens"].at[:, carry["i"]].set(token_B),
            "count": carry["count"] + ~carry["done"],
            "done": carry["done"] | (token_B == end_of_text_id),
            "cache": model.commit(cache, one_B),
            "counted": counted_BV,
            "broken": carry["broken"] | broken,
        }

    tokens_BN = jnp.zeros((B, capacity), jnp.int32).at[:, 0].set(state["token"])
    start = {"i": jnp.int32(1), "tokens": tokens_BN, "count": one_B, "done": state["token"] == end_of_text_id, **state}
    out = jax.lax.while_loop(going, step, start)
    return {name: out[name] for name in ("tokens", "count", "broken")}


def _choose(
    model: Model,
    params: Any,
    x_BD: jax.Array,
    counted_BV: jax.Array,
    keys_B: jax.Array,
    i: int | jax.Array,
    *,
    sampling: Sampling,
    tokenizer_size: int,
    mask_token_id: int | None,
) -> tuple[jax.Array, jax.Array]:
    """The next token of each row, and whether a logit was NaN, so that nothing could be chosen."""
    logits_BV = restrict(model.logits(params, x_BD), tokenizer_size, mask_token_id)
    logits_BV = penalise(logits_BV, counted_BV, sampling.repetition_penalty)
    token_B = draw(logits_BV, jax.vmap(jax.random.fold_in, (0, None))(keys_B, i), sampling)
    return token_B, jnp.any(jnp.isnan(logits_BV))
