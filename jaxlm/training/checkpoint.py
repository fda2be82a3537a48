"""Checkpoints: the only module that calls Orbax. `checkpoints/N` holds the state after N updates.

Items: `params` (all that evaluation and export read), `train` (step and optimizer state), `data` (the position in the
data). `checksums.json` is written when Orbax has committed the rest: Orbax notices a missing or short file only while
it reads, and a flipped byte not at all, so a checkpoint is compared with its checksums before it is trusted.
"""

from __future__ import annotations

import json
import os
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

import jax
from orbax.checkpoint import v1 as ocp

from jaxlm.errors import UserError
from jaxlm.families import Model
from jaxlm.training.state import State

ITEMS = ("params", "train", "data")
CHECKSUMS = "checksums.json"
_CHUNK = 1 << 24
T = TypeVar("T")


class Resumable(Protocol):
    """A data iterator whose position can be saved; Grain's are."""

    def get_state(self) -> Any: ...
    def set_state(self, state: Any) -> None: ...


class DamagedCheckpoint(Exception):
    """A checkpoint with a file that is missing, short, or not what was written."""


def directory(workdir: Path) -> Path:
    """Where the checkpoints of a workdir lie; absolute, as Orbax wants it."""
    return workdir.resolve() / "checkpoints"


def steps(workdir: Path) -> list[int]:
    """The steps of the checkpoints that were committed, oldest first."""
    root = directory(workdir)
    return sorted(int(entry.name) for entry in root.iterdir() if entry.name.isdecimal()) if root.is_dir() else []


