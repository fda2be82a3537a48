"""A workdir as lm-evaluation-harness asks it, also by its name: `--model jaxlm --model_args workdir=DIR`."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from pathlib import Path
from typing import Any

import jax
from lm_eval.api.registry import register_model
from lm_eval.utils import simple_parse_args_string

from jaxlm import randomness
from jaxlm.errors import UserError
from jaxlm.evaluation.harness_model import DRAWS, HarnessModel
from jaxlm.fields import nearest
from jaxlm.objectives import build_objective
from jaxlm.study import readings
from jaxlm.study.evaluation import FORWARD_TOKENS, block_sizes
from jaxlm.trained import Trained, load
from jaxlm.training.fingerprints import params_sha256
from jaxlm.training.workdir import MANIFEST, read_json

NAME = "jaxlm"


def from_workdir(
    workdir: str | Path,
    *,
    step: int | None = None,
    dtype: str | None = None,
    max_length: int | None = None,
    mc_samples: int = DRAWS,
    seed: int = 0,
    batch_tokens: int = FORWARD_TOKENS,
    prefix_token_id: int | None = None,
    steps: int | None = None,
    block_size: int | None = None,
    random_init: bool = False,
    reading: str = "",
) -> HarnessModel:
    """The model of a checkpoint.

    Args:
      workdir: made by `train`, `convert` or `import_hf`.
      step: which checkpoint; None: the newest.
      dtype: compute type; None: float32 on a CPU, else the run's own.
      max_length: positions of a prompt and its answer; None: the windows that it was trained with, of an imported model
        all it has.
      mc_samples: masks of an answer; of diffusion only.
      seed: of masks and of sampling.
      batch_tokens: rows times positions of one forward.
      prefix_token_id: what an empty context is; see `HarnessModel`.
      steps, block_size: of the decoder of diffusion, see `generation.diffusion.decode`.
      random_init: the same architecture with fresh parameters, of this seed: a control.
      reading: of diffusion only, `causal` or `in_order`: the same weights asked otherwise, see `study.readings`. What
        is written `in_order` is written a token at a time.

    Raises UserError for what is no workdir, a checkpoint that is not there, or a setting that does not fit.
    """
    trained = readings.applied(load(workdir, step, dtype), reading)
    in_order = reading == readings.IN_ORDER
    if in_order and block_size not in (None, 1):
        raise UserError(f"block_size is {block_size}, allowed: 1 with reading={reading}")
    block_size = 1 if in_order else block_size
    if random_init:
        trained = dataclasses.replace(trained, params=jax.jit(trained.model.init)(randomness.key(seed, "init")))
    config = trained.config
    objective = build_objective(
        dataclasses.replace(config.objective, block_size=block_sizes(config, trained.kind)[0]),
        trained.model,
        mask_token_id=config.model.mask_token_id,
        loss_chunk=config.execution.loss_chunk,
    )
    return HarnessModel(
        objective,
        trained.params,
        trained.tokenizer,
        functools.partial(trained.generate, steps=steps, block_size=block_size),
        max_length=max_length or _trained_length(trained, Path(workdir)),
        parameter_hash=params_sha256(trained.params),
        mc_samples=mc_samples,
        seed=seed,
        positions_per_forward=batch_tokens,
        prefix_token_id=prefix_token_id,
        in_order=in_order,
        writing={"steps": steps, "block_size": block_size},
    )


def _trained_length(trained: Trained, directory: Path) -> int:
    """The windows of the run; what was imported was trained elsewhere, and its manifest names where it came from."""
    imported = "source" in read_json(directory / MANIFEST)
    return trained.config.model.max_positions if imported else trained.config.train.seq_len


@register_model(NAME)
class WorkdirModel(HarnessModel):
    """What the harness makes of `--model jaxlm`: the arguments of `from_workdir`, by their names."""

    @classmethod
    def create_from_arg_string(cls, arg_string: str, additional_config: dict[str, Any] | None = None) -> HarnessModel:
        return cls.create_from_arg_obj(simple_parse_args_string(arg_string), additional_config)

    @classmethod
    def create_from_arg_obj(
        cls, arg_dict: dict[str, Any], additional_config: dict[str, Any] | None = None
    ) -> HarnessModel:
        # The harness always gives a batch size, 1, and a device, "cuda:0"; JAX has chosen its own.
        if (rows := (additional_config or {}).get("batch_size", 1)) != 1:
            raise UserError(f"--batch_size is {rows!r}, allowed: none with --model jaxlm (model_args batch_tokens=N)")
        parameters = inspect.signature(from_workdir).parameters
        for name, value in arg_dict.items():
            if name not in parameters:
                raise UserError(f"--model_args has {name!r}; {nearest(name, parameters)}")
            kind = str(parameters[name].annotation)
            if kind.startswith("int") and not (type(value) is int and value >= 0):
                raise UserError(f"--model_args has {name}={value!r}, allowed: a whole number")
            if kind == "bool" and type(value) is not bool:
                raise UserError(f"--model_args has {name}={value!r}, allowed: True or False")
        if "workdir" not in arg_dict:
            raise UserError("--model_args has no workdir, allowed: workdir=DIR, made by train, convert or import_hf")
        if arg_dict.get("dtype") not in (None, "float32", "bfloat16"):
            raise UserError(f"--model_args has dtype={arg_dict['dtype']!r}, allowed: float32 or bfloat16")
        return from_workdir(**{**arg_dict, "workdir": str(arg_dict["workdir"])})
