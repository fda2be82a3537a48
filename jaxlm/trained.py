"""A trained model in one object: what `jaxlm.load(workdir)` returns, for notebooks and commands alike."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxlm.config import RunConfig
from jaxlm.data.tokenizer import Tokenizer
from jaxlm.errors import UserError
from jaxlm.families import Model, build_model
from jaxlm.generation import Decoded, Sampling, autoregressive, diffusion
from jaxlm.layers.structure import Structure
from jaxlm.training import checkpoint, workdir
from jaxlm.training.schedule import phase_at, phases

MODES = ("ar", "diffusion")


@dataclass(frozen=True)
class Generation:
    """One continuation: its text, its tokens up to a stop, and what making it cost (see `Decoded`)."""

    prompt: str
    text: str
    token_ids: list[int]
    decoded: Decoded

    def record(self) -> dict[str, Any]:
        """The JSON object of `generate --json`; tokens per second count what was decoded, a cut tail included."""
        d = self.decoded
        produced = len(d.token_ids)
        return {
            "prompt": self.prompt,
            "text": self.text,
            "token_ids": self.token_ids,
            "num_new_tokens": len(self.token_ids),
            "passes": d.passes,
            "cache_passes": d.cache_passes,
            "tokens_per_pass": produced / (d.passes + d.cache_passes),
            "seconds": d.seconds,
            "tokens_per_sec": produced / d.seconds,
            "seconds_to_first_token": d.seconds_to_first_token,
        }


@dataclass(frozen=True)
class Trained:
    """A model with its parameters and its tokenizer.

    Attributes:
      model: pure functions of the parameters.
      params: nested dict of fp32 arrays.
      tokenizer: the one the model was trained with.
      config: the resolved configuration of its run.
      kind: `train` or `convert`.
      step: the checkpoint's step.
    """

    model: Model
    params: dict[str, Any]
    tokenizer: Tokenizer
    config: RunConfig
    kind: str
    step: int

    @property
    def mode(self) -> str:
        """How the run was trained to write: `ar` or `diffusion`."""
        return "ar" if self.config.objective.kind == "causal" else "diffusion"

    @property
    def structure(self) -> Structure:
        """Who sees whom when this model reads a clean text: in a conversion, as in the phase of the checkpoint."""
        if self.kind == "convert":
            schedule = phases(self.config.convert, self.config.train.num_steps)
            return Structure(phase_at(schedule, max(self.step, 1) - 1).block_size)
        return Structure(self.config.objective.block_size or 0)

    def logits(self, token_ids: Sequence[Sequence[int]] | np.ndarray | jax.Array) -> jax.Array:
        """Int [B, T] to fp32 [B, T, V], in the reading that the model was trained for."""
        tokens_BT = jnp.asarray(token_ids, jnp.int32)
        return self.model.logits(self.params, self.model.hidden(self.params, tokens_BT, self.structure))

    def generate(
        self,
        prompts: Sequence[str],
        *,
        max_new_tokens: int = 50,
        mode: str | None = None,
        sampling: Sampling | None = None,
        steps: int = 0,
        block_size: int = 0,
        seed: int = 0,
        stop: Sequence[str] = (),
        ignore_eos: bool = False,
    ) -> list[Generation]:
        """Continues each prompt; the prompts of one call are one batch.

        Args:
          mode: `ar` or `diffusion`; None: what the run was trained for.
          steps, block_size: of diffusion only, see `generation.diffusion.decode`.
          stop: the text ends before the first of these.
          ignore_eos: go on after an end-of-text token, which then is part of the result.
        """
        mode = mode or self.mode
        if mode not in MODES:
            raise UserError(f"--mode is {mode!r}, allowed: {' or '.join(MODES)}")
        ids = [self.tokenizer.encode_prompt(prompt) for prompt in prompts]
        eos = self.tokenizer.end_of_text_id
        common: dict[str, Any] = dict(
            max_new_tokens=max_new_tokens,
            sampling=sampling or Sampling(),
            tokenizer_size=self.tokenizer.vocab_size,
            mask_token_id=self.config.model.mask_token_id,
            seed=seed,
        )
        if mode == "ar":
            if steps or block_size:
                raise UserError("--steps and --block_size belong to --mode=diffusion, allowed: neither with --mode=ar")
            decoded = autoregressive.decode(
                self.model, self.params, ids, end_of_text_id=None if ignore_eos else eos, **common
            )
        else:
            if self.config.model.mask_token_id is None:
                raise UserError("--mode=diffusion needs a mask token and this run has none, allowed: --mode=ar")
            decoded = diffusion.decode(
                self.model,
                self.params,
                ids,
                shift=bool(self.config.objective.shift),
                trained_block_size=self.structure.block_size,
                steps=steps,
                block_size=block_size,
                **common,
            )
        return [self._cut(prompt, d, stop, ignore_eos) for prompt, d in zip(prompts, decoded, strict=True)]

    def _cut(self, prompt: str, decoded: Decoded, stop: Sequence[str], ignore_eos: bool) -> Generation:
        """Ends the tokens at the end of the text, and the text before the first stop string."""
        ids, eos = decoded.token_ids, self.tokenizer.end_of_text_id
        if not ignore_eos and eos in ids:
            ids = ids[: ids.index(eos)]
        text = self.tokenizer.decode(ids)
        ends = [at for s in stop if (at := text.find(s)) >= 0]
        if ends:
            text = text[: min(ends)]
            while ids and len(self.tokenizer.decode(ids[:-1])) >= len(text):
                ids = ids[:-1]
        return Generation(prompt, text, list(ids), decoded)


def load(path: str | Path, step: int | None = None, dtype: str | None = None) -> Trained:
    """Opens a workdir.

    Args:
      path: a directory made by `train`, `convert` or `import_hf`.
      step: the checkpoint; None: the newest.
      dtype: compute type; None: float32 on a CPU, else the run's own.

    Raises:
      UserError: not a workdir, or no such checkpoint.
    """
    config, kind = workdir.read(path)
    if dtype is None:
        dtype = "float32" if jax.default_backend() == "cpu" else config.execution.dtype
    execution = dataclasses.replace(config.execution, dtype=dtype, attention="auto", layers="auto")
    model = build_model(config.model, execution)
    params, step = checkpoint.load_params(path, step, model=model)
    return Trained(model, params, Tokenizer.load(Path(path) / "tokenizer"), config, kind, step)
