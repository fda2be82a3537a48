"""jaxlm: what the architecture itself does to a small language model. `jaxlm.load(workdir)` opens a trained one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jaxlm.trained import Trained

__version__ = "0.1.0"
__all__ = ["load"]


def load(workdir: str | Path, step: int | None = None) -> Trained:
    """The trained model of a workdir, with its parameters, tokenizer and configuration.

    `step` is a checkpoint's step; none: the newest. Raises UserError where there is no workdir or no such checkpoint.
    """
    # Imported here so that `import jaxlm`, and with it every `--help`, does not start JAX.
    from jaxlm import trained

    return trained.load(workdir, step)
