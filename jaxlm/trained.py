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
from jaxlm.generation import Decoded, Sampling, Selection, autoregressive, diffusion, template
from jaxlm.layers.structure import Structure
from jaxlm.training import checkpoint, workdir
from jaxlm.training.schedule import phase_at, phases_of

MODES = ("ar", "diffusion")


@dataclass(frozen=True)
class Generation:
    """One text and its new tokens: a continuation up to a stop, or a template with its holes filled.

    Attributes:
      prompt: what was given.
      text: the continuation, or the whole text of a template.
      token_ids: the new tokens.
      decoded: what making them cost.
    """

    prompt: str
    text: str
    token_ids: list[int]
    decoded: Decoded

    def record(self) -> dict[str, Any]:
        """The JSON object of `generate --json`.

        Tokens per second count what was decoded for this text, a cut tail included, over the time of its whole batch.
        """
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
            "seconds_to_first_pass": d.seconds_to_first_pass,
            "cache_bytes": d.cache_bytes,
            "logits_bytes": d.logits_bytes,
            "changed_share": d.changed_share,
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
        schedule = phases_of(self.config, self.kind)
        return Structure(phase_at(schedule, max(self.step, 1) - 1).block_size)

    def logits(self, token_ids: Sequence[Sequence[int]] | np.ndarray | jax.Array) -> jax.Array:
        """Int [B, T] to fp32 [B, T, V], in the reading that the model was trained for."""
        tokens_BT = jnp.asarray(token_ids, jnp.int32)
        return self.model.logits(self.params, self.model.hidden(self.params, tokens_BT, self.structure))

    def generate(
        self,
        prompts: Sequence[str | Sequence[int]],
        *,
        max_new_tokens: int = 50,
        mode: str | None = None,
        sampling: Sampling | None = None,
        steps: int | None = None,
        block_size: int | None = None,
        selection: Selection | None = None,
        cache: str | None = None,
        seed: int = 0,
        first_row: int = 0,
        stop: Sequence[str] = (),
        ignore_eos: bool = False,
    ) -> list[Generation]:
        """Continues each prompt; the prompts of one call are one batch.

        Args:
          prompts: texts, or the token ids of one as they are.
          mode: `ar` or `diffusion`; None: what the run was trained for.
          steps, block_size, selection, cache: of diffusion only, see `generation.diffusion.decode`.
          first_row: the number of the first prompt; what a row draws depends on its number, so prompts that are
            continued in several calls go on counting.
          stop: the text ends before the first of these.
          ignore_eos: go on after an end-of-text token, which then is part of the result.
        """
        mode = self._checked_mode(mode)
        ids = [self.tokenizer.encode_prompt(prompt) if isinstance(prompt, str) else list(prompt) for prompt in prompts]
        end = None if ignore_eos else self.tokenizer.end_of_text_id
        sampling = sampling or Sampling()
        if mode == "ar":
            given = {"steps": steps, "block_size": block_size, "cache": cache}
            given |= dataclasses.asdict(selection) if selection else {}
            for name, value in given.items():
                if value is not None:
                    raise UserError(f"--{name}={value} belongs to --mode=diffusion, allowed: none with --mode=ar")
            decoded = autoregressive.decode(
                self.model,
                self.params,
                ids,
                max_new_tokens=max_new_tokens,
                sampling=sampling,
                tokenizer_size=self.tokenizer.vocab_size,
                end_of_text_id=end,
                mask_token_id=self.config.model.mask_token_id,
                seed=seed,
                first_row=first_row,
            )
        else:
            rows = diffusion.canvas(ids, max_new_tokens, self.model.config.max_positions)
            options = dict(steps=steps or 0, block_size=block_size or 0, selection=selection, cache=cache)
            options |= dict(seed=seed, first_row=first_row)
            decoded = self._denoise(rows, sampling=sampling, end_of_text_id=end, **options)
        texts = [prompt if isinstance(prompt, str) else self.tokenizer.decode(prompt) for prompt in prompts]
        return [self._cut(text, d, stop, ignore_eos) for text, d in zip(texts, decoded, strict=True)]

    def infill(
        self,
        templates: Sequence[str],
        *,
        mode: str | None = None,
        sampling: Sampling | None = None,
        steps: int | None = None,
        block_size: int | None = None,
        selection: Selection | None = None,
        cache: str | None = None,
        seed: int = 0,
        first_row: int = 0,
    ) -> list[Generation]:
        """Fills the holes of each template (see `generation.template`), never with an end of text; one batch.

        Args:
          mode: None or `diffusion`, which the run must be trained for.
          steps, block_size, selection, cache: see `generation.diffusion.decode`; first_row: see `generate`.
        """
        if self._checked_mode(mode) == "ar":
            raise UserError(
                "--template with --mode=ar: from left to right, no hole is filled with regard to what follows it, "
                "allowed: --mode=diffusion, of a diffusion model"
            )
        begun = self.tokenizer.encode_prompt("")

        def encode(piece: str) -> list[int]:
            return self.tokenizer.encode_prompt(piece)[len(begun) :]

        rows = [[*begun, *template.read(text, encode)] for text in templates]
        shift = bool(self.config.objective.shift)
        for row in rows:
            template.check(row, self.model.config.max_positions, self.structure.block_size, shift)
        decoded = self._denoise(
            rows,
            sampling=sampling or Sampling(),
            never=(self.tokenizer.end_of_text_id,),
            steps=steps or 0,
            block_size=block_size or 0,
            selection=selection,
            cache=cache,
            seed=seed,
            first_row=first_row,
        )
        return [
            Generation(text, template.join(text, d.token_ids, self.tokenizer.decode), d.token_ids, d)
            for text, d in zip(templates, decoded, strict=True)
        ]

    def _checked_mode(self, mode: str | None) -> str:
        mode = mode or self.mode
        if mode not in MODES:
            raise UserError(f"--mode is {mode!r}, allowed: {' or '.join(MODES)}")
        if mode == "diffusion" and self.config.model.mask_token_id is None:
            raise UserError("--mode=diffusion needs a mask token and this run has none, allowed: --mode=ar")
        return mode

    def _denoise(self, rows: Sequence[diffusion.Row], **options: Any) -> list[Decoded]:
        assert self.config.model.mask_token_id is not None  # the mode has seen to it
        return diffusion.decode(
            self.model,
            self.params,
            rows,
            tokenizer_size=self.tokenizer.vocab_size,
            mask_token_id=self.config.model.mask_token_id,
            shift=bool(self.config.objective.shift),
            trained_block_size=self.structure.block_size,
            **options,
        )

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
