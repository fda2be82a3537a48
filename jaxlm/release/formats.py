"""What a kind of Hugging Face directory is: how a model is written in it, and what is read from it.

Also the small vocabulary in which the modules of `jaxlm.release.tables` say these things.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from jaxlm.config import ObjectiveConfig
from jaxlm.errors import UserError
from jaxlm.model_config import ModelConfig
from jaxlm.release.mapping import Entry

Values = Mapping[str, Any]  # a config.json


@dataclass(frozen=True)
class Format:
    """One class of models, as transformers or the code in a directory has it.

    Attributes:
      class_names: what `architectures` calls it.
      model_type: its name without `architectures`.
      family: whose model it is, in jaxlm.
      table: the entries of a (resolved) model.
      from_config: architecture and reading of a config.json; UserError, naming the field, for what jaxlm cannot be.
      trunk: what every tensor's name but the head's begins with; a directory may leave it out.
      head: the tensor of a head that is not tied, and the embedding that it must equal if it is.
      buffers: a pattern of names that hold no parameters.
      reasons: why it cannot be a (resolved) model exactly, the fields with their values; empty if it can.
      to_config: the fields of config.json that say what the model is. Neither for a format that is only read.
      remote_code: whether the code that runs it travels with the weights.
      pads_since: the first transformers version whose cache and padded batches are right; older ones only read right.
    """

    class_names: tuple[str, ...]
    model_type: str
    family: str
    table: Callable[[ModelConfig], tuple[Entry, ...]]
    from_config: Callable[[Values], tuple[ModelConfig, ObjectiveConfig]]
    trunk: str = "model."
    head: tuple[str, str] = ("lm_head.weight", "model.embed_tokens.weight")
    buffers: str = r".*\.rotary_emb\.inv_freq"
    reasons: Callable[[ModelConfig], list[str]] | None = None
    to_config: Callable[[ModelConfig], dict[str, Any]] | None = None
    remote_code: bool = False
    pads_since: tuple[int, int] = (4, 57)

    @property
    def name(self) -> str:
        """Its class, or the first of them."""
        return self.class_names[0]


def different(config: ModelConfig, **needed: Any) -> list[str]:
    """The fields of a model that are not as a class needs them: `model.norm is 'layer' (it has 'rms')`."""
    return [
        f"model.{name} is {getattr(config, name)!r} (it has {value!r})"
        for name, value in needed.items()
        if getattr(config, name) != value
    ]


def only(values: Values, **allowed: Any) -> None:
    """Raises UserError if a field of a config.json has another value than the only one that jaxlm can be.

    A field that is absent, or null, is as transformers has it, which is the allowed value in every use of this.
    """
    for name, value in allowed.items():
        if values.get(name, value) not in (value, None):
            raise UserError(f"{name} of config.json is {values[name]!r}, allowed: {value!r}")


def required(values: Values, name: str) -> Any:
    """A field of a config.json, or UserError."""
    if values.get(name) is None:
        raise UserError(f"config.json has no {name}, allowed: a whole configuration")
    return values[name]


def positive(values: Values, name: str) -> int:
    """A count of a config.json; 0, which leaves it to the family in a ModelConfig, is refused."""
    found = required(values, name)
    if not (isinstance(found, int) and found > 0):
        raise UserError(f"{name} of config.json is {found!r}, allowed: a whole number above 0")
    return found


def rope_theta(values: Values, default: float, kind: str | None = None, name: str = "rope_theta") -> float:
    """The rotary base: the field `name` of transformers 4, or `rope_parameters` of transformers 5.

    `kind` is a layer type, where the parameters are given for each. Raises UserError for scaled or partial rotations.
    """
    parameters = values.get("rope_parameters") or {}
    if kind is not None:
        parameters = parameters.get(kind) or {}
    scaling = values.get("rope_scaling") or {}
    for source in (parameters, {} if kind == "sliding_attention" else scaling):
        if (rope_type := source.get("rope_type", source.get("type", "default"))) != "default":
            raise UserError(f"rope_type of config.json is {rope_type!r}, allowed: 'default' (rotations are not scaled)")
    for source in (values, parameters):
        only(source, partial_rotary_factor=1.0)
    return float(parameters.get("rope_theta") or values.get(name) or default)


def layer_types(values: Values, num_layers: int, *allowed: str) -> list[str] | None:
    """The kinds of the layers, None where the file names none. Raises UserError for others, or for too few or many."""
    kinds = values.get("layer_types")
    if kinds is None:
        return None
    if other := set(kinds) - set(allowed):
        raise UserError(f"layer_types of config.json has {min(other)!r}, allowed: {' or '.join(map(repr, allowed))}")
    if len(kinds) != num_layers:
        raise UserError(f"layer_types of config.json has {len(kinds)} entries, allowed: {num_layers}, one a layer")
    return list(kinds)


def pattern_of(letters: str) -> str:
    """The shortest string whose repetition, cut to length, is `letters`."""
    return next(
        letters[:n] for n in range(1, len(letters) + 1) if (letters[:n] * len(letters))[: len(letters)] == letters
    )
