"""`python -m jaxlm.lm_eval ...`: the command line of lm-evaluation-harness, which knows `--model jaxlm` then.

lm-eval 0.4.13 finds no models of other packages by itself, so this imports ours and then is its `lm-eval`.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import multiprocessing
import sys
from collections.abc import Sequence

from jaxlm import command_line
from jaxlm.errors import UserError

USAGE = """lm_eval run --model jaxlm --model_args workdir=DIR --tasks TASK ...

What `lm-eval` knows: run (which may be left out), ls, validate; `jaxlm lm_eval run --help` lists the flags.

--model_args, separated by commas: workdir=DIR, step=N, dtype=float32|bfloat16, max_length=N (positions of a prompt and
its answer), batch_tokens=N (positions of a forward), seed=N, prefix_token_id=N (what an empty context is); for
diffusion mc_samples=N (masks of an answer) and, to write, steps=N and block_size=N. random_init=True: fresh weights.
--use_cache=FILE keeps the answers of one model: the same command goes on where it was killed."""


def main(argv: Sequence[str]) -> None:
    """Runs the harness on these arguments; what it finds wrong with them is one line."""
    if not argv or argv[0] in ("--help", "-h"):
        print(f"usage: jaxlm {USAGE}")
        raise SystemExit(command_line.EXIT_OK)
    try:
        from lm_eval._cli import HarnessCLI
        from lm_eval.config.evaluate_config import EvaluatorConfig
        from lm_eval.utils import setup_logging
    except ModuleNotFoundError as error:
        raise UserError(
            f"lm_eval needs the package {error.name}; install the extra: pip install 'jaxlm[eval]'"
        ) from None

    importlib.import_module("jaxlm.study.harness")  # registers the model
    # The harness starts processes for its tables and bootstraps; a fork would have JAX's threads half-way.
    multiprocessing.set_start_method("spawn", force=True)
    setup_logging()
    cli, errors, before = HarnessCLI(), io.StringIO(), sys.argv
    sys.argv = ["lm-eval", *argv]
    try:
        with contextlib.redirect_stderr(errors):
            args = cli.parse_args()
        if args.command == "run":
            if not (args.tasks or args.config):
                raise UserError("--tasks is missing, allowed: what `lm_eval ls tasks` lists, or a YAML file")
            EvaluatorConfig.from_cli(args)  # the harness does it again, and shows a traceback
    except SystemExit as stop:
        if stop.code:
            raise UserError(errors.getvalue().rpartition("error: ")[2]) from None
        raise
    except (ValueError, FileNotFoundError) as error:
        raise UserError(str(error)) from error
    finally:
        sys.argv = before
    try:
        cli.execute(args)
    except ValueError as error:
        if str(error).startswith("Tasks not found"):
            raise UserError(f"{error}, allowed: what `lm_eval ls tasks` lists, or a YAML file") from None
        raise


if __name__ == "__main__":
    command_line.run(main)
