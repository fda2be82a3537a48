"""One file a family, on one trunk; `build_model` is the way in."""

from jaxlm.families.model import Model, build_model
from jaxlm.families.registry import resolve

__all__ = ["Model", "build_model", "resolve"]
