"""The length-only baseline: a model that knows nothing but how many tokens an option has."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from lm_eval.api.model import TemplateLM


class LengthOnly(TemplateLM):
    """Gives a continuation of n tokens -n ln V, as every model does whose logits are all equal; writes nothing.

    What it scores above chance comes from the lengths of options, or from where the right one stands among equals. It
    needs no forward.

    Args:
      model: whose tokens are counted, as it makes them.
      vocab_size: V, the rows of that model's vocabulary.
    """

    def __init__(self, model: TemplateLM, vocab_size: int) -> None:
        super().__init__()
        self._model = model
        # A model's own nats are float32, summed in float64; so are these, and what is equal there is equal here.
        self._nats = float(np.float32(math.log(vocab_size)))

    @property
    def eot_token_id(self) -> int:
        return self._model.eot_token_id

    @property
    def prefix_token_id(self) -> int:
        return self._model.prefix_token_id

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **kwargs: Any) -> list[int]:
        return self._model.tok_encode(string, add_special_tokens=add_special_tokens, **kwargs)

    def loglikelihood(self, requests: list[Any], disable_tqdm: bool = True) -> list[tuple[float, bool]]:
        return super().loglikelihood(requests, disable_tqdm=disable_tqdm)

    def _loglikelihood_tokens(self, requests: list[Any], **kwargs: Any) -> list[tuple[float, bool]]:
        return [(-len(continuation) * self._nats, False) for _, _, continuation in requests]

    def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = True) -> list[float]:
        return [-len(self.tok_encode(request.args[0])) * self._nats for request in requests]

    def generate_until(self, requests: list[Any], disable_tqdm: bool = True) -> list[str]:
        return [""] * len(requests)
