"""`python -m jaxlm.benchmark --what=train|decode|prepare`: speed, and how it was measured."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxlm import command_line
from jaxlm.benchmarks.conditions import cores
from jaxlm.config import RunConfig
from jaxlm.errors import UserError

# Modules of `jaxlm.benchmarks` with Settings, measure(config, settings), table(result): what they do, flags, defaults.
WHAT: dict[str, tuple[str, dict[str, Any]]] = {
    "train": (
        "the training step, in turns with the same architecture in transformers",
        {"batch": "2", "seq_len": 512, "rounds": 5, "steps": 3, "dtype": "float32"},
    ),
    "decode": (
        "autoregressive, in transformers, and diffusion in many ways; speed, and of trained models quality",
        {
            **{"workdir": [], "twin": "", "batch": "1,32", "prompt_tokens": 32, "new_tokens": 100, "block_size": 32},
            **{"rounds": 3, "texts": 32, "dtype": "float32", "plot": ""},
        },
    ),
    "prepare": ("prepare_data of the study's mix, made up", {"sizes": "10M,100M", "processes": cores()}),
}
LEAST = {"seq_len": 2, "texts": 2}  # of every other number 1


def main(argv: Sequence[str]) -> None:
    """Measures, prints a table or JSON, and with --out writes the JSON to a file too."""
    parser = command_line.Parser("benchmark", "Speed, with its conditions.", config=RunConfig, config_needed=False)
    what_help = "; ".join(f"{name}: {doc}" for name, (doc, _) in WHAT.items())
    parser.add_argument("--what", default="train", choices=tuple(WHAT), help=what_help)
    parser.add_argument("--batch", help="rows of a step (train: 2), or numbers of rows by commas (decode: 1,32)")
    parser.add_argument("--seq_len", type=int, help="train: positions of a window; 512")
    parser.add_argument("--rounds", type=int, help="rounds that count, of each side; one before does not")
    parser.add_argument("--steps", type=int, help="train: steps of a round; 3")
    parser.add_argument("--workdir", action="append", help="decode: a diffusion run; repeatable")
    parser.add_argument("--twin", help="decode: the autoregressive run of the same architecture; judges the texts")
    parser.add_argument("--prompt_tokens", type=int, help="decode: tokens before what is written; 32")
    parser.add_argument("--new_tokens", type=int, help="decode: tokens that are written; 100")
    parser.add_argument("--block_size", type=int, help="decode: of random weights that read in blocks; 32")
    parser.add_argument("--texts", type=int, help="decode: continuations that quality is judged by; 32")
    parser.add_argument("--sizes", help="prepare: numbers of tokens by commas; 10M,100M")
    parser.add_argument("--processes", type=int, help="prepare: that encode; one for each core")
    parser.add_argument("--plot", metavar="FILE.png", help="decode: a picture of speed against quality")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), help="compute type; float32")
    parser.add_argument("--out", metavar="FILE.json", help="write the JSON to this file too")
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    args = parser.parse(argv)
    settings = _settings(args)
    if args.config is None and args.what != "prepare" and not settings.get("workdirs"):
        raise UserError("--config is missing, allowed: a file of configs/, or of --what=decode --workdir and --twin")
    for name in ("out", "plot"):
        value = getattr(args, name)
        if value and (Path(value).is_dir() or not Path(value).parent.is_dir()):
            raise UserError(f"--{name} is {value!r}, allowed: a file in a directory that exists")

    from jaxlm.training.workdir import write_json

    benchmark = importlib.import_module(f"jaxlm.benchmarks.{args.what}")
    result = benchmark.measure(args.config, benchmark.Settings(**settings))
    if args.out:
        write_json(Path(args.out), result)
    if args.plot:
        benchmark.plot(result, Path(args.plot))
    print(json.dumps(result) if args.json else benchmark.table(result))


def _settings(args: Any) -> dict[str, Any]:
    """The flags that the benchmark reads, under the names of its Settings; one that it does not read is refused."""
    known = WHAT[args.what][1]
    for name in {name for _, flags in WHAT.values() for name in flags} - known.keys():
        if getattr(args, name) is not None:
            raise UserError(f"--{name} is not read by --what={args.what}, allowed: {', '.join(known)}")
    found = {name: default if getattr(args, name) is None else getattr(args, name) for name, default in known.items()}
    for name, value in found.items():
        if isinstance(value, int) and value < (least := LEAST.get(name, 1)):
            raise UserError(f"--{name} is {value}, allowed: at least {least}")
    if args.what == "prepare":
        return found
    rows = found["batch"].split(",")
    if not all(text.isdecimal() and int(text) for text in rows) or (args.what == "train" and len(rows) > 1):
        raise UserError(f"--batch is {found['batch']!r}, allowed: a number of rows, of decode also several by commas")
    if args.what == "train":
        return found | {"batch": int(rows[0])}
    if args.config is not None and found["workdir"]:
        raise UserError("--config and --workdir are both given, allowed: one of them")
    del found["batch"], found["plot"]
    return found | {"batches": tuple(map(int, rows)), "workdirs": tuple(found.pop("workdir"))}


if __name__ == "__main__":
    command_line.run(main)
