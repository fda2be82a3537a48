"""Other ways to ask a diffusion model, under the weights that it has: what seeing ahead is worth, and what order is.

`causal`: blocks of one token, so that each is read from what precedes it, itself hidden. `in_order`: the model's own
reading, but a likelihood is that of writing from left to right, with everything still to be written visible as masks.
"""

from __future__ import annotations

import dataclasses

from jaxlm.errors import UserError
from jaxlm.trained import Trained

CAUSAL, IN_ORDER = "causal", "in_order"
READINGS = (CAUSAL, IN_ORDER)


def applied(trained: Trained, reading: str) -> Trained:
    """The model as a reading asks it; "" leaves it as it is.

    Raises UserError for a reading that there is not, and for an autoregressive model, which reads in no other way.
    """
    if reading not in ("", *READINGS):
        raise UserError(f"reading is {reading!r}, allowed: {', '.join(READINGS)}, or none")
    if reading and trained.mode == "ar":
        raise UserError(f"reading is {reading!r}, allowed: none for an autoregressive model, or a diffusion model")
    return in_blocks(trained, 1) if reading == CAUSAL else trained


def in_blocks(trained: Trained, block_size: int) -> Trained:
    """A diffusion model that reads, and writes, in blocks of this many tokens (0: the whole window as one)."""
    # Annealed attention is one of training, and a configuration allows it with the whole window only.
    objective = dataclasses.replace(trained.config.objective, block_size=block_size, anneal_steps=0)
    config = dataclasses.replace(trained.config, objective=objective)
    return dataclasses.replace(trained, config=config, kind="train")  # the phases of a conversion no longer count
