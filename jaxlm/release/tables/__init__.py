"""Which tensor of a Hugging Face directory is which parameter of ours: one module a class, read in both directions.

A class is added by adding a module with `FORMAT` and its name in `NATIVE`, earlier if it is to be preferred.
"""

from __future__ import annotations

import importlib
from typing import Any

from jaxlm.config import ObjectiveConfig
from jaxlm.errors import UserError
from jaxlm.model_config import ModelConfig
from jaxlm.release.formats import Format, Values

NATIVE = ("llama", "qwen3", "gpt2", "gemma3", "lfm2", "mixtral", "qwen3_moe")  # classes of transformers itself
REMOTE = "remote"
ALL = (*NATIVE, REMOTE, "dhara")


def get(name: str) -> Format:
    """The format of a module of this package."""
    found: Format = importlib.import_module(f"{__name__}.{name}").FORMAT
    return found


def choose(config: ModelConfig, objective: ObjectiveConfig, kind: str = "auto") -> Format:
    """What a (resolved) model is exported as: the first class that is it exactly.

    Args:
      config: the architecture.
      objective: who sees whom; transformers' own classes read from left to right only.
      kind: `native`, a class of transformers; `jaxlm`, code that travels with the weights; `auto`, native if possible.

    Raises UserError that says what stands in the way, for the class that is nearest.
    """
    remote, native = get(REMOTE), [get(name) for name in NATIVE]
    wanted = {"native": native, "jaxlm": [remote], "auto": [*native, remote]}[kind]
    why: dict[Format, list[str]] = {}
    for found in wanted:
        assert found.reasons is not None
        against = found.reasons(config)
        if objective.kind != "causal" and not found.remote_code:
            against.append(f"objective.kind is {objective.kind!r} (it has 'causal')")
        if not against:
            return found
        why[found] = against
    nearest = min(native, key=lambda found: (len(why.get(found, ())), found.family != config.family))
    refusals = "; ".join(f"{found.name}: {', '.join(why[found])}" for found in (nearest, remote) if found in why)
    raise UserError(f"--format={kind} has no class that is this model exactly; {refusals}")


def of_config_json(values: Values) -> Format:
    """The format of a model directory. Raises UserError for a class that jaxlm cannot read."""
    known = {name: get(name) for name in ALL}
    architecture, model_type = (values.get("architectures") or [None])[0], values.get("model_type")
    for found in known.values():
        if architecture in found.class_names or (architecture is None and model_type == found.model_type):
            return found
    allowed = ", ".join(name for found in known.values() for name in found.class_names)
    what: Any = f"architectures of config.json has {architecture!r}"
    if architecture is None:
        what = f"config.json has no architectures and model_type {model_type!r}"
    raise UserError(f"{what}, allowed: one of {allowed}")
