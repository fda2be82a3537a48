"""`python -m jaxlm.evaluate --workdir=DIR --out=FILE.json`: loss and bits per byte on held-out text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jaxlm import command_line
from jaxlm.errors import UserError
from jaxlm.fields import nearest

PARTS = ("loss", "baselines")


def main(argv: Sequence[str]) -> None:
    """Evaluates one checkpoint, prints a table, and writes the record as JSON, whole or not at all."""
    parser = command_line.Parser("evaluate", "validation loss, bits per byte, and what to compare them with")
    parser.add_argument("--workdir", required=True, metavar="DIR", help="a workdir of train or convert")
    parser.add_argument("--step", type=int, metavar="N", help="which checkpoint; without it the newest")
    parser.add_argument("--out", required=True, metavar="FILE.json", help="where the record goes")
    parser.add_argument("--split", default="validation", choices=("validation", "train"), help="which windows")
    parser.add_argument("--what", default=",".join(PARTS), help=f"any of {', '.join(PARTS)}, separated by commas")
    parser.add_argument("--draws", type=int, metavar="N", help="noise levels a window, diffusion only; without it 4")
    parser.add_argument("--limit", type=int, metavar="N", help="windows, spread over the split; without it all")
    parser.add_argument("--batch_size", type=int, metavar="N", help="windows a forward; without it 4,096 tokens")
    parser.add_argument("--seed", type=int, default=0, help="of the draws")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), help="compute type; without it float32 on a CPU")
    parser.add_argument("--data_dir", default="", metavar="DIR", help="other windows than the run's own")
    args = parser.parse(argv)
    for name in ("draws", "limit", "batch_size"):
        if (value := getattr(args, name)) is not None and value < 1:
            raise UserError(f"--{name} is {value}, allowed: at least 1")
    what = tuple(part.strip() for part in args.what.split(","))
    for part in what:
        if part not in PARTS:
            raise UserError(f"--what has {part!r}; {nearest(part, PARTS)}")

    from jaxlm.evaluation import record
    from jaxlm.study.evaluation import Settings, evaluate
    from jaxlm.training.workdir import write_json

    settings = Settings(
        what=what,
        step=args.step,
        split=args.split,
        limit=args.limit or 0,
        batch_size=args.batch_size or 0,
        draws=args.draws or 0,
        seed=args.seed,
        dtype=args.dtype,
        data_dir=args.data_dir,
    )
    out = Path(args.out)
    if out.is_dir() or not out.parent.is_dir():
        raise UserError(f"--out is {args.out!r}, allowed: a file in a directory that exists")
    values = evaluate(args.workdir, settings)
    write_json(out, values)
    print(f"{args.workdir}, step {values['step']}, parameters {values['parameter_hash'][:16]}")
    print(record.table(values))


if __name__ == "__main__":
    command_line.run(main)