class Checkpoints:
    """Writes the checkpoints of one run in the background, and keeps the newest `keep`. A context manager."""

    def __init__(self, workdir: Path, keep: int) -> None:
        self.workdir = workdir
        self._unsealed: int | None = None
        self._orbax = ocp.training.Checkpointer(
            directory(workdir),
            # When to save is the loop's decision; Orbax's own default leaves saves out while one is under way.
            save_decision_policy=ocp.training.save_decision_policies.FixedIntervalPolicy(1),
            preservation_policy=ocp.training.preservation_policies.LatestN(keep),
            cleanup_tmp_directories=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.wait()
        self._orbax.close()

    def save(self, state: State, step: int, data: Resumable) -> None:
        """Begins to write `state` and the position of `data`; returns when they are copied from the devices.

        `step` is the value of state["step"], known to the host. Nothing is done if that checkpoint is there already.
        """
        self.wait()
        if step in steps(self.workdir):
            return
        train = {"step": state["step"], "opt_state": state["opt_state"]}
        self._orbax.save_checkpointables_async(step, {"params": state["params"], "train": train, "data": data})
        self._unsealed = step

    def wait(self) -> None:
        """Returns when everything that `save` began is on disk."""
        self._orbax.wait()
        if self._unsealed is not None:
            _seal(directory(self.workdir) / str(self._unsealed))
        self._unsealed = None


def write_params(workdir: Path, step: int, params: Any) -> None:
    """Writes a checkpoint that holds parameters alone: what `load_params` reads, and nothing that training resumes."""
    path = directory(workdir) / str(step)
    ocp.save_checkpointables(path, {"params": params})
    _seal(path)


def restore(workdir: Path, abstract: State, data: Resumable) -> State | None:
    """The newest state that can be read, placed as `abstract` says, with `data` moved to its position; None if none.

    A damaged checkpoint is said so on standard error, moved aside and passed over for the one before. Raises UserError
    if all are damaged, or if one holds other shapes or dtypes than `abstract`.
    """

    def load(path: Path) -> State:
        train = {"step": abstract["step"], "opt_state": abstract["opt_state"]}
        _check_arrays(path, "params", abstract["params"])
        _check_arrays(path, "train", train)
        loaded = ocp.load_checkpointables(path, {"params": abstract["params"], "train": train, "data": data})
        return {**loaded["train"], "params": loaded["params"]}

    available = steps(workdir)
    if not available:
        return None
    state, step = _newest(workdir, load, ITEMS)
    for damaged in (s for s in available if s > step):
        # It will be written anew when the run gets there again; what is left of it stays for whoever wants to look.
        path = directory(workdir) / str(damaged)
        os.replace(path, path.with_name(f"{damaged}.damaged-{os.getpid()}"))
    return state


def load_params(
    workdir: str | Path, step: int | None = None, *, model: Model, shardings: Any = None
) -> tuple[Any, int]:
    """The parameters of a checkpoint, and its step.

    Args:
      workdir: a jaxlm workdir.
      step: which checkpoint; None: the newest that can be read.
      model: says what tree, shapes and dtypes (fp32) to expect.
      shardings: a tree of shardings like the parameters; None: all on the first device.

    Raises UserError if there is no such checkpoint, if it is damaged, or if it holds other parameters than the model's.
    """
    workdir = Path(workdir)
    if shardings is None:
        one = jax.sharding.SingleDeviceSharding(jax.devices()[0])
        shardings = jax.tree.map(lambda _: one, model.abstract_params())
    abstract = jax.tree.map(
        lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
        model.abstract_params(),
        shardings,
    )

    def load(path: Path) -> Any:
        _check_arrays(path, "params", abstract)
        return ocp.load(path, abstract, checkpointable_name="params")

    available = steps(workdir)
    if not available:
        raise UserError(f"{workdir} has no checkpoint")
    if step is None:
        return _newest(workdir, load, ("params",))
    if step not in available:
        raise UserError(f"{workdir} has no checkpoint {step}, allowed: {', '.join(map(str, available))}")
    try:
        return _read(directory(workdir) / str(step), load, ("params",)), step
    except DamagedCheckpoint as error:
        raise UserError(
            f"checkpoint {step} of {workdir} is damaged ({error}), allowed: another of {available}"
        ) from None


def _newest(workdir: Path, load: Callable[[Path], T], items: Sequence[str]) -> tuple[T, int]:
    damaged: list[str] = []
    for step in reversed(steps(workdir)):
        try:
            found = _read(directory(workdir) / str(step), load, items)
        except DamagedCheckpoint as error:
            damaged.append(f"checkpoint {step} of {workdir} is damaged ({error})")
            continue
        for line in damaged:
            print(f"jaxlm: {line}; reading {step} instead", file=sys.stderr)
        return found, step
    raise UserError(f"no checkpoint can be read, {len(damaged)} are damaged: {'; '.join(damaged)}")


def _read(path: Path, load: Callable[[Path], T], items: Sequence[str]) -> T:
    _verify(path, items)
    try:
        return load(path)
    except UserError:
        raise
    except (OSError, ValueError, KeyError) as error:  # what Orbax raises for files that it cannot read
        raise DamagedCheckpoint(f"{type(error).__name__} while reading") from error


def _check_arrays(path: Path, item: str, abstract: Any) -> None:
    """Refuses other arrays than expected. Orbax would cast another dtype silently, and misname another shape."""
    stored = _described(ocp.metadata(path, checkpointable_name=item).metadata)
    wanted = _described(abstract)
    for name in sorted(stored.keys() | wanted.keys()):
        if stored.get(name) != wanted.get(name):
            there, here = stored.get(name, "absent"), wanted.get(name, "absent")
            raise UserError(
                f"checkpoint {path.name} of {path.parent.parent} has {item}/{name} {there}, expected: {here}"
            )


def _described(tree: Any) -> dict[str, str]:
    """`{"a/b/0": "float32[3, 4]"}` for a tree of arrays; containers of any kind count by their keys alone."""
    leaves = jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda node: hasattr(node, "shape"))[0]
    return {
        "/".join(str(getattr(k, "key", getattr(k, "name", getattr(k, "idx", k)))) for k in path): (
            f"{leaf.dtype}{list(leaf.shape)}"
        )
        for path, leaf in leaves
    }


def _checksums(path: Path, items: Sequence[str]) -> Iterator[tuple[str, str]]:
    for file in (found for item in items for found in sorted((path / item).rglob("*"))):
        if file.is_file():
            crc = 0
            with file.open("rb") as stream:
                while chunk := stream.read(_CHUNK):
                    crc = zlib.crc32(chunk, crc)
            yield str(file.relative_to(path)), f"{file.stat().st_size}:{crc:08x}"


def _seal(path: Path) -> None:
    temporary = path / f"{CHECKSUMS}.tmp"
    temporary.write_text(json.dumps(dict(_checksums(path, ITEMS)), indent=0), "utf-8")
    os.replace(temporary, path / CHECKSUMS)


def _verify(path: Path, items: Sequence[str]) -> None:
    """Raises DamagedCheckpoint where a file of these items is not what was written.

    A run that was killed between Orbax's commit and the checksums left none: that checkpoint is complete, and Orbax
    reads it as it is.
    """
    if not (path / CHECKSUMS).is_file():
        return
    try:
        expected = json.loads((path / CHECKSUMS).read_text("utf-8"))
    except ValueError:
        raise DamagedCheckpoint(f"{CHECKSUMS} is cut off") from None
    found = dict(_checksums(path, items))
    for name, value in expected.items():
        if name.split("/", 1)[0] not in items:
            continue
        if name not in found:
            raise DamagedCheckpoint(f"{name} is missing")
        if found[name] != value:
            raise DamagedCheckpoint(f"{name} is not what was written")
