"""`python -m jaxlm.evaluate --workdir=DIR --out=FILE.json`: loss on held-out text, and with `--tasks` benchmarks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxlm import command_line
from jaxlm.errors import UserError
from jaxlm.evaluation.benchmark_table import CONTROLS
from jaxlm.fields import nearest

PARTS = ("loss", "baselines")
OF_TASKS = ("include_path", "num_fewshot", "mc_samples", "controls", "log_samples")


def main(argv: Sequence[str]) -> None:
    """Evaluates one checkpoint, prints a table, and writes the record as JSON, whole or not at all."""
    parser = command_line.Parser(
        "evaluate", "validation loss, bits per byte, benchmarks, and what to compare them with"
    )
    parser.add_argument("--workdir", required=True, metavar="DIR", help="a workdir of train or convert")
    parser.add_argument("--step", type=int, metavar="N", help="which checkpoint; without it the newest")
    parser.add_argument("--out", required=True, metavar="FILE.json", help="where the record goes")
    parser.add_argument("--split", default="validation", choices=("validation", "train"), help="which windows")
    parser.add_argument("--what", default=",".join(PARTS), help=f"any of {', '.join(PARTS)}, separated by commas")
    parser.add_argument("--draws", type=int, metavar="N", help="noise levels a window, diffusion only; without it 4")
    parser.add_argument("--limit", type=int, metavar="N", help="windows, with --tasks items of each; without it all")
    parser.add_argument("--batch_size", type=int, metavar="N", help="windows a forward; without it 4,096 tokens")
    parser.add_argument("--seed", type=int, default=0, help="of everything that is drawn")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), help="compute type; without it float32 on a CPU")
    parser.add_argument("--data_dir", default="", metavar="DIR", help="other windows than the run's own")
    parser.add_argument("--tasks", metavar="A,B", help="of lm-evaluation-harness, or study, mobilellm8, offline")
    parser.add_argument("--include_path", metavar="DIR", help="a folder with definitions of other tasks")
    parser.add_argument("--num_fewshot", type=int, metavar="N", help="examples; without it the study's")
    parser.add_argument("--mc_samples", type=int, metavar="N", help="masks an answer, diffusion only; without it 128")
    parser.add_argument("--controls", metavar="A,B", help=f"without it {','.join(CONTROLS)}; empty for none")
    parser.add_argument("--log_samples", action="store_true", default=None, help="also JSON lines a task beside --out")
    args = parser.parse(argv)
    for name, least in (("draws", 1), ("limit", 1), ("batch_size", 1), ("mc_samples", 1), ("num_fewshot", 0)):
        if (value := getattr(args, name)) is not None and value < least:
            raise UserError(f"--{name} is {value}, allowed: at least {least}")
    what, controls = _parts("what", args.what, PARTS), _parts("controls", args.controls, tuple(CONTROLS))
    if not what and args.tasks is None:
        raise UserError(f"--what is empty, allowed: any of {', '.join(PARTS)}, or --tasks")
    if args.tasks is None and (unused := [name for name in OF_TASKS if getattr(args, name) is not None]):
        raise UserError(f"--{unused[0]} is given without --tasks, allowed: with it")

    from jaxlm.evaluation import benchmark_table, record, tasks
    from jaxlm.study.benchmarks import Benchmarks, Questions
    from jaxlm.study.evaluation import Settings, evaluate
    from jaxlm.training import workdir

    out = Path(args.out)
    model: dict[str, Any] = {"step": args.step, "dtype": args.dtype, "seed": args.seed}
    sizes: dict[str, Any] = {name: getattr(args, name) or 0 for name in ("limit", "batch_size", "draws")}
    if args.tasks is not None:
        sizes["limit"] = 0  # the items' alone
    if out.is_dir() or not out.parent.is_dir():
        raise UserError(f"--out is {args.out!r}, allowed: a file in a directory that exists")
    workdir.read(args.workdir)
    benchmarks = None
    if args.tasks is not None:  # what is wrong with a task is said before anything is computed
        names, folder = tasks.expand(args.tasks.split(",")), args.include_path or ""
        chosen = tuple(CONTROLS) if args.controls is None else controls
        benchmarks = Benchmarks(
            Questions(names, folder, args.limit, args.num_fewshot, chosen, mc_samples=args.mc_samples, **model)
        )
    settings = Settings(what, split=args.split, data_dir=args.data_dir, windows_needed=not benchmarks, **sizes, **model)
    values = evaluate(args.workdir, settings)
    if benchmarks is not None:
        samples = out.with_name(f"{out.stem}_samples") if args.log_samples else None
        values |= benchmarks.of_workdir(Path(args.workdir), samples)
    values, kept = record.joined(record.read(out), values)
    if kept:
        print(f"{out} has {', '.join(kept)} of these parameters from before, which stay")
    workdir.write_json(out, values)
    print(f"{args.workdir}, step {values['step']}, parameters {values['parameter_hash'][:16]}")
    print("\n\n".join(filter(None, (record.table(values), benchmark_table.table(values)))))


def _parts(flag: str, text: str | None, known: Sequence[str]) -> tuple[str, ...]:
    parts = tuple(part.strip() for part in (text or "").split(",") if part.strip())
    for part in parts:
        if part not in known:
            raise UserError(f"--{flag} has {part!r}; {nearest(part, known)}")
    return parts


if __name__ == "__main__":
    command_line.run(main)
