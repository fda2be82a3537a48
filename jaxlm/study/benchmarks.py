"""Benchmark tasks of one model beside its controls, task by task, each kept as soon as it is finished."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

from jaxlm.evaluation import averages, scores, tasks
from jaxlm.training.workdir import read, read_json, write_json

FOLDER = "lm_eval"  # of a workdir: answers and finished tasks
MODEL = "model"  # beside the names of controls
NOTHING_CUT = {"contexts": 0, "continuations": 0, "tokens": 0}
Samples = Mapping[str, Sequence[Mapping[str, Any]]]


class Model(Protocol):
    """A model of the harness (an `lm_eval.api.model.TemplateLM`), and what a record says about its answers."""

    @property
    def cache_name(self) -> str:
        """Names its parameters and all settings that an answer depends on."""

    @property
    def mc_samples(self) -> int | None:
        """Masks of an answer; None where nothing is drawn."""

    @property
    def truncated(self) -> Mapping[str, Mapping[str, int]]:
        """By task: how many contexts and continuations did not fit, and the tokens that were cut."""

    @property
    def mc_stderr(self) -> Mapping[str, float]:
        """By task: the mean Monte-Carlo standard error of a log-likelihood, in nats; empty where nothing is drawn."""


@dataclass(frozen=True)
class Questions:
    """What is asked: task names (groups taken apart), items of each task, examples, controls, and of which model.

    Without `limit` all items, without `num_fewshot` the study's examples; `step`, `dtype` and `mc_samples` are as in
    `harness.from_workdir`.
    """

    tasks: tuple[str, ...]
    include_path: str = ""
    limit: int | None = None
    num_fewshot: int | None = None
    controls: tuple[str, ...] = ()
    step: int | None = None
    dtype: str | None = None
    mc_samples: int | None = None
    seed: int = 0


class Benchmarks:
    """The tasks of some questions, found and their data read, to be put to a model.

    Raises UserError for an unknown task and for data that cannot be read, before anything is computed.
    """

    def __init__(self, questions: Questions) -> None:
        self.questions = questions
        catalogue = tasks.Catalogue(questions.tasks, questions.include_path)
        asked = questions.num_fewshot
        self.loaded = {
            name: catalogue.load(name, tasks.shots(name) if asked is None else asked) for name in questions.tasks
        }

    @functools.cached_property
    def _digests(self) -> dict[str, str]:
        """Of definitions and items, once for all models that are asked."""
        return {name: tasks.digest(loaded, self.questions.limit) for name, loaded in self.loaded.items()}

    def of_workdir(
        self, workdir: Path, samples_to: Path | None = None, *, reading: str = "", folder: Path | None = None
    ) -> dict[str, Any]:
        """`run` for a checkpoint, kept in `folder`, without one in the workdir; `reading` as in `harness`."""
        from jaxlm.study import harness  # lm-eval is optional

        q = self.questions
        masks = {} if q.mc_samples is None else {"mc_samples": q.mc_samples}

        def build(random_init: bool) -> Model:
            return harness.from_workdir(
                workdir, step=q.step, dtype=q.dtype, seed=q.seed, random_init=random_init, reading=reading, **masks
            )

        config, _ = read(workdir)
        return self.run(folder or workdir / FOLDER, build, config.model.vocab_size, samples_to)

    def run(
        self,
        folder: Path,
        build: Callable[[bool], Model],
        vocab_size: int,
        samples_to: Path | None = None,
        report: Callable[[str], None] = print,
    ) -> dict[str, Any]:
        """`tasks`, `items` and the means, as `evaluate` writes them.

        What is in `folder` for the same model, definition and items is not asked again: a finished task is read, one
        that was begun goes on from the harness's cache of its answers.

        Args:
          folder: where answers are kept.
          build: the model; given True, the same architecture with fresh parameters.
          vocab_size: rows of its vocabulary.
          samples_to: a folder for JSON lines a task: what was answered to every item. None for nowhere.
          report: is given a line for each task.
        """
        folder.mkdir(parents=True, exist_ok=True)
        models = functools.cache(build)
        records: dict[str, Any] = {}
        items: dict[str, Any] = {}
        if (draws := models(False).mc_samples) is not None:
            report(self._cost(draws))
        for name, loaded in self.loaded.items():
            digest = self._digests[name]
            kept = {
                who: self._answered(name, who, digest, models(who == "random_init"), vocab_size, folder, report)
                for who in (MODEL, *self.questions.controls)
            }
            found = {who: read_json(path) for who, path in kept.items()}
            of_tasks = {
                task: {
                    **record,
                    "controls": {c: scores.short(found[c]["tasks"][task]) for c in self.questions.controls},
                }
                for task, record in found[MODEL]["tasks"].items()
            }
            records |= {name: _group(of_tasks)} if name in loaded["groups"] else of_tasks
            items |= found[MODEL]["items"]
            if samples_to is not None:
                samples_to.mkdir(exist_ok=True)
                (samples_to / f"{_file_name(name)}.jsonl").write_bytes(kept[MODEL].with_suffix(".jsonl").read_bytes())
        return {"tasks": records, **averages.means(records), "items": items}

    def _cost(self, draws: int) -> str:
        """What all of the tasks take, at most, of a model whose answers are bounds, and how to have it cheaper."""
        answers = sum(tasks.num_answers(loaded, self.questions.limit) for loaded in self.loaded.values())
        asked = 1 + ("random_init" in self.questions.controls)
        return (
            f"{answers:,} answers, up to {draws} masks each (one where an answer is one token), asked of {asked} "
            f"{'models' if asked > 1 else 'model'}: at most {answers * draws * asked:,} rows; a quarter of them with "
            f"--mc_samples={max(2, draws // 8 * 2)}, for twice the Monte-Carlo error"
            + ("; half of them with --controls=length_only" if asked > 1 else "")
        )

    def _answered(
        self,
        name: str,
        who: str,
        digest: str,
        model: Model,
        vocab_size: int,
        folder: Path,
        report: Callable[[str], None],
    ) -> Path:
        """The file with what `who` scores, asked now if it is not there; the answers are in JSON lines beside it."""
        import lm_eval

        loaded, limit = self.loaded[name], self.questions.limit
        parts = (lm_eval.__version__, model.cache_name, limit, digest)
        key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
        path = folder / f"{_file_name(name)}-{who}-{key}.json"
        if path.is_file():
            report(f"{name}, {who}: finished before, in {path}")
            return path
        counts = [len(task.eval_docs) for task in loaded["tasks"].values()]
        report(f"{name}, {who}: {sum(min(count, limit or count) for count in counts):,} items")
        if who == "length_only":
            from jaxlm.evaluation.controls import LengthOnly

            samples = tasks.ask(LengthOnly(cast(Any, model), vocab_size), loaded, limit)
        else:
            with _cached(model, path.with_suffix(".db")) as lm:
                samples = tasks.ask(lm, loaded, limit)
        found = {task: scores.Items.read(task, samples[task]) for task in samples}
        records = {task: of_task.record() for task, of_task in found.items()}
        if who == MODEL:
            for task, record in records.items():
                record |= _about(loaded["tasks"][task], samples[task], record["metric"])
                record["truncated"] = {**NOTHING_CUT, **model.truncated.get(task, {})}
                record["mc_stderr"] = model.mc_stderr.get(task)
        _write_lines(path.with_suffix(".jsonl"), samples)
        write_json(path, {"tasks": records, "items": {task: of_task.compact() for task, of_task in found.items()}})
        path.with_suffix(".db").unlink(missing_ok=True)
        return path


def _about(task: Any, samples: Sequence[Mapping[str, Any]], metric: str) -> dict[str, Any]:
    """What does not depend on the model."""
    first = [sample for sample in samples if sample["filter"] == samples[0]["filter"]]
    return {
        "chance": scores.chance(task, first, metric),
        "num_fewshot": task.get_config("num_fewshot"),
        "output_type": task.OUTPUT_TYPE,
        "version": task.VERSION,
        "items_sha256": hashlib.sha256("".join(sample["doc_hash"] for sample in first).encode()).hexdigest(),
    }


def _group(records: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The record of a group: averages over its items, with the tasks it is made of under `subtasks`."""
    parts = list(records.values())
    sizes, first = [part["n"] for part in parts], parts[0]
    average, errors = scores.over(parts, sizes), [part["mc_stderr"] for part in parts]
    return {
        **average,
        "metric": first["metric"],
        "stderr": average["acc_stderr"],
        "n": sum(sizes),
        "other": {},
        "chance": scores.weighted([part["chance"] for part in parts], sizes),
        "num_fewshot": first["num_fewshot"],
        "output_type": first["output_type"],
        "version": first["version"],
        "truncated": {key: sum(part["truncated"][key] for part in parts) for key in NOTHING_CUT},
        "mc_stderr": None if None in errors else scores.weighted(errors, sizes),
        "controls": {
            control: scores.over([part["controls"][control] for part in parts], sizes) for control in first["controls"]
        },
        "subtasks": dict(records),
    }


