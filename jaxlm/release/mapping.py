"""A declarative, two-way table between our parameters and the tensors of a Hugging Face directory.

An entry pairs one of our paths with the tensors that it becomes; a `*` in it stands for the number of a layer. The same
entries write (`to_hugging_face`) and read (`from_hugging_face`), so what is written comes back bitwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from jaxlm.errors import UserError
from jaxlm.layers.parameters import Tree, from_paths, paths

Tensors = dict[str, np.ndarray]


@dataclass(frozen=True)
class Transform:
    """How one array of ours becomes named tensors of theirs, and back.

    Attributes:
      sizes: their names in our order, with the channels each takes of our last axis.
      outward: the array of one name, our layout to theirs.
      inward: its inverse.
    """

    sizes: Mapping[str, int]
    outward: Callable[[np.ndarray], np.ndarray]
    inward: Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Entry:
    """One of our parameters (of each layer, if the path has a `*`) and what it is to them."""

    path: str
    transform: Transform


def _as_is(array: np.ndarray) -> np.ndarray:
    return array


def same(name: str) -> Transform:
    """One tensor, laid out alike: norm scales, embeddings, a head [V, D]."""
    return Transform({name: -1}, _as_is, _as_is)


def matrix(sizes: Mapping[str, int]) -> Transform:
    """[in, out] of ours; [out, in] of torch's Linear, cut into one matrix a name."""
    return Transform(sizes, np.transpose, np.transpose)


def taps(sizes: Mapping[str, int]) -> Transform:
    """[k, C] of ours; [C, 1, k] of torch's depthwise Conv1d. The last tap multiplies the current token in both."""
    return Transform(sizes, lambda kernel_kC: kernel_kC.T[:, None, :], lambda weight_C1k: weight_C1k[:, 0, :].T)


def bias(sizes: Mapping[str, int]) -> Transform:
    """[C], cut into one vector a name."""
    return Transform(sizes, _as_is, _as_is)


def _expanded(table: tuple[Entry, ...], layers: list[str]) -> Iterator[tuple[str, Transform, dict[str, str]]]:
    """Every path of a model with its transform and its tensor names; `layers` are our keys, in order."""
    for entry in table:
        if "*" not in entry.path:
            yield entry.path, entry.transform, {name: name for name in entry.transform.sizes}
            continue
        for number, key in enumerate(layers):
            names = {name: name.replace("*", str(number)) for name in entry.transform.sizes}
            yield entry.path.replace("*", key), entry.transform, names


def to_hugging_face(table: tuple[Entry, ...], params: Tree) -> Tensors:
    """Their tensors, contiguous, in the dtype of ours.

    A parameter that stands in no entry, or an entry without its parameter, is a fault of the table: AssertionError.
    """
    ours = dict(paths(params))
    out: Tensors = {}
    for path, transform, names in _expanded(table, sorted(params["layers"])):
        array = np.asarray(ours.pop(path))
        ends = np.cumsum([size for size in transform.sizes.values()])
        assert ends[-1] in (array.shape[-1], -1), (path, array.shape, transform.sizes)
        parts = np.split(array, ends[:-1], axis=-1)
        for name, part in zip(transform.sizes, parts, strict=True):
            out[names[name]] = np.ascontiguousarray(transform.outward(part))
    assert not ours, f"in no table: {sorted(ours)}"
    return out


def from_hugging_face(table: tuple[Entry, ...], tensors: Mapping[str, np.ndarray], abstract: Tree) -> Tree:
    """Our parameters, the inverse of `to_hugging_face`.

    Args:
      table: of the model.
      tensors: by name, as in the safetensors files.
      abstract: the tree of the model, for its paths and shapes (`Model.abstract_params`).

    Raises:
      UserError: a tensor is missing, has another shape, or stands in no entry.
    """
    shapes = {path: tuple(leaf.shape) for path, leaf in paths(abstract)}
    left = dict(tensors)
    out: dict[str, np.ndarray] = {}
    for path, transform, names in _expanded(table, sorted(abstract["layers"])):
        parts = []
        for name, size in transform.sizes.items():
            if names[name] not in left:
                raise UserError(f"tensor {names[name]} is missing from the model directory; it is part of {path}")
            tensor = left.pop(names[name])
            shape = (*shapes[path][:-1], size) if size >= 0 else shapes[path]
            wanted = transform.outward(np.empty(shape, np.bool_)).shape
            if tensor.shape != wanted:
                raise UserError(f"tensor {names[name]} has shape {tensor.shape}, allowed: {wanted} here")
            parts.append(transform.inward(tensor))
        out[path] = np.ascontiguousarray(np.concatenate(parts, axis=-1))
    if left:
        raise UserError(f"tensor {min(left)} of the model directory is no part of this model (one of {len(left)})")
    return from_paths(out)
