"""A model of jaxlm as lm-evaluation-harness asks it: autoregressive or diffusion, through one likelihood."""

from __future__ import annotations

import json
import sys
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import CacheHook, TemplateLM
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from jaxlm.data.tokenizer import Tokenizer
from jaxlm.errors import UserError
from jaxlm.evaluation import cost
from jaxlm.evaluation.continuation import Continuations, LogLikelihood, Request
from jaxlm.evaluation.continuation_masks import ExactCounts, chain_rule
from jaxlm.evaluation.harness_ledger import Detail, Ledger
from jaxlm.evaluation.harness_writing import Generate, writing_of
from jaxlm.layers.parameters import Tree
from jaxlm.objectives import Objective
from jaxlm.progress import Progress

DRAWS = 128  # LLaDA's


class HarnessModel(TemplateLM):
    """Scores and writes what the tasks of the harness ask for.

    Tokens are those of the harness's `hf` model: a space that ends a context goes to the continuation, nothing is added
    that the tokenizer does not add, an empty context is one token of text that begins, and what does not fit is cut on
    the left. Of a diffusion model a log-likelihood is a bound, under masks that all answers to one question share. Each
    answer is given to the harness's cache as soon as it is found (`use_cache`), so a killed evaluation goes on.

    Args:
      objective: the model and how it reads.
      params: its parameters.
      tokenizer: its tokenizer.
      generate: `Trained.generate`, or a part of it; None for a model that only scores.
      max_length: positions that a prompt and its answer may take, at most the model's.
      parameter_hash: of `params`.
      mc_samples: masks of an answer, for a bound.
      in_order: a likelihood is that of writing from left to right, in which nothing is drawn, and not a bound over all
        orders.
      seed: of masks and of sampling.
      positions_per_forward: rows times positions of one forward.
      prefix_token_id: what an empty context is; None: what the tokenizer begins a text with, else the end of text.
      writing: whatever else decides what `generate` writes; it is part of the identity.
      report: is given lines for the user.
    """

    def __init__(
        self,
        objective: Objective,
        params: Tree,
        tokenizer: Tokenizer,
        generate: Generate | None = None,
        *,
        max_length: int,
        parameter_hash: str,
        mc_samples: int = DRAWS,
        seed: int = 0,
        positions_per_forward: int = 4096,
        prefix_token_id: int | None = None,
        in_order: bool = False,
        writing: Mapping[str, Any] | None = None,
        report: Callable[[str], None] = lambda line: print(f"jaxlm: {line}", file=sys.stderr),
    ) -> None:
        super().__init__()
        if not 2 <= max_length <= (positions := objective.model.config.max_positions):
            raise UserError(f"max_length is {max_length}, allowed: 2 to model.max_positions = {positions}")
        self.objective, self.params, self.max_length, self.seed = objective, params, max_length, seed
        # Blocks of one token have one order.
        self._in_order = objective.is_bound and (in_order or objective.config.block_size == 1)
        self.masks = ExactCounts(mc_samples, seed) if objective.is_bound and not self._in_order else None
        self.continuations = Continuations(objective, positions_per_forward)
        self.parameter_hash, self.report = parameter_hash, report
        self._tokenizer, self._generate, self._writing = tokenizer, generate, dict(writing or {})
        self._begun = tokenizer.encode_prompt("")
        self._prefix, self._ledger = prefix_token_id, Ledger()
        # As in `hf`: from left to right the last token is never read, so that it needs no position.
        self._most = max_length + (0 if objective.is_bound else 1)

    @property
    def truncated(self) -> Mapping[str, Mapping[str, int]]:
        """By task: how many contexts and continuations did not fit, and the tokens that were cut."""
        return self._ledger.truncated()

    @property
    def mc_stderr(self) -> Mapping[str, float]:
        """By task: the mean Monte-Carlo standard error of a log-likelihood, in nats; of a bound only."""
        return self._ledger.mc_stderr() if self.masks else {}

    @property
    def mc_samples(self) -> int | None:
        """Masks of an answer; None where nothing is drawn."""
        return self.masks.draws if self.masks else None

    @property
    def identity(self) -> dict[str, Any]:
        """Whatever decides an answer."""
        config = self.objective.config
        reading = config.kind
        if self.objective.corrupts:
            reading += f"-{config.block_size}" + "-shift" * bool(config.shift) + "-in_order" * self._in_order
        return {
            "parameters": self.parameter_hash[:16],
            "dtype": self.objective.model.execution.dtype,
            "objective": reading,
            "mc_samples": self.mc_samples,
            "seed": self.seed,
            "max_length": self.max_length,
            "prefix_token_id": self.prefix_token_id,
            "tokenizer": self.tokenizer_name[:8],
            **self._writing,
        }

    @property
    def cache_name(self) -> str:
        """A file name for the answers of this model under these settings, and of no others."""
        return "_".join(f"{name}-{value}" for name, value in self.identity.items() if value is not None)

    def get_model_info(self) -> dict[str, Any]:
        """What the harness writes beside its results."""
        return {**self.identity, "truncated": self.truncated, "mc_stderr": self.mc_stderr}

    def set_cache_hook(self, cache_hook: CacheHook) -> None:
        super().set_cache_hook(cache_hook)
        self._ledger.open(cache_hook, self.cache_name)

    @property
    def eot_token_id(self) -> int:
        return self._tokenizer.end_of_text_id

    @property
    def prefix_token_id(self) -> int:
        return self._prefix if self._prefix is not None else (*self._begun, self.eot_token_id)[0]

    @property
    def tokenizer_name(self) -> str:
        return self._tokenizer.sha256()

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        raise UserError("--apply_chat_template is given, allowed: tasks without one (jaxlm's models have no template)")

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **kwargs: Any) -> list[int]:
        ids = self._tokenizer.encode_prompt(string)
        spelt = add_special_tokens is None and string.startswith(self._tokenizer.decode([self.prefix_token_id]))
        return ids[len(self._begun) :] if spelt or add_special_tokens is False else ids

    def loglikelihood(self, requests: list[Instance], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        if self.objective.is_bound:
            self._ledger.refuse_single_answers(requests)
        asked: dict[tuple[str, str], list[Instance]] = defaultdict(list)
        for request in requests:
            asked[request.args].append(request)
        fitted = [self._fitted(*self._encoded(*pair)) for pair in asked]
        questions = [_number(same[0]) for same in asked.values()]
        pairs = list(asked)

        def found(number: int, result: LogLikelihood) -> None:
            _, _, dropped, cut = fitted[number]
            if dropped or cut or self.objective.is_bound:
                for request in asked[pairs[number]]:
                    self._ledger.add(request, Detail(str(request.task_name), dropped, cut, result.stderr))
            self.cache_hook.add_partial("loglikelihood", pairs[number], _answer(result))

        tokens = [(question, *row[:2]) for question, row in zip(questions, fitted, strict=True)]
        answers = dict(zip(pairs, self._loglikelihood_tokens(tokens, found=found, label="answers"), strict=True))
        return [answers[request.args] for request in requests]

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        windows, texts = [], []
        for number, request in enumerate(requests):
            tokens = self.tok_encode(request.args[0])
            # A window is one token of context that is not scored, and as many that are as then fit.
            rolling = get_rolling_token_windows(tokens, self.prefix_token_id, self._most - 1, context_len=1)
            own = [(_number(request), *make_disjoint_window(window)) for window in rolling]
            windows += own
            texts += [number] * len(own)
        left, totals = Counter(texts), [0.0] * len(requests)

        def found(number: int, result: LogLikelihood) -> None:
            text = texts[number]
            totals[text] += result.log_likelihood
            left[text] -= 1
            if not left[text]:
                self.cache_hook.add_partial("loglikelihood_rolling", requests[text].args, totals[text])

        self._loglikelihood_tokens(windows, found=found, label="windows")
        return totals

    def _loglikelihood_tokens(
        self,
        requests: Sequence[tuple[Any, list[int], list[int]]],
        disable_tqdm: bool = False,
        *,
        found: Callable[[int, LogLikelihood], None] = lambda number, result: None,
        label: str = "continuations",
    ) -> list[tuple[float, bool]]:
        """Scores (question, context, continuation) in token ids; each result is told as it is found."""
        rows = [Request(context, continuation, question) for question, context, continuation in requests]
        answers: dict[int, tuple[float, bool]] = {}
        for number, result in self._scores(rows, label):
            found(number, result)
            answers[number] = _answer(result)
        return [answers[number] for number in range(len(rows))]

    def _scores(self, rows: Sequence[Request], label: str) -> Iterator[tuple[int, LogLikelihood]]:
        """Results by number. A bound is announced, and timed on a few questions that go ahead."""
        pilot = cost.pilot_of(rows) if self.masks else []
        ahead = set(pilot)
        rest = [number for number in range(len(rows)) if number not in ahead]
        if self.masks and rows:
            self.report(cost.announcement(self.continuations, rows, self.masks))
        masks = chain_rule if self._in_order else self.masks
        done, compiling = 0, self.continuations.compiling
        answers: dict[int, list[LogLikelihood]] = defaultdict(list)
        try:
            with Progress(len(rows), label, unit="item") as progress:
                for numbers in filter(None, (pilot, rest)):
                    part = [rows[number] for number in numbers]
                    for at, result in self.continuations.stream(self.params, part, masks):
                        yield numbers[at], result
                        done += 1
                        progress.exclude(self.continuations.compiling - compiling)
                        compiling = self.continuations.compiling
                        progress.update(done, shapes_left=str(self.continuations.shapes_left))
                        if numbers is pilot:
                            answers[part[at].question].append(result)
                    if self.masks and numbers is pilot:
                        left = [rows[number] for number in rest]
                        for line in cost.forecast(self.continuations, left, self.masks, answers):
                            self.report(line)
        finally:
            self._ledger.flush()

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        alike: dict[str, list[int]] = defaultdict(list)
        for number, request in enumerate(requests):
            alike[json.dumps(request.args[1], sort_keys=True)].append(number)
        texts: dict[int, str] = {}
        try:
            with Progress(len(requests), "texts", unit="item") as progress:
                for numbers in alike.values():
                    for number, text in self._written([requests[number] for number in numbers]):
                        texts[numbers[number]] = text
                        self.cache_hook.add_partial("generate_until", requests[numbers[number]].args, text)
                        progress.update(len(texts))
        finally:
            self._ledger.flush()
        return [texts[number] for number in range(len(requests))]

    def _written(self, requests: Sequence[Instance]) -> Iterator[tuple[int, str]]:
        """The number and the text of each request; all have the same settings. The longest prompts come first."""
        assert self._generate is not None, "a model that only scores was asked to write"
        length, sampling, stop = writing_of(requests[0].args[1])
        if (room := self.max_length - length) < 1:
            raise UserError(
                f"task {requests[0].task_name} wants {length} new tokens, allowed: fewer than max_length = "
                f"{self.max_length}, which is for prompt and text"
            )
        prompts = []
        for request in requests:
            prompt = self.tok_encode(request.args[0]) or [self.prefix_token_id]
            if (dropped := len(prompt) - room) > 0:
                self._ledger.add(request, Detail(str(request.task_name), dropped))
            prompts.append(prompt[-room:])
        order = sorted(range(len(requests)), key=lambda number: -len(prompts[number]))
        rows = max(1, self.continuations.positions_per_forward // self.max_length)
        for start in range(0, len(order), rows):
            batch = order[start : start + rows]
            out = self._generate(
                [prompts[number] for number in batch],
                max_new_tokens=length,
                sampling=sampling,
                stop=[*stop, self._tokenizer.end_of_text],
                seed=self.seed,
                first_row=start,
            )
            yield from ((number, one.text) for number, one in zip(batch, out, strict=True))

    def _encoded(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """Token ids of both, as `TemplateLM.loglikelihood` makes them."""
        if context:
            return self._encode_pair(context, continuation)
        tokens = self.tok_encode(continuation, add_special_tokens=False)
        begun = tokens[:1] == [self.prefix_token_id]
        return (tokens[:1], tokens[1:]) if begun else ([self.prefix_token_id], tokens)

    def _fitted(self, context: list[int], continuation: list[int]) -> tuple[list[int], list[int], int, int]:
        """Both, cut on the left where they do not fit, and the tokens that each lost; one token of context stays."""
        kept = (context + continuation)[-self._most :]
        size = min(len(continuation), len(kept) - 1)
        cut = len(continuation) - size
        first = len(kept) - size
        return kept[:first], kept[first:], len(context) + len(continuation) - len(kept) - cut, cut


def _number(request: Instance) -> int:
    """The question that an answer belongs to: the same in every run, whatever the cache has already."""
    return zlib.crc32(f"{request.task_name} {request.doc_id}".encode()) & 0x7FFFFFFF


def _answer(result: LogLikelihood) -> tuple[float, bool]:
    """What the harness wants; no task that reads the second is answered with a bound."""
    return result.log_likelihood, bool(result.is_greedy)
