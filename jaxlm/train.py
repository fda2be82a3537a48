"""`python -m jaxlm.train`: trains a model in a workdir, or goes on where the same command stopped."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jaxlm import command_line
from jaxlm.config import RunConfig


def main(argv: Sequence[str]) -> None:
    """Parses the flags and trains."""
    parser = command_line.Parser(
        "train", "Trains a model; the same command again goes on, or says that all is done.", config=RunConfig
    )
    parser.add_argument(
        "--workdir", required=True, metavar="DIR", help="where the run lives: new, empty, or the same run's"
    )
    parser.add_argument(
        "--init_from", metavar="SRC", help="start from a workdir, WORKDIR@STEP, or a Hugging Face directory"
    )
    args = parser.parse(argv)
    # Imported after the flags, so that a mistake in them is answered before JAX starts.
    from jaxlm.release.importing import read_model
    from jaxlm.training import loop

    loop.train(args.config, Path(args.workdir), kind="train", init_from=args.init_from, read_foreign=read_model)


if __name__ == "__main__":
    command_line.run(main)
