"""The training loop: exactly N updates, resumable bitwise at every one of them."""

from __future__ import annotations

import dataclasses
import math
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jax

from jaxlm import fields
from jaxlm.config import RunConfig
from jaxlm.data.loader import chosen_windows, train_batches, validation_batches
from jaxlm.data.windows import read_fingerprint
from jaxlm.errors import Interrupted
from jaxlm.evaluation.likelihood import Likelihood
from jaxlm.evaluation.record import by_source
from jaxlm.progress import Progress
from jaxlm.training import checkpoint, schedule, workdir
from jaxlm.training.flops import parameter_counts, peak_flops, training_flops
from jaxlm.training.interrupt import StopRequest, stop_request
from jaxlm.training.metrics import Meter, MetricsWriter, open_sinks
from jaxlm.training.optimizer import learning_rate
from jaxlm.training.run import Run, describe, open_run, start_state, with_parts
from jaxlm.training.sharding import to_devices
from jaxlm.training.source import ReadForeign, open_source
from jaxlm.training.state import State
from jaxlm.training.step import Metrics, TrainStep, compile_step


def train(
    config: RunConfig,
    directory: Path,
    *,
    kind: str,
    init_from: str | None = None,
    read_foreign: ReadForeign | None = None,
) -> None:
    """Trains (`kind` "train") or converts ("convert") in the workdir `directory`, or goes on where it stopped.

    Args:
      config: what the user asked for; the resolved form is written to config.json.
      directory: a new or empty directory, or the workdir of the same run.
      kind: which of the two; a workdir holds one kind.
      init_from: `WORKDIR` or `WORKDIR@STEP` whose parameters a new run starts from, or a Hugging Face directory.
      read_foreign: reads such a directory; without it, it is refused.

    Raises UserError, before anything is written, for what cannot run; Interrupted after SIGTERM or SIGINT, when the
    state is saved; FloatingPointError, naming the step, when loss or gradient is not finite.
    """
    config = with_parts(config)
    with stop_request() as stop, ExitStack() as stack:
        resuming = workdir.exists(directory)
        if resuming:
            workdir.refuse_differences(directory, config, kind, init_from)
            if workdir.is_complete(directory):
                # The data may be gone by now; other data in their place are another run.
                if (there := read_fingerprint(Path(config.data.dir))) is not None:
                    workdir.refuse_other_data(directory, there)
                print(f"jaxlm: {directory} is complete, nothing to do", file=sys.stderr)
                return
            stack.enter_context(workdir.locked(directory))
        run = open_run(config, kind)
        data = train_batches(
            run.windows, run.config.train.batch_size, run.config.seed, jax.process_index(), jax.process_count()
        )
        state = None
        if resuming:
            workdir.refuse_other_data(directory, run.windows.fingerprint)
            state = checkpoint.restore(directory, run.abstract, data)
        if state is None:
            source = open_source(init_from, read_foreign) if init_from else None
            if source is not None and resuming:  # stopped before its first checkpoint; the source may have gone on
                source = dataclasses.replace(
                    source, step=workdir.read_json(directory / workdir.MANIFEST)["init_from"]["step"]
                )
            state, source_step = start_state(run, source)
            if stop.signum is not None:
                raise Interrupted(stop.signum)
            if not resuming:
                manifest = _manifest(run, init_from, source_step)
                workdir.create(directory, run.config, kind, manifest, run.windows.tokenizer)
                stack.enter_context(workdir.locked(directory))
        workdir.write_config(directory, run.config, kind)
        start, train = int(state["step"]), run.config.train
        sinks = open_sinks(directory, run.config, start)
        writer = stack.enter_context(MetricsWriter(directory, start, sinks))
        checkpoints = stack.enter_context(checkpoint.Checkpoints(directory, train.keep))
        progress = stack.enter_context(
            Progress(train.num_steps, kind, initial=start, rate_unit="tok", per_unit=train.batch_tokens)
        )
        progress.message(describe(run))
        if kind == "convert":
            progress.message(schedule.describe(run.phases, train.batch_tokens))
        if run.config.model.vocab_size != config.model.vocab_size:
            progress.message(
                f"the vocabulary grew from {config.model.vocab_size:,} to {run.config.model.vocab_size:,} rows, for "
                f"the mask token {run.config.model.mask_token_id}, which starts as the mean of all tokens"
            )
        if start:
            progress.message(f"going on after step {start}")
        _Loop(run, state, start, data, stop, writer, checkpoints, progress).run()
        if stop.signum is not None and not workdir.is_complete(directory):
            raise Interrupted(stop.signum)


def _manifest(run: Run, init_from: str | None, source_step: int | None) -> dict[str, Any]:
    fingerprint = run.windows.fingerprint
    return {
        **workdir.environment(),
        "execution": fields.to_dict(run.model.execution),
        "mesh": dict(run.mesh.shape),
        "parameters": parameter_counts(run.model),
        "data": {name: fingerprint[name] for name in ("data_sha256", "tokenizer_sha256")},
        "init_from": {"source": init_from, "step": source_step} if init_from else None,
    }


