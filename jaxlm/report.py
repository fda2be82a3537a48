"""`python -m jaxlm.report --workdir=A --workdir=B --out=report.md`: runs beside one another, with pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jaxlm import command_line
from jaxlm.errors import UserError


def main(argv: Sequence[str]) -> None:
    """Reads the workdirs and writes the report; prints its path last."""
    parser = command_line.Parser("report", __doc__.split(": ", 1)[1])
    parser.add_argument("--workdir", action="append", required=True, metavar="DIR", help="a run's; repeatable")
    parser.add_argument("--out", default="report.md", metavar="FILE.md", help="pictures go to FILE_files/ beside it")
    args = parser.parse(argv)
    if Path(args.out).suffix != ".md":
        raise UserError(f"--out is {args.out!r}, allowed: a file that ends in .md")

    from jaxlm.study import report, results

    runs = results.read_all(args.workdir)
    try:
        report.write(runs, Path(args.out))
    except OSError as error:
        raise UserError(f"--out={args.out} cannot be written ({error.strerror})") from None
    print(args.out)


if __name__ == "__main__":
    command_line.run(main)
