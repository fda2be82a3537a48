"""What a run starts from: the parameters of another workdir, or of a model that somebody else trained."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import jax

from jaxlm import fields
from jaxlm.errors import UserError
from jaxlm.families import Model, build_model
from jaxlm.families.registry import family
from jaxlm.layers.parameters import Tree, paths
from jaxlm.model_config import ModelConfig
from jaxlm.training import checkpoint, workdir
from jaxlm.training.vocabulary import grown, lengthened


class Fingerprinted(Protocol):
    """A tokenizer."""

    def sha256(self) -> str: ...


class Foreign(Protocol):
    """A model from outside, as `jaxlm.release.importing.read_model` returns it; parameters are fp32 NumPy arrays."""

    @property
    def config(self) -> ModelConfig: ...
    @property
    def params(self) -> Tree: ...
    @property
    def tokenizer(self) -> Fingerprinted: ...


ReadForeign = Callable[[Path], Foreign]


@dataclass(frozen=True)
class Source:
    """Parameters to start from.

    Attributes:
      spec: as the user wrote it.
      config: of the model, resolved.
      tokenizer_sha256: of the tokenizer it was trained with.
      read: reads a checkpoint: None for the newest, else its step. Returns parameters and the step; a model from
        outside has one state only, step 0.
    """

    spec: str
    config: ModelConfig
    tokenizer_sha256: str
    read: Callable[[int | None], tuple[Tree, int]]
    step: int | None = None


def open_source(spec: str, read_foreign: ReadForeign | None) -> Source:
    """Opens `WORKDIR`, `WORKDIR@STEP`, or a Hugging Face directory, which `read_foreign` reads.

    Raises UserError with the reason if it cannot.
    """
    name, at, number = spec.rpartition("@")
    if at and number.isdecimal() and not Path(spec).exists():
        directory, step = Path(name), int(number)
    else:
        directory, step = Path(spec), None
    if (directory / "config.json").is_file() and "kind" not in workdir.read_json(directory / "config.json"):
        if read_foreign is None:
            raise UserError(f"--init_from={spec} is a Hugging Face directory; allowed here: a jaxlm workdir")
        foreign = read_foreign(directory)
        return Source(spec, foreign.config, foreign.tokenizer.sha256(), lambda _: (foreign.params, 0))
    config = workdir.read(directory)[0].model
    model = build_model(config)
    return Source(
        spec,
        model.config,
        workdir.read_json(directory / workdir.MANIFEST)["data"]["tokenizer_sha256"],
        lambda step: checkpoint.load_params(directory, step, model=model),
        step,
    )


def refuse_other_model(source: Source, config: ModelConfig) -> None:
    """Raises UserError, with the fields, unless a conversion from `source` goes on with the very same model.

    Names of one architecture (llama3_canon, dhara) are the same, and so is a vocabulary that was grown for the mask.
    """
    known = source.config
    if family(known.family).block is family(config.family).block:
        known = dataclasses.replace(known, family=config.family)
    if known.vocab_size < config.vocab_size == grown(known.vocab_size):
        known = dataclasses.replace(known, vocab_size=config.vocab_size)
    if known.mask_token_id is None:
        known = dataclasses.replace(known, mask_token_id=config.mask_token_id)
    if different := fields.differences(known, config, "model."):
        raise UserError(f"--init_from={source.spec} has another model; these differ: {', '.join(different)}")


def load(source: Source, model: Model, shardings: Any) -> tuple[Tree, int]:
    """The source's parameters as `model` takes them, placed by `shardings`, and the step they come from.

    A vocabulary that is larger here is lengthened. Raises UserError for parameters of other names or shapes.
    """
    params, step = source.read(source.step)
    if model.config.vocab_size > source.config.vocab_size:
        params = lengthened(params, model.config.vocab_size)
    wanted = {path: leaf.shape for path, leaf in paths(model.abstract_params())}
    found = {path: leaf.shape for path, leaf in paths(params)}
    if different := sorted(path for path in wanted.keys() | found.keys() if wanted.get(path) != found.get(path)):
        path = different[0]
        raise UserError(
            f"--init_from={source.spec} has {path} {list(found.get(path, [])) or 'absent'}, "
            f"allowed: {list(wanted.get(path, [])) or 'absent'} (one of {len(different)} that differ)"
        )
    return jax.device_put(params, shardings), step
