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
      outward: the tensors by name; what it does with the values does not depend on them.
      inward: its inverse.
    """

    outward: Callable[[np.ndarray], Tensors]
    inward: Callable[[Mapping[str, np.ndarray]], np.ndarray]


@dataclass(frozen=True)
class Entry:
    """One of our parameters (of each layer, if the path has a `*`) and what it is to them."""

    path: str
    transform: Transform


Layout = Callable[[np.ndarray], np.ndarray]


def _parts(sizes: Mapping[str, int], outward: Layout, inward: Layout) -> Transform:
    """Our last axis cut into one tensor a name, as many channels as `sizes` says; each then laid out their way."""
    ends = np.cumsum(list(sizes.values()))

    def cut(array: np.ndarray) -> Tensors:
        assert array.shape[-1] == ends[-1], (array.shape, sizes)
        parts = np.split(array, ends[:-1], axis=-1)
        return {name: outward(part) for name, part in zip(sizes, parts, strict=True)}

    return Transform(cut, lambda tensors: np.concatenate([inward(tensors[name]) for name in sizes], axis=-1))


def _as_is(array: np.ndarray) -> np.ndarray:
    return array


def same(name: str) -> Transform:
    """One tensor, laid out alike: norm scales, embeddings, a head [V, D], a matrix of GPT-2's Conv1D [in, out]."""
    return Transform(lambda array: {name: array}, lambda tensors: tensors[name])


def matrix(sizes: Mapping[str, int]) -> Transform:
    """[in, out] of ours; [out, in] of torch's Linear, cut into one matrix a name."""
    return _parts(sizes, np.transpose, np.transpose)


def taps(sizes: Mapping[str, int]) -> Transform:
    """[k, C] of ours; [C, 1, k] of torch's depthwise Conv1d. The last tap multiplies the current token in both."""
    return _parts(sizes, lambda kernel_kC: kernel_kC.T[:, None, :], lambda weight_C1k: weight_C1k[:, 0, :].T)


def bias(sizes: Mapping[str, int]) -> Transform:
    """[C], cut into one vector a name."""
    return _parts(sizes, _as_is, _as_is)


def experts(sizes: Mapping[str, int]) -> Transform:
    """[E, in, out] of ours: a `matrix` for each expert, whose number stands for the `#` in a name."""
    one = matrix(sizes)

    def of_expert(number: int) -> dict[str, str]:
        return {name: name.replace("#", str(number)) for name in sizes}

    def outward(array_EIO: np.ndarray) -> Tensors:
        return {
            name: tensor
            for number, kernel_IO in enumerate(array_EIO)
            for name, tensor in zip(of_expert(number).values(), one.outward(kernel_IO).values(), strict=True)
        }

    def inward(tensors: Mapping[str, np.ndarray]) -> np.ndarray:
        numbers = range(len(tensors) // len(sizes))
        return np.stack([one.inward({n: tensors[m] for n, m in of_expert(number).items()}) for number in numbers])

    return Transform(outward, inward)


def _expanded(table: tuple[Entry, ...], layers: list[str]) -> Iterator[tuple[str, Transform, str]]:
    """Every path of a model with its transform and its layer's number; `layers` are our keys, in order."""
    for entry in table:
        if "*" not in entry.path:
            yield entry.path, entry.transform, ""
        else:
            for number, key in enumerate(layers):
                yield entry.path.replace("*", key), entry.transform, str(number)


def to_hugging_face(table: tuple[Entry, ...], params: Tree) -> Tensors:
    """Their tensors, contiguous, in the dtype of ours.

    An entry that meets no parameter in a layer is for another kind of layer. A parameter that stands in no entry is a
    fault of the table: AssertionError.
    """
    ours = dict(paths(params))
    out: Tensors = {}
    for path, transform, number in _expanded(table, sorted(params["layers"])):
        if path in ours:
            for name, tensor in transform.outward(np.asarray(ours.pop(path))).items():
                out[name.replace("*", number)] = np.ascontiguousarray(tensor)
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
    for path, transform, number in _expanded(table, sorted(abstract["layers"])):
        if path not in shapes:
            continue
        found = {}
        # What the transform makes of an array without memory has the names and the shapes that must be there.
        for pattern, like in transform.outward(np.broadcast_to(np.False_, shapes[path])).items():
            name = pattern.replace("*", number)
            if name not in left:
                raise UserError(f"tensor {name} is missing from the model directory; it is part of {path}")
            tensor = found[pattern] = left.pop(name)
            if tensor.shape != like.shape:
                raise UserError(f"tensor {name} has shape {tensor.shape}, allowed: {like.shape} here")
        out[path] = np.ascontiguousarray(transform.inward(found))
    assert out.keys() == shapes.keys(), f"in no table: {sorted(shapes.keys() - out.keys())}"
    if left:
        raise UserError(f"tensor {min(left)} of the model directory is no part of this model (one of {len(left)})")
    return from_paths(out)