@contextlib.contextmanager
def _cached(model: Any, path: Path) -> Iterator[Any]:
    """The model behind the harness's cache of answers, which a killed evaluation goes on from."""
    from lm_eval.api.model import CachingLM

    cached = CachingLM(model, str(path))
    try:
        yield cached
    finally:
        cached.dbdict.close()


def _file_name(task: str) -> str:
    return task.replace("/", "_")


def _write_lines(path: Path, samples: Samples) -> None:
    """What was answered to every item, whole or not at all: a line an item, and a filter where a task has several."""
    from lm_eval.utils import handle_non_serializable

    temporary = path.with_name(f"{path.name}.tmp-{os.getpid()}")
    with temporary.open("w", encoding="utf-8") as file:
        for task, of_task in samples.items():
            for sample in of_task:
                file.write(json.dumps(_line(task, sample), default=handle_non_serializable) + "\n")
    os.replace(temporary, path)


def _line(task: str, sample: Mapping[str, Any]) -> dict[str, Any]:
    answers = sample["filtered_resps"]
    chosen = isinstance(answers[0], tuple | list)
    return {
        "task": task,
        "doc_id": sample["doc_id"],
        "doc_hash": sample["doc_hash"],
        "filter": sample["filter"],
        "gold": sample["target"],
        **({"log_likelihoods": [float(answer[0]) for answer in answers]} if chosen else {"text": answers[0]}),
        **{metric: sample[metric] for metric in sample["metrics"]},
    }
