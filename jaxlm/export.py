"""`python -m jaxlm.export --workdir=DIR --out=DIR2`: a model as a Hugging Face directory that runs in PyTorch.

Where one of transformers' own classes is the model exactly, it is exported as that class; else with code of ours.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jaxlm import command_line
from jaxlm.errors import UserError

if TYPE_CHECKING:
    from jaxlm.release.card import Origin
    from jaxlm.trained import Trained

VERIFICATION = "verification.json"  # in the workdir, for the report
FORMATS = ("auto", "native", "jaxlm")


def main(argv: Sequence[str]) -> None:
    """Writes the directory beside `--out`, verifies it if asked to, and only then gives it its name."""
    parser = command_line.Parser("export", "a model as a Hugging Face directory that runs in PyTorch")
    parser.add_argument("--workdir", required=True, metavar="DIR", help="a workdir of train or convert")
    parser.add_argument("--out", required=True, metavar="DIR2", help="a new or empty directory")
    parser.add_argument("--step", type=int, metavar="N", help="which checkpoint; without it the newest")
    parser.add_argument(
        "--format",
        default="auto",
        choices=FORMATS,
        help="native: a class of transformers; jaxlm: code that travels along; auto: native where it is the same model",
    )
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"), help="of the weights")
    parser.add_argument(
        "--verify",
        action="store_true",
        help="load it with transformers and compare with jaxlm; the result goes to WORKDIR/verification.json",
    )
    parser.add_argument("--python", metavar="FILE", help="the interpreter that --verify uses; without it this one")
    args = parser.parse(argv)
    if args.python and not args.verify:
        raise UserError(f"--python={args.python} belongs to --verify, allowed: with it")

    from jaxlm import trained as models
    from jaxlm.release import tables
    from jaxlm.release.card import model_card
    from jaxlm.release.directory import Release, rounded, whole_or_nothing, write
    from jaxlm.release.expectation import expect
    from jaxlm.release.verify import verify
    from jaxlm.training.workdir import write_json

    trained = models.load(args.workdir, args.step, "float32")
    trained = dataclasses.replace(trained, params=rounded(trained.params, args.dtype))
    # In a conversion the structure is that of the phase in which the checkpoint was made.
    objective = dataclasses.replace(trained.config.objective, block_size=trained.structure.block_size)
    config, origin, out = trained.model.config, _origin(Path(args.workdir), trained), Path(args.out)
    target = tables.choose(config, objective, args.format)
    release = Release(config, trained.params, trained.tokenizer, objective, target, args.dtype)
    with whole_or_nothing(out) as directory:
        write(release, model_card(release, origin), directory)
        if args.verify:
            says = (trained.logits, trained.generate, trained.tokenizer.encode_prompt)
            expected = expect(*says, release, origin.manifest["parameters"]["total"])
            result = verify(directory, release, expected, args.python or sys.executable)
            print("\n".join(result.lines()))
            if not result.passed:
                raise RuntimeError(f"{out} was not written: transformers and jaxlm do not agree, see above")
    if args.verify:
        write_json(Path(args.workdir) / VERIFICATION, {"step": trained.step, "dtype": args.dtype, **result.record()})
    print(f"{out}: {release.class_name}, step {trained.step} of {args.workdir}, {args.dtype}")


def _origin(workdir: Path, trained: Trained) -> Origin:
    """What the workdir, and the data directory if it is still there, tell about the parameters."""
    from jaxlm.data.windows import STATISTICS, read_fingerprint
    from jaxlm.release.card import Origin
    from jaxlm.training.metrics import read_lines
    from jaxlm.training.workdir import MANIFEST, read_json

    manifest, data_dir = read_json(workdir / MANIFEST), Path(trained.config.data.dir)
    evaluations = [line for line in read_lines(workdir) if "eval" in line and line["step"] == trained.step]
    data = read_fingerprint(data_dir)
    known = data is not None and data["data_sha256"] == manifest["data"]["data_sha256"]
    return Origin(
        config=trained.config,
        kind=trained.kind,
        step=trained.step,
        manifest=manifest,
        validation=evaluations[-1] if evaluations else None,
        data=data if known else None,
        statistics=json.loads((data_dir / STATISTICS).read_text("utf-8")) if known else None,
    )


if __name__ == "__main__":
    command_line.run(main)
