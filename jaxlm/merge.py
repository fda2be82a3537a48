"""`python -m jaxlm.merge --workdir=DIR --top_k=3 --out=DIR2`: the mean of a run's best checkpoints as a workdir."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jaxlm import command_line
from jaxlm.errors import UserError


def main(argv: Sequence[str]) -> None:
    """Merges, and says which checkpoints with which losses."""
    parser = command_line.Parser("merge", "the mean of the best checkpoints of a run's last phase, as a workdir")
    parser.add_argument("--workdir", required=True, metavar="DIR", help="a workdir of train or convert")
    parser.add_argument("--top_k", type=int, default=3, metavar="K", help="so many, by least validation loss")
    parser.add_argument("--out", required=True, metavar="DIR2", help="a new or empty directory")
    args = parser.parse(argv)
    if args.top_k < 1:
        raise UserError(f"--top_k is {args.top_k}, allowed: at least 1")

    from jaxlm.release.directory import whole_or_nothing
    from jaxlm.training.merge import merge

    out = Path(args.out)
    with whole_or_nothing(out) as directory:
        merged = merge(Path(args.workdir), args.top_k, directory)
    losses = ", ".join(f"step {found.step:,} ({found.loss:.4f})" for found in merged)
    print(f"{out}: the mean of {len(merged)} checkpoints of {args.workdir} (validation loss): {losses}")
    print(f"next: python -m jaxlm.evaluate --workdir={out} --out={out}/evaluation.json")


if __name__ == "__main__":
    command_line.run(main)
