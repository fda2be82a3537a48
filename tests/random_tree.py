"""Parameters that are nowhere at their start, without compiling anything."""

import jax.numpy as jnp
import numpy as np

from jaxlm.layers.parameters import Tree, from_paths, paths


def random_tree(abstract: Tree, *, seed: int = 0, spread: float = 0.2, norm: float = 1.0) -> Tree:
    """Gaussian numbers in the shapes of `abstract`: matrices and taps about 0, the scales of norms about `norm`."""
    rng = np.random.default_rng(seed)

    def draw(path: str, shape: tuple[int, ...]) -> np.ndarray:
        centre, width = (norm, 0.1) if path.endswith("scale") else (0.0, spread)
        if "start/matrices" in path:
            # Large enough that the norm within a memory's network does not magnify rounding.
            width = 4 * spread
        return (centre + width * rng.standard_normal(shape)).astype(np.float32)

    return from_paths({path: jnp.asarray(draw(path, leaf.shape)) for path, leaf in paths(abstract)})
