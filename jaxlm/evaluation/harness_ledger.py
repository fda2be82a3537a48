"""What lm-evaluation-harness has no place for: which prompts were cut, and how exact drawn log-likelihoods are."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
from lm_eval.api.instance import Instance
from lm_eval.api.model import CacheHook, hash_args

from jaxlm.errors import UserError

_IDENTITY = "jaxlm: the model"


class Detail(NamedTuple):
    """Of one request.

    Attributes:
      task: whose it is.
      dropped: tokens of the context that did not fit.
      cut: tokens of the continuation that did not fit either.
      stderr: Monte-Carlo standard error of the log-likelihood, in nats.
    """

    task: str
    dropped: int = 0
    cut: int = 0
    stderr: float = 0.0


class Ledger:
    """Details of requests. They lie in the harness's cache beside the answers, so that a resumed evaluation has all."""

    def __init__(self) -> None:
        self._details: dict[Hashable, Detail] = {}
        self._hook = CacheHook(None)

    def open(self, hook: CacheHook, identity: str) -> None:
        """Goes on with a cache, which has to belong to this model: answers of another one would be taken for its own.

        Raises UserError for the cache of another model, or of the same with other settings.
        """
        self._hook = hook
        if (cache := hook.dbdict) is None:
            return
        known = cache.get(_IDENTITY) or (identity if not len(cache) else "of a model that is none of jaxlm's")
        if known != identity:
            raise UserError(f"the cache {cache.filename} is that of {known}, allowed: a new one, or that of {identity}")
        cache[_IDENTITY] = identity
        self._details = {key: value for key, value in cache.items() if isinstance(value, Detail)}

    def add(self, request: Instance, detail: Detail) -> None:
        """Notes it, before the answer is cached: what has an answer has its detail."""
        arguments = (detail.task, request.doc_id, *request.args)
        self._details[hash_args("jaxlm", arguments)] = detail
        self._hook.add_partial("jaxlm", arguments, detail)

    def flush(self) -> None:
        """Waits until all that was given to the cache lies on the disk."""
        if self._hook.dbdict is not None:
            self._hook.dbdict.commit()

    def refuse_single_answers(self, requests: Sequence[Instance]) -> None:
        """Raises UserError for tasks whose questions have one answer: they ask whether it is the greedy one.

        No single pass of a bound decides that. Of a task of which the cache has a part, any number may be left.
        """
        answers = {(request.task_name, request.doc_id, request.args) for request in requests}
        count = Counter((task, document) for task, document, _ in answers)
        begun = {detail.task for detail in self._details.values()}
        of_choices = {task for (task, _), number in count.items() if number > 1} | begun
        for task, _ in count:
            if task not in of_choices:
                raise UserError(
                    f"task {task} asks whether an answer is the greedy one, allowed with a diffusion model: tasks of "
                    "multiple choice, of rolling likelihood, or of writing"
                )

    def truncated(self) -> dict[str, dict[str, int]]:
        """By task: requests whose context was cut, those whose continuation was, and the tokens that were lost."""
        out: dict[str, dict[str, int]] = defaultdict(lambda: {"contexts": 0, "continuations": 0, "tokens": 0})
        for detail in self._details.values():
            counts = out[detail.task]
            counts["contexts"] += detail.dropped > 0
            counts["continuations"] += detail.cut > 0
            counts["tokens"] += detail.dropped + detail.cut
        return out

    def mc_stderr(self) -> dict[str, float]:
        """By task: the mean Monte-Carlo standard error of a log-likelihood, in nats."""
        errors = defaultdict(list)
        for detail in self._details.values():
            errors[detail.task].append(detail.stderr)
        return {task: float(np.mean(values)) for task, values in errors.items()}