class _Loop:
    """The state of one process in the loop; `step` is the host's copy of state["step"], which is never read back."""

    def __init__(
        self,
        run: Run,
        state: State,
        start: int,
        data: Any,
        stop: StopRequest,
        writer: MetricsWriter,
        checkpoints: checkpoint.Checkpoints,
        progress: Progress,
    ) -> None:
        self.r, self.state, self.data, self.stop = run, state, data, stop
        self.writer, self.checkpoints, self.progress = writer, checkpoints, progress
        self.start = self.step = start
        self.pending: Metrics | None = None
        self.steps: dict[int, TrainStep] = {}
        self.flops: dict[int, tuple[float, str]] = {}
        self.likelihoods: dict[int, Likelihood] = {}
        self.compile_seconds = 0.0
        self.meter = Meter(run.mesh.size, peak_flops(jax.devices()[0].device_kind))

    def run(self) -> None:
        """Steps until the end of the schedule, `train.stop_at`, or a signal, and saves there."""
        train = self.r.config.train
        while True:
            # A boundary: `state` is the result of `step` updates and `data` stands before batch `step`. The order
            # matters. What belongs to a step is written before the checkpoint that makes it final, and the checkpoint
            # is made before the next batch is drawn.
            finished = self.step == train.num_steps
            stop_here = finished or self.stop.signum is not None or 0 < train.stop_at <= self.step
            if self._evaluation_is_due(finished):
                self._evaluate()
            if stop_here or (self.step > self.start and self.step % train.save_every == 0):
                self._save()
            if stop_here:
                break
            self._update()
        self.checkpoints.wait()
        if finished:
            tokens = train.num_steps * train.batch_tokens
            workdir.mark_complete(self.checkpoints.workdir, {"step": self.step, "tokens": tokens})
            self.progress.message(f"complete: {self.step} steps, {tokens:,} tokens, in {self.checkpoints.workdir}")
        else:
            self.progress.message(f"stopped after step {self.step} of {train.num_steps}")

    def _update(self) -> None:
        block_size = self.r.phase(self.step).block_size
        if block_size not in self.steps:
            self._flush()
            self.progress.message(
                "compiling" + (f", block size {block_size or 'window'}" if self.r.kind == "convert" else "")
            )
            with self.meter.paused():
                self.steps[block_size], seconds = compile_step(
                    self.r.config, self.r.objective(block_size), self.r.optimizer, self.r.mesh, self.r.abstract
                )
            self.flops[block_size] = training_flops(self.r.objective(block_size), self.r.config.train.seq_len)
            self.progress.exclude(seconds)
            self.compile_seconds += seconds
        batch = to_devices(self.r.mesh, next(self.data))
        self.state, metrics = self.steps[block_size](self.state, batch)
        # Metrics are read one step late: while they are waited for, the device is busy with the step after.
        self._flush()
        self.step += 1
        self.pending = metrics

    def _flush(self) -> None:
        """Waits for the metrics of step `step`, if nobody has yet, checks them and writes them where they are due."""
        if self.pending is None:
            return
        values = {name: float(value) for name, value in jax.device_get(self.pending).items()}
        self.pending = None
        train = self.r.config.train
        for name, value in values.items():
            if not math.isfinite(value):
                raise FloatingPointError(f"{name} is {value} at step {self.step}; the last checkpoint is older")
        self.meter.add(train.batch_tokens)
        self.progress.update(self.step, **{"loss": values["loss"]})
        if self.step % train.log_every and self.step != train.num_steps:
            return
        phase = self.r.phase(self.step - 1)
        flops, convention = self.flops[phase.block_size]
        line = {
            "step": self.step,
            "tokens": self.step * train.batch_tokens,
            **values,
            "learning_rate": float(learning_rate(self.r.config, self.step - 1)),
            **self.meter.read(flops),
            "mfu_convention": convention,
        }
        if self.r.kind == "convert":
            line["block_size"] = phase.block_size
        if self.compile_seconds:
            line["compile_seconds"] = self.compile_seconds
            self.compile_seconds = 0.0
        self.writer.write(line)

    def _evaluation_is_due(self, finished: bool) -> bool:
        train = self.r.config.train
        if not train.eval_windows or self.step in self.writer.evaluated:
            return False
        if finished:
            return True
        # After a signal there may be little time: the resumed run, which finds the line missing, evaluates.
        return bool(self.stop.signum is None and self.step and train.eval_every and self.step % train.eval_every == 0)

    def _evaluate(self) -> None:
        self._flush()
        train, windows = self.r.config.train, self.r.windows
        block_size = self.r.phase(self.step - 1).block_size
        if block_size not in self.likelihoods:
            token_bytes_V = windows.tokenizer.token_bytes()
            self.likelihoods[block_size] = Likelihood(self.r.objective(block_size), token_bytes_V)
        chosen = chosen_windows(len(windows.split("validation")), train.eval_windows)
        num_windows = len(chosen)
        rows = min(train.micro_batch or train.batch_size, num_windows)
        with self.meter.paused():
            result = self.likelihoods[block_size].validate(
                self.state["params"],
                validation_batches(windows, rows, limit=num_windows),
                num_windows,
                self.r.config.seed,
            )
        line = {"step": self.step, "eval": "validation", **result.to_json()}
        if len(windows.source_names) > 1:
            line["by_source"] = by_source(result.score, windows.sources("validation")[chosen], windows.source_names)
        if self.r.kind == "convert":
            line["block_size"] = block_size
        self.writer.write(line)
        bits = "" if result.bits_per_byte is None else f", {result.bits_per_byte:.4f} bits per byte"
        self.progress.message(f"step {self.step}: validation loss {result.loss:.4f} +- {result.stderr or 0:.4f}{bits}")

    def _save(self) -> None:
        self._flush()
        with self.meter.paused():
            self.writer.sync()
            self.checkpoints.save(self.state, self.step, self.data)
