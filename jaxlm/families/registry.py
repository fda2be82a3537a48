"""The families by name. A new one is a file with `Block` and `check`, and one line here."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass

from jaxlm.config import ModelConfig
from jaxlm.errors import UserError
from jaxlm.families.trunk import BlockClass
from jaxlm.fields import nearest

FAMILIES = {
    "llama3": "RMSNorm, rotary positions, grouped queries, SwiGLU",
    "llama3_canon": "LLaMA 3 with Canon layers A, B, C, D",
}


@dataclass(frozen=True)
class Family:
    """`block(config, execution, kind)` makes one block; `check(config)` raises UserError for what it refuses."""

    block: BlockClass
    check: Callable[[ModelConfig], None]


def family(name: str) -> Family:
    """The family of that name, or UserError with the nearest names."""
    if name not in FAMILIES:
        raise UserError(f"model.family is {name!r}, allowed: one of {', '.join(FAMILIES)}; {nearest(name, FAMILIES)}")
    module = importlib.import_module(f"jaxlm.families.{name}")
    return Family(module.Block, module.check)
