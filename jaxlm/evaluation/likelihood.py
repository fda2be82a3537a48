"""Loss of a model on held-out windows: exact for an autoregressive model, a bound (ELBO) for a diffusion model.

B rows of a batch, T positions, N windows, K draws, V ids of the tokenizer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from jaxlm import randomness
from jaxlm.evaluation.statistics import Array, Score, ratio
from jaxlm.objectives import Objective

Batch = Mapping[str, Any]


@dataclass(frozen=True)
class Result:
    """Loss of a model on N windows.

    `loss` is in nats per token. `stderr` is its standard error over windows, each window's loss being the mean over the
    draws, so that the noise of the draws is part of it. `monte_carlo_stderr` is that noise alone, from the spread of
    the draws: None with one draw, 0 where nothing is drawn. `is_bound` says that the true loss is at most this one.
    """

    loss: float
    stderr: float | None
    monte_carlo_stderr: float | None
    bits_per_byte: float | None
    bits_per_byte_stderr: float | None
    num_tokens: int
    num_bytes: int
    num_windows: int
    draws: int
    is_bound: bool
    score: Score = dataclasses.field(repr=False, compare=False)

    def to_json(self) -> dict[str, Any]:
        """Every number of the result as plain values."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "score"}


class Likelihood:
    """Scores windows under one objective. Keep it to score again: its one compiled function stays.

    `token_bytes_V` int [V] holds the UTF-8 bytes of each token of the tokenizer, 0 for end-of-text.
    """

    def __init__(self, objective: Objective, token_bytes_V: npt.NDArray[Any]) -> None:
        self.objective, self.token_bytes_V = objective, token_bytes_V
        self._per_row = jax.jit(objective.per_row)

    def validate(
        self,
        params: Any,
        batches: Iterable[Batch],
        num_windows: int,
        seed: int,
        draws: int = 1,
        progress: Callable[[int], object] | None = None,
    ) -> Result:
        """The loss over the first `num_windows` rows of `batches`; what follows them in the last batch is filling.

        The corruption of a window depends on (seed, draw, its number among the windows) alone, so that the result does
        not depend on the batch size, and the noise levels of one draw are spread evenly over all windows.

        Args:
          params: the parameters of the objective's model.
          batches: numpy arrays, all of one shape; see `Objective` for their keys.
          num_windows: N, known before the first batch because the noise levels are spread over all N.
          seed: of the draws.
          draws: how often each window is corrupted anew; 1 where the objective corrupts nothing.
          progress: is told how many windows are done, after each batch.
        """
        if draws < 1 or (draws > 1 and not self.objective.corrupts):
            raise ValueError(f"draws is {draws}, allowed: at least 1, and 1 where nothing is drawn")
        nats_KN = np.zeros((draws, num_windows))
        tokens_N, bytes_N = np.zeros(num_windows), np.zeros(num_windows)
        done = 0
        for batch in batches:
            rows_B = done + np.arange(len(batch["tokens"]), dtype=np.int32)
            real = min(len(rows_B), num_windows - done)
            if real == 0:
                break
            here = slice(done, done + real)
            for draw in range(draws):
                key = randomness.key(seed, "evaluation", draw)
                nats_B, weight_B = self._per_row(params, dict(batch), key, rows_B, np.int32(num_windows))
                nats_KN[draw, here] = np.asarray(nats_B)[:real]
            tokens_N[here] = np.asarray(weight_B)[:real]
            bytes_N[here] = [self.token_bytes_V[tokens].sum() for tokens in scored_tokens(self.objective, batch)[:real]]
            done += real
            if progress is not None:
                progress(done)
        if done != num_windows:
            raise ValueError(f"{num_windows} windows were announced, the batches hold {done}")
        return _result(self.objective, nats_KN, tokens_N, bytes_N)


def scored_tokens(objective: Objective, batch: Batch) -> list[npt.NDArray[np.int32]]:
    """The tokens that `objective` takes a loss over, in order: an int32 array for each row of a batch."""
    scored_BT = np.asarray(objective.scored(dict(batch)))
    return [tokens_T[scored_T] for tokens_T, scored_T in zip(batch["tokens"][:, 1:], scored_BT, strict=True)]


def _result(objective: Objective, nats_KN: Array, tokens_N: Array, bytes_N: Array) -> Result:
    score = Score(nats_KN.mean(axis=0), tokens_N, bytes_N)
    loss, bits, draws = score.nats_per_token, score.bits_per_byte, len(nats_KN)
    spread = ratio(nats_KN.sum(axis=1), np.full(draws, tokens_N.sum())).stderr
    return Result(
        loss=loss.value,
        stderr=loss.stderr,
        monte_carlo_stderr=spread if objective.corrupts else 0.0,
        bits_per_byte=bits.value if bits else None,
        bits_per_byte_stderr=bits.stderr if bits else None,
        num_tokens=int(tokens_N.sum()),
        num_bytes=int(bytes_N.sum()),
        num_windows=len(tokens_N),
        draws=draws,
        is_bound=objective.is_bound,
        score=score,
    )
