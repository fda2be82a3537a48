"""`jaxlm COMMAND ...`: the console script; each command is also `python -m jaxlm.COMMAND`."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from jaxlm import command_line
from jaxlm.errors import UserError
from jaxlm.fields import nearest

COMMANDS = {
    "prepare_data": "text to fixed windows on disk",
    "train": "train a model, or go on training it",
    "convert": "autoregressive model to diffusion model",
    "merge": "the best checkpoints of a run as one model",
    "evaluate": "validation loss, bits per byte, baselines, benchmarks",
    "lm_eval": "the command line of lm-evaluation-harness, with models of jaxlm",
    "generate": "text from a model",
    "export": "a Hugging Face directory",
    "import_hf": "a Hugging Face model as a workdir",
    "size": "parameters, FLOPs and memory of a configuration",
    "compile": "does the training step fit a GPU that is not here?",
    "fingerprint": "what must be equal on every machine",
    "benchmark": "speed beside PyTorch on this CPU",
    "study": "many runs: trained, evaluated, compared, and what they would cost",
    "report": "runs beside one another, with pictures",
    "list": "families, sources of text, tasks and configs",
}


def module_of(command: str) -> str:
    """The module whose `main` is a command; that of a package is a module of its own."""
    return "jaxlm.study.__main__" if command == "study" else f"jaxlm.{command}"


def _main(argv: Sequence[str]) -> None:
    if not argv or argv[0] in ("--help", "-h"):
        print("usage: jaxlm COMMAND [flags]; jaxlm COMMAND --help tells more\n")
        print("\n".join(f"  {name:<14} {doc}" for name, doc in COMMANDS.items()))
        return
    if argv[0] not in COMMANDS:
        raise UserError(f"no command {argv[0]!r}; {nearest(argv[0], COMMANDS)}")
    importlib.import_module(module_of(argv[0])).main(argv[1:])


def main() -> None:
    """Entry point of the console script `jaxlm`."""
    command_line.run(_main)


if __name__ == "__main__":
    main()
