"""Which benchmark tasks there are, and the harness's objects for them: our groups, the shots, what a task needs.

A task is one of lm-evaluation-harness's, one of a folder of YAML files (`include_path`), or one of `bigbench_tasks`.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxlm.errors import UserError
from jaxlm.evaluation import bigbench_tasks
from jaxlm.fields import nearest

STUDY_6 = ("hellaswag", "piqa", "winogrande", "arc_challenge", "mmlu", "truthfulqa_mc2")
STUDY = (*STUDY_6, "gsm8k")
MOBILELLM_8 = ("arc_easy", "arc_challenge", "boolq", "piqa", "social_iqa", "hellaswag", "openbookqa", "winogrande")
GROUPS: Mapping[str, tuple[str, ...]] = {
    "study": STUDY,
    "mobilellm8": MOBILELLM_8,
    "offline": tuple(bigbench_tasks.TASKS),
}
ABOUT = {
    "study": "the study's seven: MMLU and GSM8K with 5 examples, the others with none",
    "mobilellm8": "the eight of MobileLLM, without examples",
    "offline": f"{len(bigbench_tasks.TASKS)} tasks made here from the items of the package bigbench; need no network",
}
SHOTS = {"mmlu": 5, "gsm8k": 5}  # of the model card of gpt-2-70m, and the harness's own for GSM8K
MULTIPLE_CHOICE = "multiple_choice"
_FEWSHOT_SEED = 1234  # the harness's own default


def shots(task: str) -> int | None:
    """With how many examples the study asks a task; None leaves it to the task, whose own default mostly is none."""
    return SHOTS.get(task)


def expand(names: Sequence[str]) -> tuple[str, ...]:
    """Task names with our groups taken apart, each once, in order. Raises UserError where nothing is named."""
    tasks = tuple(dict.fromkeys(task for name in names if name for task in GROUPS.get(name, (name,))))
    if not tasks:
        raise UserError(f"--tasks names no task, allowed: {', '.join(GROUPS)}, or tasks of lm-evaluation-harness")
    return tasks


class Catalogue:
    """The tasks that the harness knows, from the folders that these `names` need.

    Args:
      names: of tasks, as `expand` gives them.
      include_path: a folder of the user's with task definitions, or "".

    Raises UserError for an unknown name (with the nearest ones), without lm-eval, or without the items of `offline`.
    """

    def __init__(self, names: Sequence[str], include_path: str = "") -> None:
        try:
            from lm_eval.tasks import TaskManager
        except ImportError as error:
            raise UserError(f"--tasks needs lm-eval ({error}), allowed: pip install 'jaxlm[eval]'") from None
        if include_path and not Path(include_path).is_dir():
            raise UserError(f"--include_path is {include_path!r}, allowed: a folder with task definitions (.yaml)")
        folders = [include_path] if include_path else []
        if any(name in bigbench_tasks.TASKS for name in names):
            folders.append(str(bigbench_tasks.directory()))
        self._manager = TaskManager(include_path=folders, include_defaults=False)
        if any(name not in self._manager.task_index for name in names):
            self._manager = TaskManager(include_path=folders)  # takes seconds: 13,000 definitions
        for name in names:
            if name not in self._manager.task_index:
                known = {*self._manager.all_tasks, *GROUPS, *bigbench_tasks.TASKS}
                raise UserError(f"no task {name!r}; {nearest(name, known)}")

    def has(self, name: str) -> bool:
        """Whether there is a task of this name in the folders that were read."""
        return name in self._manager.task_index

    def load(self, name: str, num_fewshot: int | None) -> dict[str, Any]:
        """The harness's `{"tasks": ..., "groups": ...}` of one name, its data read; `num_fewshot` overrules the task.

        As in the harness, a task whose definition says 0 stays without examples. Raises UserError where the data are
        neither here nor can be fetched, and for a task that has no score by item.
        """
        try:
            loaded: dict[str, Any] = dict(self._manager.load([name]))
        # Of the hub's, datasets' and HTTP libraries, which share no base class; a fault of a definition is the user's.
        except Exception as error:
            why = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            raise UserError(
                f"the data of task {name!r} cannot be read ({why}), allowed: a connection to the Hugging Face hub, the "
                "data set in the hub's cache (HF_HOME), a definition with local files in --include_path, or "
                "--tasks=offline, which needs no network"
            ) from error
        for task_name, task in loaded["tasks"].items():
            if task.OUTPUT_TYPE == "loglikelihood_rolling":
                raise UserError(f"task {task_name!r} has no score by item, allowed: `python -m jaxlm.lm_eval` runs it")
            own = task.get_config("num_fewshot")
            if own != 0:
                task.set_config("num_fewshot", num_fewshot if num_fewshot is not None else own or 0)
        return loaded


def ask(lm: Any, loaded: Mapping[str, Any], limit: int | None) -> dict[str, list[dict[str, Any]]]:
    """Every item of loaded tasks put to a model of the harness: by task, its samples as it logs them, in order.

    `limit` is the number of items of each task; None for all. Every model is given the same examples.
    """
    from lm_eval.evaluator import evaluate

    for task in loaded["tasks"].values():
        task.set_fewshot_seed(_FEWSHOT_SEED)
    # Standard errors are ours to compute, from the items, without its bootstrap.
    return dict(evaluate(lm=lm, task_dict=loaded, limit=limit, bootstrap_iters=0)["samples"])


def num_answers(loaded: Mapping[str, Any], limit: int | None) -> int:
    """Options of all the items that are asked of loaded tasks; none of a task whose answer is written."""
    return sum(
        len(task.doc_to_choice(doc))
        for task in loaded["tasks"].values()
        if task.OUTPUT_TYPE == MULTIPLE_CHOICE
        for doc in itertools.islice(task.eval_docs, limit)
    )


def digest(loaded: Mapping[str, Any], limit: int | None) -> str:
    """SHA-256 over the definitions of loaded tasks and the items that are asked, examples included."""
    out = hashlib.sha256()
    for name, task in loaded["tasks"].items():
        out.update(json.dumps([name, task.dump_config()], sort_keys=True, default=str).encode())
        examples = task.fewshot_docs() if task.get_config("num_fewshot") else []
        for doc in itertools.chain(itertools.islice(task.eval_docs, limit), examples):
            out.update(json.dumps(doc, sort_keys=True, default=str).encode())
    return out.hexdigest()
