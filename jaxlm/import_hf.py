"""`python -m jaxlm.import_hf --model=DIR --workdir=DIR2`: somebody else's model as a workdir."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxlm import command_line

if TYPE_CHECKING:
    from jaxlm.config import RunConfig
    from jaxlm.release.importing import Imported

SEQ_LEN = 1024  # of windows to evaluate on, where the model takes as many
STEP = 0


def main(argv: Sequence[str]) -> None:
    """Reads the model, and writes a workdir that looks like that of a run which is complete at step 0."""
    parser = command_line.Parser("import_hf", "a Hugging Face model as a workdir")
    parser.add_argument(
        "--model", required=True, metavar="DIR", help="a directory, a .gguf file, or a hub id OWNER/NAME"
    )
    parser.add_argument("--workdir", required=True, metavar="DIR2", help="a new or empty directory")
    args = parser.parse(argv)

    from jaxlm.families import build_model
    from jaxlm.release.directory import whole_or_nothing
    from jaxlm.release.hub import directory_of
    from jaxlm.release.importing import read_model
    from jaxlm.training import checkpoint, workdir
    from jaxlm.training.flops import parameter_counts

    out = Path(args.workdir)
    with whole_or_nothing(out, "--workdir") as directory:
        imported = read_model(directory_of(args.model))
        model, config = build_model(imported.config), _run(imported)
        counts = parameter_counts(model)
        workdir.create(directory, config, "train", _manifest(imported, args.model, counts), imported.tokenizer)
        checkpoint.write_params(directory, STEP, imported.params)
        workdir.mark_complete(directory, {"step": STEP})
    for line in imported.warnings:
        print(f"jaxlm: {line}", file=sys.stderr)
    parts = ", ".join(f"{name} {count:,}" for name, count in counts["by_part"].items())
    print(f"{out}: {imported.class_name} as {imported.config.family}, {counts['total']:,} parameters ({parts})")
    print(
        f"next: python -m jaxlm.generate --workdir={out} --prompt=TEXT; export takes it as it is; evaluate, train and "
        f"convert (--init_from={out}) need windows of its tokenizer: prepare_data --config.tokenizer={out}/tokenizer"
    )


def _run(imported: Imported) -> RunConfig:
    """The configuration of a run that has nothing left to do."""
    from jaxlm.config import RunConfig, TrainConfig

    seq_len = max(min(SEQ_LEN, imported.config.max_positions), imported.objective.block_size or 0)
    train = TrainConfig(seq_len=seq_len, batch_tokens=seq_len, total_tokens=seq_len)
    return RunConfig(model=imported.config, objective=imported.objective, train=train)


def _manifest(imported: Imported, model: str, counts: dict[str, Any]) -> dict[str, Any]:
    from jaxlm.training import workdir

    return {
        **workdir.environment(),
        "parameters": counts,
        "data": {"data_sha256": None, "tokenizer_sha256": imported.tokenizer.sha256()},
        "init_from": None,
        "source": {"model": model, "class": imported.class_name, "weights_sha256": imported.source_sha256},
    }


if __name__ == "__main__":
    command_line.run(main)
