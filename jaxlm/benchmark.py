"""`python -m jaxlm.benchmark --what=train --config=FILE`: speed beside transformers, and how it was measured."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from pathlib import Path

from jaxlm import command_line
from jaxlm.config import RunConfig
from jaxlm.errors import UserError

# A module of `jaxlm.benchmarks` each, with Settings, measure(config, settings) and table(result).
WHAT = {"train": "the training step, in turns with the same architecture in transformers"}


def main(argv: Sequence[str]) -> None:
    """Measures, prints a table or JSON, and with --out writes the JSON to a file too."""
    parser = command_line.Parser("benchmark", "Speed on this CPU, with its conditions.", config=RunConfig)
    what_help = "; ".join(f"{name}: {doc}" for name, doc in WHAT.items())
    parser.add_argument("--what", default="train", choices=tuple(WHAT), help=what_help)
    parser.add_argument("--batch", type=int, default=2, help="windows of a step")
    parser.add_argument("--seq_len", type=int, default=512, help="positions of a window")
    parser.add_argument("--rounds", type=int, default=5, help="rounds that count, of each side; one before does not")
    parser.add_argument("--steps", type=int, default=3, help="steps of a round")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"), help="compute type")
    parser.add_argument("--out", metavar="FILE.json", help="write the JSON to this file too")
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    args = parser.parse(argv)
    for name, least in (("batch", 1), ("seq_len", 2), ("rounds", 1), ("steps", 1)):
        if (value := getattr(args, name)) < least:
            raise UserError(f"--{name} is {value}, allowed: at least {least}")
    if args.out and (Path(args.out).is_dir() or not Path(args.out).parent.is_dir()):
        raise UserError(f"--out is {args.out!r}, allowed: a file in a directory that exists")

    from jaxlm.training.workdir import write_json

    benchmark = importlib.import_module(f"jaxlm.benchmarks.{args.what}")
    settings = benchmark.Settings(args.batch, args.seq_len, args.rounds, args.steps, args.dtype)
    result = benchmark.measure(args.config, settings)
    if args.out:
        write_json(Path(args.out), result)
    print(json.dumps(result) if args.json else benchmark.table(result))


if __name__ == "__main__":
    command_line.run(main)
