"""Benchmarks without a network: tasks of the harness made from the items in the source package of `bigbench` 1.0.0.

The items carry canary strings: they are for evaluation only, are never trained on, and are written nowhere but into a
cache directory of the user's. The package is Apache-2.0; the data sets it took items from keep their own terms. Each
task is called what it is, `bigbench_NAME`: the items of BIG-bench are not those of the benchmark of the same name, and
no score here may stand beside a published one of that name.

All of them are multiple choice in which the model never sees the list of options: an option is judged by its likelihood
after the question. Options stand in an order that does not depend on which is right (in the package the right one often
comes first, and a model that finds all options equal would be given it).
"""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
import tempfile
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxlm.errors import UserError
from jaxlm.evaluation.task_files import Item, definition, lines, ordered
from jaxlm.progress import Progress

VARIABLE, SDIST = "JAXLM_BIGBENCH", "bigbench-1.0.0.tar.gz"
DOWNLOAD = "pip download --no-deps --no-binary :all: bigbench==1.0.0"
TAG = "offline"  # what the harness's own command line knows all of them by
SUMS = "SHA256SUMS.json"
_ROOT = "bigbench/benchmark_tasks/"
_FORMAT = 1  # of the files below; another number makes them again


@dataclass(frozen=True)
class OfflineTask:
    """One task.

    Attributes:
      member: its file in the package, below the folder of all tasks.
      what: what is asked, in a line.
      num_items: how many items it has.
      choices: how many options an item has.
      query: the text before an option, with `{input}`; None where the task says more than a template can.
    """

    member: str
    what: str
    num_items: int
    choices: str
    query: str = "Question: {input}\nAnswer:"


TASKS: Mapping[str, OfflineTask] = {
    "bigbench_social_iqa": OfflineTask(
        "social_iqa/task.json", "why people do things and how they feel", 1954, "2-3", "Q: {input}\nA:"
    ),
    "bigbench_truthful_qa": OfflineTask(
        "truthful_qa/task_mc.json", "one true answer among common misbeliefs, after six examples", 299, "2-5",
        "{task_prefix}\nQ: {input}\nA:",
    ),
    "bigbench_winogrande_cloze": OfflineTask(
        "natural_instructions/subtask033_winogrande_answer_generation/task.json",
        "which of two names fits the gap; judged by the likelihood of what follows it", 1498, "2",
    ),
    "bigbench_strategyqa": OfflineTask("strategyqa/task.json", "yes or no, from several facts", 2290, "2"),
    "bigbench_com2sense": OfflineTask(
        "com2sense/big-bench-data.json", "is a sentence plausible, yes or no", 1874, "2",
        "Is the following sentence correct? {input}\nAnswer:",
    ),
    "bigbench_goal_inference": OfflineTask(
        "goal_step_wikihow/goal_inference/task.json", "what a step of wikiHow is good for", 1703, "4-5", "{input}"
    ),
    "bigbench_step_inference": OfflineTask(
        "goal_step_wikihow/step_inference/task.json", "which step leads to a goal of wikiHow", 2250, "4", "{input}"
    ),
    "bigbench_timedial": OfflineTask(
        "timedial/task.json", "which time fits a gap in a dialogue", 2550, "3", "{input}\nAnswer:"
    ),
    "bigbench_narrative_proverbs": OfflineTask(
        "abstract_narrative_understanding/4_distractors/task.json", "which proverb a short story means", 1000, "5",
        "{input}",
    ),
    "bigbench_understanding_fables": OfflineTask(
        "understanding_fables/task.json", "the moral of a fable", 189, "5", "{input}\nAnswer:"
    ),
    "bigbench_disambiguation_qa": OfflineTask(
        "disambiguation_qa/task.json", "whom a pronoun means, if that can be told", 258, "3-4",
        "Sentence: {input}\nPronoun identification:",
    ),
    "bigbench_implicatures": OfflineTask(
        "implicatures/task.json", "does an indirect answer mean yes or no", 492, "2",
        "Does Speaker 2's answer mean yes or no?\nQ: {input}\nA:",
    ),
    "bigbench_winowhy": OfflineTask(
        "winowhy/task.json", "is a reason for reading a pronoun so correct", 2865, "2",
        "{input}\nThe above reasoning is",
    ),
    "bigbench_cause_and_effect": OfflineTask(
        "cause_and_effect/one_sentence_no_prompt/task.json", "the likelier of two sentences, no question", 51, "2",
        "",
    ),
}  # fmt: skip


