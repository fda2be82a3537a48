"""What runs on the device when a canvas is filled: forwards that look at a block, and the pass that writes in it.

Legend: B rows, S positions of a row, N positions of its canvas, w positions of a block of it, W positions of a window
behind a cache, V vocabulary, P passes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from jaxlm.families import Model
from jaxlm.generation.sampling import Sampling, draw, mark, penalise, restrict
from jaxlm.generation.selection import Selection, first_ranks, log_probability, scores, written
from jaxlm.layers.reading import Cache
from jaxlm.layers.structure import Structure

Arrays = dict[str, jax.Array]


@dataclass(frozen=True)
class Denoiser:
    """Fills canvases, one block of every row at a time; what is static while it does.

    Arguments of its methods:

    * `rows`: `given` int [B, S] tokens, the mask where one is missing; `lengths` int [B]; `at` int [B, N] rising
      positions of the canvas, behind the row where a row has fewer; `keys` [B];
    * `block`: `start`, `stop` int [B] places in the canvas; `count`, `revise` int [P, B], see `schedule.Round`;
    * `state`: `tokens` and `first` written ones int [B, N], `committed` in which pass of the row, -1 where nothing is
      written; `passes` int [B]; `ended` bool [B], rows that go no further; `broken` bool, whether a logit was NaN.
    """

    model: Model
    sampling: Sampling
    selection: Selection
    tokenizer_size: int
    mask_token_id: int
    never: tuple[int, ...]
    end_of_text_id: int
    shift: int
    structure: Structure
    width: int

    def start(self, rows: Arrays) -> Arrays:
        """Nothing is written."""
        none_BN = jnp.full(rows["at"].shape, -1, jnp.int32)
        none_B = jnp.zeros(len(none_BN), jnp.int32)
        state = {"tokens": jnp.full_like(none_BN, self.mask_token_id), "first": none_BN, "committed": none_BN}
        return state | {"passes": none_B, "ended": none_B > 0, "broken": jnp.zeros((), bool)}

    def store(
        self, params: Any, rows: Arrays, state: Arrays, cache: Cache, until_B: jax.Array, *, size: int
    ) -> tuple[Cache, jax.Array]:
        """Takes what is finished up to `until_B`, at most `size` more positions, into the cache; says in which rows.

        Exact for a model that reads in blocks, where `until_B` begins one: no position sees what follows its block.
        """
        new_B = jnp.where(state["ended"], 0, jnp.clip(until_B - cache["length"], 0, size))
        tokens_BW = self._window(rows, self._tokens(rows, state), cache["length"], size)
        _, cache = self.model.extend(params, tokens_BW, cache, self.structure, new_B)
        return self.model.commit(cache, new_B), new_B > 0

    def see_all(
        self, params: Any, rows: Arrays, state: Arrays, block: Arrays, until_B: jax.Array, *, cache_size: int
    ) -> tuple[Arrays, Cache]:
        """One pass over the whole rows, of which the first `until_B` positions stay in a fresh cache.

        Where the model sees what follows, those keys and values belong to the canvas as it was in this pass: an
        approximation from the next one on (Fast-dLLM, arXiv 2505.22618).
        """
        tokens_BS = self._tokens(rows, state)
        cache = self.model.init_cache(len(tokens_BS), cache_size)
        x_BSD, cache = self.model.extend(params, tokens_BS, cache, self.structure, rows["lengths"])
        x_BwD = self._take(x_BSD, rows, block, 0)
        return self._write(params, x_BwD, rows, state, block, 0), self.model.commit(cache, until_B)

    def passes(
        self,
        params: Any,
        rows: Arrays,
        state: Arrays,
        block: Arrays,
        cache: Cache | None,
        done: int | jax.Array,
        *,
        size: int,
    ) -> tuple[Arrays, Cache | None]:
        """Passes until the block is written in every row, of which `done` have been.

        Without a cache each sees the whole rows; with one, the `size` positions behind it.
        """

        def going(carry: tuple[Arrays, Cache | None, jax.Array]) -> jax.Array:
            # Where nothing can be chosen, nothing would ever be written.
            return jnp.any(self._open(rows, carry[0], block)) & ~carry[0]["broken"]

        def one(carry: tuple[Arrays, Cache | None, jax.Array]) -> tuple[Arrays, Cache | None, jax.Array]:
            state, cache, i = carry
            tokens_BS = self._tokens(rows, state)
            if cache is None:
                # What lies behind a row is another document, so nothing that is real sees it.
                real_BS = jnp.arange(tokens_BS.shape[1]) < rows["lengths"][:, None]
                x_BSD = self.model.hidden(params, tokens_BS, self.structure, real_BS.astype(jnp.int32))
                x_BwD = self._take(x_BSD, rows, block, 0)
            else:
                before_B = cache["length"]
                tokens_BW = self._window(rows, tokens_BS, before_B, size)
                real_B = jnp.clip(rows["lengths"] - before_B, 0, size)
                x_BWD, cache = self.model.extend(params, tokens_BW, cache, self.structure, real_B)
                # None of it is accepted: the next pass writes over it, in place.
                cache = self.model.commit(cache, jnp.zeros_like(before_B))
                x_BwD = self._take(x_BWD, rows, block, before_B)
            return self._write(params, x_BwD, rows, state, block, i), cache, i + 1

        state, cache, _ = jax.lax.while_loop(going, one, (state, cache, jnp.int32(done)))
        return state, cache

    def _tokens(self, rows: Arrays, state: Arrays) -> jax.Array:
        """The rows as they are now: int32 [B, S]."""
        rows_B1 = jnp.arange(len(rows["at"]))[:, None]
        return rows["given"].at[rows_B1, rows["at"]].set(state["tokens"], mode="drop")

    def _window(self, rows: Arrays, tokens_BS: jax.Array, start_B: jax.Array, size: int) -> jax.Array:
        at_BW = start_B[:, None] + jnp.arange(size)
        return jnp.take_along_axis(tokens_BS, at_BW, axis=1, mode="clip")  # past the end: not real, and not seen

    def _places(self, block: Arrays) -> tuple[jax.Array, jax.Array]:
        """Places in the canvas of the block, and which of them are its own: int32 and bool [B, w]."""
        place_Bw = block["start"][:, None] + jnp.arange(self.width)
        return place_Bw, place_Bw < block["stop"][:, None]

    def _take(self, x_BSD: jax.Array, rows: Arrays, block: Arrays, before: int | jax.Array) -> jax.Array:
        """Where the block's tokens are read, of positions that begin after `before` others: [B, w, D]."""
        at_Bw = jnp.take_along_axis(rows["at"], self._places(block)[0], axis=1, mode="clip")
        at_Bw = at_Bw - self.shift - jnp.reshape(before, (-1, 1))
        return jnp.take_along_axis(x_BSD, at_Bw[:, :, None], axis=1, mode="clip")

    def _open(self, rows: Arrays, state: Arrays, block: Arrays) -> jax.Array:
        """Rows in which the block is not finished: bool [B]."""
        place_Bw, own_Bw = self._places(block)
        committed_Bw = jnp.take_along_axis(state["committed"], place_Bw, axis=1, mode="clip")
        return jnp.any(own_Bw & (committed_Bw < 0), axis=1) & ~state["ended"]

    def _write(
        self, params: Any, x_BwD: jax.Array, rows: Arrays, state: Arrays, block: Arrays, i: int | jax.Array
    ) -> Arrays:
        """Chooses a token at each place of the block, and writes those that pass `i` of the block is to write."""
        place_Bw, own_Bw = self._places(block)
        rows_B1 = jnp.arange(len(place_Bw))[:, None]
        active_B = self._open(rows, state, block)
        old_Bw, committed_Bw = (
            jnp.take_along_axis(state[name], place_Bw, axis=1, mode="clip") for name in ("tokens", "committed")
        )
        own_Bw = own_Bw & active_B[:, None]
        logits_BwV = restrict(self.model.logits(params, x_BwD), self.tokenizer_size, self.mask_token_id, *self.never)
        if self.sampling.repetition_penalty != 1.0:
            logits_BwV = penalise(logits_BwV, self._counted(rows, state)[:, None], self.sampling.repetition_penalty)
        # A key for each pass and place, so that neither the other rows nor the block's width change what is drawn.
        fold = jax.vmap(jax.random.fold_in)
        pass_keys_B = fold(rows["keys"], state["passes"])
        keys_Bw = jax.vmap(jax.vmap(jax.random.fold_in, (None, 0)))(pass_keys_B, place_Bw)
        choice_Bw = draw(logits_BwV, keys_Bw, self.sampling)
        open_Bw = own_Bw & (committed_Bw < 0)
        count_B, revise_B = (jnp.take(block[name], i, axis=0, mode="clip") for name in ("count", "revise"))
        score_Bw = scores(self.selection.rule, logits_BwV, choice_Bw, keys_Bw)
        write_Bw = written(self.selection, score_Bw, open_Bw, count_B + revise_B)
        new_Bw = jnp.where(write_Bw, choice_Bw, old_Bw)
        now_Bw = jnp.where(write_Bw, state["passes"][:, None], committed_Bw)
        if self.selection.rule == "revise":
            kept_Bw = own_Bw & (committed_Bw >= 0)
            doubt_Bw = -log_probability(logits_BwV, old_Bw)
            again_Bw = kept_Bw & (first_ranks(doubt_Bw, kept_Bw) < revise_B[:, None])
            new_Bw, now_Bw = jnp.where(again_Bw, self.mask_token_id, new_Bw), jnp.where(again_Bw, -1, now_Bw)
        into_Bw = jnp.where(own_Bw, place_Bw, state["tokens"].shape[1])  # past the end: dropped
        tokens_BN = state["tokens"].at[rows_B1, into_Bw].set(new_Bw, mode="drop")
        committed_BN = state["committed"].at[rows_B1, into_Bw].set(now_Bw, mode="drop")
        choice_BN = (
            jnp.full_like(tokens_BN, -1).at[rows_B1, into_Bw].set(jnp.where(write_Bw, choice_Bw, -1), mode="drop")
        )
        up_to_here_BN = jnp.cumprod(committed_BN >= 0, axis=1) > 0
        return {
            "tokens": tokens_BN,
            "first": jnp.where(state["first"] < 0, choice_BN, state["first"]),
            "committed": committed_BN,
            "passes": state["passes"] + active_B,
            "broken": state["broken"] | jnp.any(jnp.isnan(logits_BwV) & own_Bw[:, :, None]),
            "ended": state["ended"] | jnp.any(up_to_here_BN & (tokens_BN == self.end_of_text_id), axis=1),
        }

    def _counted(self, rows: Arrays, state: Arrays) -> jax.Array:
        """The tokens that a repetition penalty counts, given and written ones: bool [B, V]."""
        B, S = rows["given"].shape
        known_BS = (
            (jnp.arange(S) < rows["lengths"][:, None]).at[jnp.arange(B)[:, None], rows["at"]].set(False, mode="drop")
        )
        given_BV = mark(jnp.zeros((B, self.model.config.vocab_size), bool), rows["given"], known_BS)
        return mark(given_BV, state["tokens"], state["committed"] >= 0)
