"""Log-likelihood of continuations given their contexts: one interface for autoregressive and diffusion models.

Position i of a row carries token i, and blocks lie on the absolute grid of the positions whose logits are read: token
i is read at i, or at i - 1 with a shift. The context is never hidden. Autoregression takes one clean pass; a model that
sees everything is read with tokens hidden, and a block-causal one as [noisy ; clean], where each block sees its own
noise and clean text before it. With a shift the first position of a block carries the last token of the block before,
which is clean then: all as in training (`jaxlm.objectives`).

Legend: B rows of a forward, T positions, S positions with both streams, C tokens of the continuation, D width.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jaxlm.errors import UserError
from jaxlm.evaluation.continuation_masks import ExactCounts, Masks, Passes, nothing_hidden
from jaxlm.generation.result import bucket, pad_right
from jaxlm.layers.cross_entropy import chunked_nats
from jaxlm.layers.parameters import Tree
from jaxlm.layers.structure import Structure
from jaxlm.objectives import Objective

_LEAST_CONTINUATION = 8  # shorter ones are scored in this many places, so that few shapes are compiled


class Request(NamedTuple):
    """A continuation to score. Requests with one question number are its possible answers, and share their masks."""

    context: Sequence[int]
    continuation: Sequence[int]
    question: int


@dataclass(frozen=True)
class LogLikelihood:
    """What a continuation is worth.

    Attributes:
      log_likelihood: log p(continuation | context) in nats, at most 0; normalised over all rows of the vocabulary, as
        in training.
      stderr: its Monte-Carlo standard error; 0 where nothing is drawn.
      num_tokens: tokens of the continuation.
      forwards: passes over this row.
      is_bound: whether the true one is at least this (up to `stderr`), and not just this.
    """

    log_likelihood: float
    stderr: float
    num_tokens: int
    forwards: int
    is_bound: bool


class _Forward(NamedTuple):
    """One row of a forward: one of the passes of request `number`, what is read, and where which tokens are scored."""

    number: int
    passes: Passes
    inputs_S: npt.NDArray[np.int32]
    segments_S: npt.NDArray[np.int32]
    at_C: npt.NDArray[np.int32]
    targets_C: npt.NDArray[np.int32]


class Continuations:
    """Scores continuations under one objective. Keep it to score again: what it has compiled stays.

    Args:
      objective: the model and how it reads: kind, block size, shift, mask token, loss chunk.
      positions_per_forward: rows times positions of one forward, both streams counted; at least one row.
    """

    def __init__(self, objective: Objective, positions_per_forward: int = 4096) -> None:
        self.objective, self.positions_per_forward = objective, positions_per_forward
        self._nats = jax.jit(self._nats_of_rows, static_argnames="structure")

    def log_likelihoods(
        self, params: Tree, requests: Sequence[Request], masks: Masks | None = None
    ) -> list[LogLikelihood]:
        """The log-likelihood of each request, which does not depend on the others, nor on the size of a forward.

        Args:
          params: the parameters of the objective's model.
          requests: token ids, in any order.
          masks: what each pass hides: `ExactCounts` (the default) for a bound, `chain_rule` for the likelihood of
            writing from left to right. None for autoregression, which hides nothing.

        Raises UserError for a continuation without tokens, a row longer than the model's positions, or, where logits
        are read one position before their token, a context without tokens.
        """
        if masks is not None and not self.objective.is_bound:
            raise ValueError("masks were given, allowed: none for a model that reads a clean text from left to right")
        masks = masks or (ExactCounts() if self.objective.is_bound else nothing_hidden)
        shapes = defaultdict(list)
        for number, request in enumerate(requests):
            self._check(request)
            length = len(request.context) + len(request.continuation)
            shapes[bucket(length), bucket(len(request.continuation), _LEAST_CONTINUATION)].append(number)
        out: dict[int, LogLikelihood] = {}
        for (positions, places), numbers in shapes.items():
            structure = self.objective.structure(positions)
            nats: dict[int, list[npt.NDArray[np.float32]]] = defaultdict(list)
            forwards = (
                forward
                for number in numbers
                for forward in self._forwards(number, requests[number], masks, structure, positions, places)
            )
            for (number, passes, *_), nats_C in self._run(params, forwards, structure, positions):
                nats[number].append(nats_C[: len(requests[number].continuation)])
                if len(nats[number]) == len(passes.masked_PC):
                    out[number] = _result(passes, np.stack(nats.pop(number)))
        return [out[number] for number in range(len(requests))]

    def _check(self, request: Request) -> None:
        if not request.continuation:
            raise UserError("a continuation has no tokens, allowed: at least one")
        if self.objective.config.shift and not request.context:
            raise UserError(
                "a context has no tokens, allowed: at least one (the model reads each logit one position before)"
            )
        length, most = len(request.context) + len(request.continuation), self.objective.model.config.max_positions
        if length > most:
            raise UserError(
                f"a context and its continuation have {length} tokens, allowed: at most model.max_positions = {most}"
            )

    def _forwards(
        self, number: int, request: Request, masks: Masks, structure: Structure, positions: int, places: int
    ) -> Iterator[_Forward]:
        """Every pass over one request."""
        context, continuation, question = request
        shift = bool(self.objective.config.shift)
        token_C = len(context) + np.arange(len(continuation))
        passes = masks(structure.block(token_C - shift), question)
        clean_T = pad_right([[*context, *continuation]], positions)[0]
        # What lies behind the row is another document, so nothing that is real sees it.
        segments_S = np.tile((np.arange(positions) <= token_C[-1]).astype(np.int32), structure.streams)
        at_C, targets_C = pad_right([(token_C - shift).tolist(), continuation], places)
        hideable_C = structure.block(token_C) == structure.block(token_C - shift)
        for masked_C in passes.masked_PC:
            noisy_T = clean_T.copy()
            if self.objective.is_bound:
                noisy_T[token_C[masked_C & hideable_C]] = self.objective.mask_token_id
            inputs_S = np.concatenate([noisy_T, clean_T][: structure.streams])
            yield _Forward(number, passes, inputs_S, segments_S, at_C, targets_C)

    def _run(
        self, params: Tree, forwards: Iterator[_Forward], structure: Structure, positions: int
    ) -> Iterator[tuple[_Forward, npt.NDArray[np.float32]]]:
        """Each pass with its nats, fp32 [C], computed many rows at a time."""
        most, rows = max(1, self.positions_per_forward // (positions * structure.streams)), 0
        while batch := list(itertools.islice(forwards, most)):
            rows = rows or min(most, bucket(len(batch), 1))  # the last batch is filled up to the shape of the first
            filled = batch + batch[-1:] * (rows - len(batch))
            _, _, *columns = zip(*filled, strict=True)
            arrays = [np.stack(column) for column in columns]
            nats_BC = np.asarray(self._nats(params, *arrays, structure=structure))
            yield from zip(batch, nats_BC[: len(batch)], strict=True)

    def _nats_of_rows(
        self,
        params: Tree,
        inputs_BS: jax.Array,
        segments_BS: jax.Array,
        at_BC: jax.Array,
        targets_BC: jax.Array,
        structure: Structure,
    ) -> jax.Array:
        """Nats of `targets` under the logits at positions `at` of the first stream: fp32 [B, C]."""
        model = self.objective.model
        # From left to right nothing sees what is behind it, and attention is cheaper where it has not to ask.
        segments: Any = None if structure.causal else segments_BS
        x_BSD = model.hidden(params, inputs_BS, structure, segments)
        x_BCD = jnp.take_along_axis(x_BSD, at_BC[:, :, None], axis=1)
        return chunked_nats(x_BCD, model.head_VD(params), targets_BC, self.objective.loss_chunk)


def _result(passes: Passes, nats_PC: npt.NDArray[np.float32]) -> LogLikelihood:
    nats, stderr = passes.total(nats_PC.astype(np.float64))
    num_passes, num_tokens = nats_PC.shape
    return LogLikelihood(-nats, stderr, num_tokens, num_passes, passes.is_bound)
