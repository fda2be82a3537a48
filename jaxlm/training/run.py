"""Everything a run needs before its first step, checked.

What the user could have got wrong is found here, while no workdir has been made yet.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from pathlib import Path

import jax
import optax
from jax.sharding import Mesh

from jaxlm import config as configs
from jaxlm import fields
from jaxlm.config import RunConfig
from jaxlm.data.windows import Windows
from jaxlm.errors import UserError
from jaxlm.families import Model, build_model
from jaxlm.objectives import Objective, build_objective
from jaxlm.training import checkpoint, metrics, sharding, workdir
from jaxlm.training.flops import parameter_counts
from jaxlm.training.optimizer import build_optimizer
from jaxlm.training.schedule import Phase, phase_at, phases
from jaxlm.training.state import State, abstract_state, initial_state, shardings_of


@dataclass(frozen=True)
class Run:
    """A run that can start. `config` is resolved; `kind` is "train" or "convert"."""

    config: RunConfig
    kind: str
    windows: Windows
    model: Model
    mesh: Mesh
    optimizer: optax.GradientTransformation

    @functools.cached_property
    def abstract(self) -> State:
        """The state's shapes, dtypes and shardings."""
        return abstract_state(self.model, self.optimizer, self.mesh)

    @functools.cached_property
    def phases(self) -> list[Phase]:
        """The block-size phases of a conversion; a plain run is one phase with the objective's own block size."""
        num_steps = self.config.train.num_steps
        if self.kind == "convert":
            return phases(self.config.convert, num_steps)
        return [Phase(0, num_steps, self.config.objective.block_size or 0)]

    def objective(self, block_size: int) -> Objective:
        """The objective of a phase."""
        return build_objective(
            dataclasses.replace(self.config.objective, block_size=block_size),
            self.model,
            mask_token_id=self.config.model.mask_token_id,
            isolate_documents=self.config.data.isolate_documents,
            loss_chunk=self.config.execution.loss_chunk,
        )

    def phase(self, step: int) -> Phase:
        """The phase of the update that follows `step` updates; at the end of the run, the last one."""
        return phase_at(self.phases, min(step, self.config.train.num_steps - 1))


def open_run(config: RunConfig, kind: str) -> Run:
    """Builds all parts of a run. Raises UserError for data, vocabulary, mesh or model that do not fit together."""
    if kind == "convert":
        config.check_conversion()
    metrics.check_packages(config)
    windows = open_windows(config)
    config = resolve(config, windows.tokenizer.vocab_size)
    mesh = sharding.make_mesh(config.execution)
    sharding.check_batch(config, mesh)
    model = build_model(config.model, config.execution)
    run = Run(config, kind, windows, model, mesh, build_optimizer(config))
    for phase in run.phases:
        run.objective(phase.block_size)
    return run


def open_windows(config: RunConfig) -> Windows:
    """The prepared data of a run; raises UserError if they are missing or of another window length."""
    if not config.data.dir:
        raise UserError("data.dir is empty, allowed: a directory made by prepare_data (--config.data.dir=DIR)")
    windows = Windows.open(config.data.dir)
    if windows.seq_len != config.train.seq_len:
        raise UserError(
            f"train.seq_len is {config.train.seq_len}, allowed: {windows.seq_len}, as in data.dir={config.data.dir}"
        )
    return windows


def resolve(config: RunConfig, tokenizer_size: int) -> RunConfig:
    """The configuration with the mask token filled in: the first id outside the tokenizer.

    Raises UserError if the tokenizer has more ids than the model has rows, or if no row is left for the mask.
    """
    vocab_size, mask = config.model.vocab_size, config.model.mask_token_id
    if tokenizer_size > vocab_size:
        raise UserError(
            f"model.vocab_size is {vocab_size}, allowed: at least {tokenizer_size}, the size of the tokenizer"
        )
    if config.objective.kind != "diffusion":
        return config
    if mask is None:
        mask = tokenizer_size
    if not tokenizer_size <= mask < vocab_size:
        raise UserError(
            f"the mask token is {mask}, allowed: an id outside the tokenizer ({tokenizer_size} ids) and below "
            f"model.vocab_size = {vocab_size}; grow model.vocab_size to at least {tokenizer_size + 1}"
        )
    return configs.replace(config, model={"mask_token_id": mask})


@dataclass(frozen=True)
class Source:
    """Where a run starts from: a checkpoint of another workdir."""

    directory: Path
    step: int | None


def open_source(spec: str, run: Run) -> Source:
    """Reads `WORKDIR` or `WORKDIR@STEP` and checks that the run can start from it. Raises UserError with the reason.

    A conversion goes on with the very same model, so every field of the model must agree; training only needs
    parameters of the same names and shapes. Token ids must mean the same in both cases.
    """
    name, at, number = spec.rpartition("@")
    if at and number.isdecimal() and not Path(spec).exists():
        directory, step = Path(name), int(number)
    else:
        directory, step = Path(spec), None
    if (directory / "config.json").is_file() and "kind" not in workdir.read_json(directory / "config.json"):
        raise UserError(f"--init_from={spec} is a Hugging Face directory; allowed for now: a jaxlm workdir")
    stored, _ = workdir.read(directory)
    tokenizer = workdir.read_json(directory / workdir.MANIFEST)["data"]["tokenizer_sha256"]
    if tokenizer != run.windows.fingerprint["tokenizer_sha256"]:
        raise UserError(
            f"--init_from={spec} was trained with another tokenizer than that of data.dir={run.config.data.dir}"
        )
    if run.kind == "convert":
        known = stored.model
        if known.mask_token_id is None:
            known = dataclasses.replace(known, mask_token_id=run.config.model.mask_token_id)
        if different := fields.differences(known, run.config.model, "model."):
            raise UserError(f"--init_from={spec} has another model; these differ: {', '.join(different)}")
    return Source(directory, step)


def start_state(run: Run, source: Source | None) -> tuple[State, int | None]:
    """The state at step 0, and the step of the checkpoint it came from, if any."""
    if source is None:
        return initial_state(run.model, run.optimizer, run.abstract, run.config.seed), None
    shardings = shardings_of(run.abstract["params"])
    params, step = checkpoint.load_params(source.directory, source.step, model=run.model, shardings=shardings)
    return initial_state(run.model, run.optimizer, run.abstract, run.config.seed, params), step


def describe(run: Run) -> str:
    """One line about a run, said before its first step."""
    train, execution, counts = run.config.train, run.model.execution, parameter_counts(run.model)
    parts = ", ".join(f"{name} {count:,}" for name, count in counts["by_part"].items())
    return (
        f"{run.config.model.family}: {counts['total']:,} parameters ({parts}); {train.num_steps:,} steps of "
        f"{train.batch_tokens:,} tokens; {run.mesh.size} x {jax.devices()[0].device_kind}, "
        f"mesh {dict(run.mesh.shape)}, {execution.dtype}, attention {execution.attention}, layers {execution.layers}, "
        f"remat {execution.remat}"
    )
