"""`python -m jaxlm.convert`: turns an autoregressive model into a diffusion model by training through block sizes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jaxlm import command_line
from jaxlm.config import RunConfig


def main(argv: Sequence[str]) -> None:
    """Parses the flags and converts."""
    parser = command_line.Parser(
        "convert",
        "Autoregressive to diffusion: small blocks first, then the whole window. Resumes like train.",
        config=RunConfig,
    )
    parser.add_argument(
        "--workdir", required=True, metavar="DIR", help="where the conversion lives: new, empty, or the same run's"
    )
    parser.add_argument(
        "--init_from",
        required=True,
        metavar="SRC",
        help="the model to convert: a workdir, WORKDIR@STEP, or a Hugging Face directory",
    )
    args = parser.parse(argv)
    # Imported after the flags, so that a mistake in them is answered before JAX starts.
    from jaxlm.release.importing import read_model
    from jaxlm.training import loop

    loop.train(args.config, Path(args.workdir), kind="convert", init_from=args.init_from, read_foreign=read_model)


if __name__ == "__main__":
    command_line.run(main)
