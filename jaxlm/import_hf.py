"""`python -m jaxlm.import_hf --model=DIR --workdir=DIR2`: somebody else's model as a workdir."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from jaxlm import command_line


def main(argv: Sequence[str]) -> None:
    """Reads the model, and writes a workdir that looks like that of a run which is complete at step 0."""
    parser = command_line.Parser("import_hf", "a Hugging Face model as a workdir")
    parser.add_argument(
        "--model", required=True, metavar="DIR", help="a directory, a .gguf file, or a hub id OWNER/NAME"
    )
    parser.add_argument("--workdir", required=True, metavar="DIR2", help="a new or empty directory")
    args = parser.parse(argv)

    from jaxlm.study.importing import import_model

    out = Path(args.workdir)
    imported, counts = import_model(args.model, out)
    for line in imported.warnings:
        print(f"jaxlm: {line}", file=sys.stderr)
    parts = ", ".join(f"{name} {count:,}" for name, count in counts["by_part"].items())
    print(f"{out}: {imported.class_name} as {imported.config.family}, {counts['total']:,} parameters ({parts})")
    print(
        f"next: python -m jaxlm.generate --workdir={out} --prompt=TEXT; export takes it as it is; evaluate, train and "
        f"convert (--init_from={out}) need windows of its tokenizer: prepare_data --config.tokenizer={out}/tokenizer"
    )


if __name__ == "__main__":
    command_line.run(main)
