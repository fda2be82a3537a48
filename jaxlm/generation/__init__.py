"""From a prompt to text: left to right, or by filling a canvas of masks."""

from jaxlm.generation.result import Decoded
from jaxlm.generation.sampling import Sampling
from jaxlm.generation.selection import Selection

__all__ = ["Decoded", "Sampling", "Selection"]
