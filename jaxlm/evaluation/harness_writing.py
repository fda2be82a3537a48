"""What lm-evaluation-harness asks of a text that is to be written, in jaxlm's terms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from lm_eval.models.utils import normalize_gen_kwargs

from jaxlm.errors import UserError
from jaxlm.generation import Sampling

NEW_TOKENS = 256  # where a task does not say: what the harness's own models write
_OF_SAMPLING = ("top_p", "top_k", "repetition_penalty")


class Text(Protocol):
    """What was written."""

    @property
    def text(self) -> str:
        """Up to a stop."""


class Generate(Protocol):
    """`Trained.generate`."""

    def __call__(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        max_new_tokens: int,
        sampling: Sampling,
        stop: Sequence[str],
        seed: int,
        first_row: int,
    ) -> Sequence[Text]:
        """Continues each prompt, which is token ids."""


class Writing(NamedTuple):
    """How a text is written, and where it ends."""

    max_new_tokens: int
    sampling: Sampling
    stop: list[str]


def writing_of(generation_kwargs: Mapping[str, Any]) -> Writing:
    """The settings of a task's `generation_kwargs`, which the harness knows under several names.

    Raises UserError for one that jaxlm cannot follow.
    """
    values: dict[str, Any] = dict(normalize_gen_kwargs(dict(generation_kwargs), NEW_TOKENS))
    stop, length = [text for text in values.pop("until") if text], values.pop("max_gen_toks")
    # Whoever samples and says no temperature means the distribution as it is, as in transformers.
    sampled, temperature = values.pop("do_sample"), float(values.pop("temperature", 1.0))
    chosen = {name: value for name, value in values.items() if value is not None}
    for name, value in chosen.items():
        if name not in _OF_SAMPLING:
            allowed = ", ".join(("until", "max_gen_toks", "do_sample", "temperature", *_OF_SAMPLING))
            raise UserError(f"the task's generation_kwargs have {name}={value!r}, allowed: {allowed}")
    return Writing(length, Sampling(temperature if sampled else 0.0, **chosen), stop)
