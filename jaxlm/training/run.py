"""Everything a run needs before its first step, checked.

What the user could have got wrong is found here, while no workdir has been made yet.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from dataclasses import dataclass

import jax
import optax
from jax.sharding import Mesh

from jaxlm import config as configs
from jaxlm import families, fields
from jaxlm.config import RunConfig
from jaxlm.data.tokenizer import Tokenizer
from jaxlm.data.windows import Windows
from jaxlm.errors import UserError
from jaxlm.families import Model, build_model
from jaxlm.families.registry import family
from jaxlm.objectives import Objective, build_objective
from jaxlm.training import metrics, sharding
from jaxlm.training.flops import parameter_counts
from jaxlm.training.optimizer import build_optimizer
from jaxlm.training.schedule import Phase, phase_at, phases_of
from jaxlm.training.source import Source, load, refuse_other_model
from jaxlm.training.state import State, abstract_state, initial_state, shardings_of
from jaxlm.training.vocabulary import grown


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
        return phases_of(self.config, self.kind)

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
    config = with_parts(config)
    check_reading(config)
    metrics.check_packages(config)
    windows = open_windows(config)
    config = resolve(config, windows.tokenizer, kind)
    mesh = sharding.make_mesh(config.execution)
    sharding.check_batch(config, mesh)
    model = build_model(config.model, config.execution)
    run = Run(config, kind, windows, model, mesh, build_optimizer(config))
    for phase in run.phases:
        run.objective(phase.block_size)
    return run


def with_parts(config: RunConfig) -> RunConfig:
    """The configuration with the parts that its model leaves open as the family has them."""
    return dataclasses.replace(config, model=families.resolve(config.model))


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


def resolve(config: RunConfig, tokenizer: Tokenizer, kind: str) -> RunConfig:
    """The configuration with the mask token filled in: the first id outside the tokenizer.

    A conversion of a model whose vocabulary the tokenizer fills grows it, see `vocabulary.grown`. Raises UserError if
    the tokenizer has more ids than the model has rows, or if no row is left for the mask.
    """
    vocab_size, mask = config.model.vocab_size, config.model.mask_token_id
    if tokenizer.vocab_size > vocab_size:
        raise UserError(
            f"model.vocab_size is {vocab_size}, allowed: at least {tokenizer.vocab_size}, the size of the tokenizer"
        )
    if config.objective.kind != "diffusion":
        return config
    if mask is None:
        mask = tokenizer.vocab_size
        if kind == "convert" and mask == vocab_size:
            vocab_size = grown(vocab_size)
    if mask == tokenizer.end_of_text_id:
        print(
            f"jaxlm: the mask token {mask} is also end-of-text, as in the released Dhara-70M: this model ends no text",
            file=sys.stderr,
        )
    elif not tokenizer.vocab_size <= mask < vocab_size:
        raise UserError(
            f"the mask token is {mask}, allowed: an id outside the tokenizer ({tokenizer.vocab_size} ids) and below "
            f"model.vocab_size = {vocab_size}; grow model.vocab_size to at least {tokenizer.vocab_size + 1}"
        )
    return configs.replace(config, model={"mask_token_id": mask, "vocab_size": vocab_size})


def check_reading(config: RunConfig) -> None:
    """Raises UserError for a family and an objective that make no sense together. The model is resolved."""
    model, diffusion = config.model, config.objective.kind == "diffusion"
    if family(model.family).diffusion and not diffusion:
        raise UserError(
            f"objective.kind is {config.objective.kind!r}, allowed: 'diffusion' for model.family {model.family!r}, "
            "which looks both ways"
        )
    if (reason := family(model.family).causal_only) and diffusion:
        raise UserError(f"objective.kind is 'diffusion', allowed: 'causal' for model.family {model.family!r}: {reason}")
    if diffusion and model.positions == "none" and not model.canon_set and "C" not in model.layer_kinds:
        raise UserError(
            "model.positions is 'none' with objective.kind 'diffusion', allowed: 'rope' or 'learned': without a causal "
            "mask and without convolutions nothing tells the order of the tokens"
        )


def start_state(run: Run, source: Source | None) -> tuple[State, int | None]:
    """The state at step 0, and the step of the checkpoint it came from, if any.

    Raises UserError if the run cannot start from the source: token ids must mean the same. A conversion goes on with
    the very same model; training only needs parameters of the same names and shapes, and says what else differs.
    """
    if source is None:
        return initial_state(run.model, run.optimizer, run.abstract, run.config.seed), None
    if source.tokenizer_sha256 != run.windows.fingerprint["tokenizer_sha256"]:
        raise UserError(
            f"--init_from={source.spec} was trained with another tokenizer than that of data.dir={run.config.data.dir}"
        )
    if run.kind == "convert":
        refuse_other_model(source, run.model.config)
    elif different := fields.differences(source.config, run.model.config, "model."):
        print(
            f"jaxlm: --init_from={source.spec} has another model; these differ: {', '.join(different)}", file=sys.stderr
        )
    params, step = load(source, run.model, shardings_of(run.abstract["params"]))
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
