"""Log-likelihood of continuations given their contexts: one interface for autoregressive and diffusion models.

Position i of a row carries token i, and blocks lie on the absolute grid of the positions whose logits are read: token
i is read at i, or at i - 1 with a shift. The context is never hidden. Autoregression takes one clean pass; a model that
sees everything is read with tokens hidden, and a block-causal one as [noisy ; clean], where each block sees its own
noise and clean text before it. With a shift the first position of a block carries the last token of the block before,
which is clean then: all as in training (`jaxlm.objectives`). What reads from left to right never reads the last token.

Legend: B rows of a forward, T positions, S positions with both streams, C tokens of the continuation, P passes,
D width.
"""

from __future__ import annotations

import itertools
import time
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
from jaxlm.evaluation.statistics import Array
from jaxlm.generation.result import bucket, pad_right
from jaxlm.layers.cross_entropy import in_chunks, nats_and_likeliest
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
      is_greedy: whether each token is the likeliest one of the whole vocabulary; None for a bound, which no single pass
        decides.
      nats_P: what each pass adds to minus the log-likelihood, float64.
    """

    log_likelihood: float
    stderr: float
    num_tokens: int
    forwards: int
    is_bound: bool
    is_greedy: bool | None
    nats_P: Array


class Shape(NamedTuple):
    """What is compiled for: positions of a row, and places in it that are scored."""

    positions: int
    places: int


Group = list[int]  # the numbers of requests that the same rows answer


class _Forward(NamedTuple):
    """One row of a forward: one of the passes over a group, what is read, and where which tokens are scored."""

    group: Group
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

    Attributes:
      max_tokens: the longest context and continuation together.
      shapes_left: of the call in progress, what has not begun; each is compiled once.
      seconds, positions: of the forwards that did not begin with a compilation.
      compiling: seconds of those that did.
    """

    def __init__(self, objective: Objective, positions_per_forward: int = 4096) -> None:
        self.objective, self.positions_per_forward = objective, positions_per_forward
        self._unread = 0 if objective.is_bound else 1  # tokens at the end that no other token is read from
        self.max_tokens = objective.model.config.max_positions + self._unread
        self.shapes_left, self.seconds, self.positions, self.compiling = 0, 0.0, 0, 0.0
        self._compiled: set[tuple[int, ...]] = set()
        self._score = jax.jit(self._score_rows, static_argnames="structure")

    def log_likelihoods(
        self, params: Tree, requests: Sequence[Request], masks: Masks | None = None
    ) -> list[LogLikelihood]:
        """The log-likelihood of each request; see `stream`."""
        out = dict(self.stream(params, requests, masks))
        return [out[number] for number in range(len(requests))]

    def stream(
        self, params: Tree, requests: Sequence[Request], masks: Masks | None = None
    ) -> Iterator[tuple[int, LogLikelihood]]:
        """The number of each request and its log-likelihood, as they are found.

        A result does not depend on the other requests, nor on the size of a forward. The longest come first, so that
        memory that is too small shows at once. Answers of one token to one context are read off the same logits.

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
        plan = self.plan(requests)
        self.shapes_left = len(plan)
        for shape, groups in plan.items():
            self.shapes_left -= 1
            structure = self.objective.structure(shape.positions)
            forwards = (
                forward for group in groups for forward in self._forwards(group, requests, masks, structure, shape)
            )
            scored: list[tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]] = []
            for forward, nats_C, greedy_C in self._run(params, forwards, structure, shape):
                scored.append((nats_C, greedy_C))
                if len(scored) == len(forward.passes.masked_PC):
                    yield from self._results(forward, requests, *map(np.stack, zip(*scored, strict=True)))
                    scored.clear()

    def plan(self, requests: Sequence[Request]) -> dict[Shape, list[Group]]:
        """Which requests are answered together, by the shape that they are compiled for, the longest first."""
        groups: dict[tuple[bytes, int], Group] = defaultdict(list)
        for number, (context, continuation, _) in enumerate(requests):
            self._check(requests[number])
            # What a token is worth where it is the only one that is not known does not depend on the token.
            alone = len(continuation) == 1
            groups[(np.array(context).tobytes(), -1) if alone else (b"", number)].append(number)
        plan: dict[Shape, list[Group]] = defaultdict(list)
        for group in sorted(groups.values(), key=lambda group: -self._length(requests[group[0]])):
            places = sum(len(requests[number].continuation) for number in group)
            positions = min(bucket(self._length(requests[group[0]])), self.objective.model.config.max_positions)
            plan[Shape(positions, bucket(places, _LEAST_CONTINUATION))].append(group)
        return dict(sorted(plan.items(), reverse=True))

    def rows_per_forward(self, shape: Shape) -> int:
        """The most rows of a forward."""
        return max(1, self.positions_per_forward // self.row_size(shape))

    def row_size(self, shape: Shape) -> int:
        """Positions of a row, both streams counted."""
        return shape.positions * self.objective.structure(shape.positions).streams

    def read_blocks(self, request: Request) -> npt.NDArray[np.int64]:
        """The block that the logits of each token of the continuation are read in, [C]."""
        structure = self.objective.structure(self._length(request))
        token_C = len(request.context) + np.arange(len(request.continuation))
        return np.asarray(structure.block(token_C - bool(self.objective.config.shift)))

    def _length(self, request: Request) -> int:
        """Positions of its row."""
        return len(request.context) + len(request.continuation) - self._unread

    def _check(self, request: Request) -> None:
        if not request.continuation:
            raise UserError("a continuation has no tokens, allowed: at least one")
        if self.objective.config.shift and not request.context:
            raise UserError(
                "a context has no tokens, allowed: at least one (the model reads each logit one position before)"
            )
        if (length := len(request.context) + len(request.continuation)) > self.max_tokens:
            raise UserError(
                f"a context and its continuation have {length} tokens, allowed: at most {self.max_tokens} "
                f"(model.max_positions is {self.objective.model.config.max_positions})"
            )

    def _forwards(
        self, group: Group, requests: Sequence[Request], masks: Masks, structure: Structure, shape: Shape
    ) -> Iterator[_Forward]:
        """Every pass over one group."""
        context, continuation, question = requests[group[0]]
        shift = bool(self.objective.config.shift)
        token_C = len(context) + np.arange(len(continuation))
        passes = masks(structure.block(token_C - shift), question)
        read = [*context, *continuation][: len(context) + len(continuation) - self._unread]
        clean_T = pad_right([read], shape.positions)[0]
        # What lies behind the row is another document, so nothing that is real sees it.
        segments_S = np.tile((np.arange(shape.positions) < len(read)).astype(np.int32), structure.streams)
        targets = [token for number in group for token in requests[number].continuation]
        at = np.tile(token_C - shift, len(group)).tolist()
        at_C, targets_C = pad_right([at, targets], shape.places)
        hideable_C = structure.block(token_C) == structure.block(token_C - shift)
        for masked_C in passes.masked_PC:
            noisy_T = clean_T.copy()
            if self.objective.is_bound:
                noisy_T[token_C[masked_C & hideable_C]] = self.objective.mask_token_id
            inputs_S = np.concatenate([noisy_T, clean_T][: structure.streams])
            yield _Forward(group, passes, inputs_S, segments_S, at_C, targets_C)

    def _run(
        self, params: Tree, forwards: Iterator[_Forward], structure: Structure, shape: Shape
    ) -> Iterator[tuple[_Forward, npt.NDArray[np.float32], npt.NDArray[np.bool_]]]:
        """Each pass with its nats, fp32 [C], and which targets are the likeliest, bool [C], many rows at a time."""
        most, rows = self.rows_per_forward(shape), 0
        while batch := list(itertools.islice(forwards, most)):
            rows = rows or min(most, bucket(len(batch), 1))  # the last batch is filled up to the shape of the first
            filled = batch + batch[-1:] * (rows - len(batch))
            _, _, *columns = zip(*filled, strict=True)
            arrays = [np.stack(column) for column in columns]
            started = time.perf_counter()
            nats_BC, greedy_BC = jax.device_get(self._score(params, *arrays, structure=structure))
            took = time.perf_counter() - started
            if (compiled := (rows, *shape)) in self._compiled:
                self.seconds, self.positions = self.seconds + took, self.positions + arrays[0].size
            else:
                self.compiling += took
                self._compiled.add(compiled)
            yield from zip(batch, nats_BC[: len(batch)], greedy_BC[: len(batch)], strict=True)

    def _score_rows(
        self,
        params: Tree,
        inputs_BS: jax.Array,
        segments_BS: jax.Array,
        at_BC: jax.Array,
        targets_BC: jax.Array,
        structure: Structure,
    ) -> tuple[jax.Array, jax.Array]:
        """Of the logits at positions `at` of the first stream: fp32 [B, C], the nats of `targets`, and bool [B, C]."""
        model = self.objective.model
        # From left to right nothing sees what is behind it, and attention is cheaper where it has not to ask.
        segments: Any = None if structure.causal else segments_BS
        x_BSD = model.hidden(params, inputs_BS, structure, segments)
        x_BCD = jnp.take_along_axis(x_BSD, at_BC[:, :, None], axis=1)
        chunk = self.objective.loss_chunk
        scores: tuple[jax.Array, jax.Array] = in_chunks(
            nats_and_likeliest, x_BCD, model.head_VD(params), targets_BC, chunk
        )
        return scores

    def _results(
        self,
        forward: _Forward,
        requests: Sequence[Request],
        nats_PC: npt.NDArray[np.float32],
        greedy_PC: npt.NDArray[np.bool_],
    ) -> Iterator[tuple[int, LogLikelihood]]:
        """The requests of a group, whose tokens lie behind one another, with what they are worth."""
        passes, start = forward.passes, 0
        for number in forward.group:
            size = len(requests[number].continuation)
            own = slice(start, start + size)
            start += size
            nats_P = passes.by_pass(nats_PC[:, own].astype(np.float64))
            is_greedy = None if self.objective.is_bound else bool(greedy_PC[0, own].all())
            stderr = passes.stderr(nats_P)
            yield (
                number,
                LogLikelihood(-float(nats_P.sum()), stderr, size, len(nats_P), passes.is_bound, is_greedy, nats_P),
            )