def directory(report: Callable[[str], None] = print) -> Path:
    """A folder with a YAML file and JSON lines for each task, for the harness's `include_path`.

    It is made on the first call, in $XDG_CACHE_HOME/jaxlm (or ~/.cache/jaxlm), and checked by its checksums on every
    other. Raises UserError with the command that gets the package where it is needed and is not there.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jaxlm"
    folder = cache / f"bigbench-1.0.0-{_FORMAT}"
    if not _is_whole(folder):
        sdist = _sdist()
        report(f"reading the items of {len(TASKS)} tasks from {sdist} into {folder} (evaluation only, once)")
        _make(sdist, folder)
    return folder


def _sdist() -> Path:
    given = Path(os.environ.get(VARIABLE) or ".")
    path = given / SDIST if given.is_dir() else given
    if not path.is_file():
        raise UserError(
            f"the offline tasks need {SDIST} (358 MB), which is not at {str(path)!r}; get it with `{DOWNLOAD}` and set "
            f"{VARIABLE} to the file or its folder, or run from there"
        )
    return path.resolve()


def _is_whole(folder: Path) -> bool:
    """Whether every file that was written is there, as it was."""
    try:
        sums = json.loads((folder / SUMS).read_text("utf-8"))
        return all(hashlib.sha256((folder / name).read_bytes()).hexdigest() == value for name, value in sums.items())
    except (OSError, ValueError):
        return False


def _make(sdist: Path, folder: Path) -> None:
    members = _members(sdist)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        scratch = Path(name) / "tasks"
        scratch.mkdir()
        for task, spec in TASKS.items():
            items = list(_items(task, spec, members[spec.member]))
            (scratch / f"{task}.jsonl").write_text(lines(items), "utf-8")
            # JSON is YAML. The path is that of the place where the folder will be.
            text = json.dumps(_definition(task, folder / f"{task}.jsonl", "ending" in items[0]), indent=2)
            (scratch / f"{task}.yaml").write_text(text, "utf-8")
        sums = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(scratch.iterdir())}
        (scratch / SUMS).write_text(json.dumps(sums), "utf-8")
        if folder.exists():  # broken: _is_whole said so
            os.replace(folder, Path(name) / "broken")
        os.replace(scratch, folder)


def _members(sdist: Path) -> dict[str, dict[str, Any]]:
    """The JSON files of all tasks, in one pass over the archive; nothing is unpacked."""
    wanted, found = {spec.member for spec in TASKS.values()}, {}
    try:
        with Progress(len(wanted), "bigbench", unit="task") as progress, tarfile.open(sdist, "r|gz") as archive:
            for member in archive:
                name = member.name.partition(_ROOT)[2]
                if name in wanted and (file := archive.extractfile(member)) is not None:
                    found[name] = json.load(file)
                    progress.update(len(found))
                if len(found) == len(wanted):
                    break
    except (tarfile.TarError, zlib.error, EOFError, ValueError) as error:
        raise UserError(f"{sdist} cannot be read ({error}), allowed: {SDIST} as `{DOWNLOAD}` gets it") from None
    if missing := wanted - found.keys():
        raise UserError(f"{sdist} has no {sorted(missing)[0]!r}, allowed: {SDIST} as `{DOWNLOAD}` gets it")
    return found


def _definition(task: str, items: Path, cloze: bool) -> dict[str, Any]:
    """Options after one query, or (cloze) one ending after each of several texts."""
    if cloze:
        return definition(task, items, tag=TAG, text="gold", target="ending", metrics=("acc",))
    return definition(task, items, tag=TAG)


def _items(task: str, spec: OfflineTask, content: Mapping[str, Any]) -> Iterator[Item]:
    examples = content["examples"]
    if task == "bigbench_winogrande_cloze":
        yield from _winogrande(examples)
        return
    for example in examples:
        if task == "bigbench_com2sense":
            text, scores = example["sent"], {"Yes": example["label"] == "True", "No": example["label"] != "True"}
        else:
            text, scores = example["input"], example["target_scores"]
        right = [option for option, score in scores.items() if score == 1]
        if len(right) != 1:
            continue  # there is no one answer
        options = ordered(scores, text)
        query = spec.query.format(input=text.strip(), task_prefix=content.get("task_prefix", "").strip())
        yield {"query": query, "choices": [o.strip() for o in options], "gold": options.index(right[0])}


def _winogrande(examples: Sequence[Mapping[str, Any]]) -> Iterator[Item]:
    """Pairs of sentences that are equal up to a gap, which another name fills in each: one's name is the other's foil.

    Sentences without such a twin (three in four) are left out: the package does not say what else could fill the gap.
    """
    twins: dict[str, dict[str, str]] = defaultdict(dict)  # what follows the gap, and the name that fits
    for example in examples:
        before, *after = example["input"].partition("\nQuestion: ")[2].split("_")
        if len(after) == 1:
            twins[before][after[0].strip()] = example["target"][0].strip().rstrip(".")
    for before, names in twins.items():
        if len(names) == 2 and len(set(names.values())) == 2:
            for ending, right in names.items():
                options = ordered([*names.values()], before + ending)
                yield {"choices": [before + o for o in options], "gold": options.index(right), "ending": ending}
