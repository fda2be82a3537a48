"""What a run writes down: metrics.jsonl, from which all else is made; beside it TensorBoard and Weights & Biases."""

from __future__ import annotations

import importlib.util
import json
import os
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from jaxlm import fields
from jaxlm.config import RunConfig
from jaxlm.errors import UserError

METRICS = "metrics.jsonl"


class Sink(Protocol):
    """Something beside metrics.jsonl that takes the same lines."""

    def write(self, step: int, prefix: str, values: Mapping[str, float]) -> None: ...
    def close(self) -> None: ...


class TensorBoard:
    """Scalars as TensorBoard events in `workdir/tensorboard`; steps after `resume_step` are hidden when it goes on."""

    def __init__(self, workdir: Path, resume_step: int) -> None:
        from tensorboardX import SummaryWriter

        self._writer = SummaryWriter(str(workdir / "tensorboard"), purge_step=resume_step + 1 if resume_step else None)

    def write(self, step: int, prefix: str, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(f"{prefix}/{name}", value, step)

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """The same to a Weights & Biases project; a resumed run goes on in the run that its workdir began."""

    def __init__(self, workdir: Path, config: RunConfig) -> None:
        import wandb

        self._run = wandb.init(
            project=config.train.wandb_project,
            name=workdir.name,
            id=f"{workdir.name}-{zlib.crc32(str(workdir.resolve()).encode()):08x}",
            resume="allow",
            dir=str(workdir),
            config=fields.to_dict(config),
        )

    def write(self, step: int, prefix: str, values: Mapping[str, float]) -> None:
        self._run.log({f"{prefix}/{name}": value for name, value in values.items()}, step=step)

    def close(self) -> None:
        self._run.finish()


def check_packages(config: RunConfig) -> None:
    """Raises UserError if the configuration asks for a sink whose package is not installed."""
    for field, package in (("tensorboard", "tensorboardX"), ("wandb_project", "wandb")):
        value = getattr(config.train, field)
        if value and importlib.util.find_spec(package) is None:
            off = type(value)()
            raise UserError(
                f"train.{field} is {value!r}, allowed without the package {package}: {off!r} (or install it)"
            )


def open_sinks(workdir: Path, config: RunConfig, resume_step: int) -> list[Sink]:
    """The sinks that the configuration asks for."""
    sinks: list[Sink] = [TensorBoard(workdir, resume_step)] if config.train.tensorboard else []
    return sinks + ([WeightsAndBiases(workdir, config)] if config.train.wandb_project else [])


def read_lines(workdir: Path) -> list[dict[str, Any]]:
    """The whole lines of metrics.jsonl; one that was cut off by a kill, which can only be the last, is left out."""
    path = workdir / METRICS
    out = []
    for line in path.read_text("utf-8").splitlines() if path.is_file() else []:
        try:
            out.append(json.loads(line))
        except ValueError:
            break
    return out


class MetricsWriter:
    """Appends to metrics.jsonl and the sinks. A context manager.

    Opening drops the lines after `resume_step`: those steps will be made, and written, again. `evaluated` holds the
    steps whose evaluation is written already.
    """

    def __init__(self, workdir: Path, resume_step: int, sinks: list[Sink]) -> None:
        kept = [line for line in read_lines(workdir) if line["step"] <= resume_step]
        path = workdir / METRICS
        temporary = path.with_name(METRICS + ".tmp")
        temporary.write_text("".join(json.dumps(line) + "\n" for line in kept), "utf-8")
        os.replace(temporary, path)
        self.evaluated = {line["step"] for line in kept if "eval" in line}
        self._file = path.open("a", encoding="utf-8")
        self._sinks = sinks

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        for sink in self._sinks:
            sink.close()

    def write(self, line: Mapping[str, Any]) -> None:
        """One object with at least "step"; an evaluation has "eval", its name, which is also added to `evaluated`."""
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()
        if "eval" in line:
            self.evaluated.add(line["step"])
        numbers = {
            name: float(value)
            for name, value in line.items()
            if name != "step" and isinstance(value, (int, float)) and not isinstance(value, bool)
        }
        for sink in self._sinks:
            sink.write(line["step"], line.get("eval", "train"), numbers)

    def sync(self) -> None:
        """Makes sure that what was written survives a crash of the machine; before a checkpoint is committed."""
        os.fsync(self._file.fileno())


class Meter:
    """Tokens per second of training alone: evaluation, saving and compilation are paused out, and the first step of a
    process, which starts everything up, does not count.

    MFU is FLOPs per token x tokens per second / (peak x devices); None where the device's peak is not known.
    """

    def __init__(self, num_devices: int, peak_flops: float | None) -> None:
        self._peak = peak_flops * num_devices if peak_flops else None
        self._tokens, self._since = 0, 0.0

    def add(self, tokens: int) -> None:
        """The step that has just been seen to be finished."""
        if self._since:
            self._tokens += tokens
        else:
            self._since = time.monotonic()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leaves out the time of the block. No step may be under way, or its time would be left out too."""
        started = time.monotonic()
        try:
            yield
        finally:
            if self._since:
                self._since += time.monotonic() - started

    def read(self, flops_per_token: float) -> dict[str, float | None]:
        """`tokens_per_sec` and `mfu` since the last reading; None where no step has been measured."""
        if not self._tokens:
            return {"tokens_per_sec": None, "mfu": None}
        rate = self._tokens / max(time.monotonic() - self._since, 1e-9)
        self._tokens, self._since = 0, time.monotonic()
        return {"tokens_per_sec": rate, "mfu": rate * flops_per_token / self._peak if self._peak else None}
