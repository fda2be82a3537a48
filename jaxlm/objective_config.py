"""What a batch costs, as a frozen dataclass: one objective with three settings, and what training may add to it."""

from __future__ import annotations

from dataclasses import dataclass

from jaxlm.fields import option, require


@dataclass(frozen=True)
class ObjectiveConfig:
    """What a batch costs. One objective with three settings; see `jaxlm.objectives`.

    The fields from `crop_share` on act in training alone: a validation always scores whole windows.
    """

    kind: str = option("causal", "causal: autoregression; diffusion: masked diffusion", allowed=("causal", "diffusion"))
    block_size: int | None = option(
        None, "tokens written together: 1, b, or 0 for the whole window; none: 1 if causal, else 0", minimum=0
    )
    shift: bool | None = option(None, "the logits that predict token i are read at i-1; none: only if causal")
    eps: float = option(1e-3, "least probability of a mask", minimum=0)
    stratified: bool = option(True, "spread the noise levels evenly over the global batch")
    crop_share: float = option(0.0, "share of the windows that are cut to a random length (LLaDA: 0.01)", minimum=0)
    anneal_steps: int = option(0, "steps in which attention goes from causal to all-visible; 0: at once", minimum=0)
    mask_noise_std: float = option(0.0, "of the noise on the embeddings of masked tokens in the first steps", minimum=0)
    mask_noise_steps: int = option(0, "steps with that noise", minimum=0)

    def __post_init__(self) -> None:
        causal = self.kind == "causal"
        if self.block_size is None:
            object.__setattr__(self, "block_size", 1 if causal else 0)
        if self.shift is None:
            object.__setattr__(self, "shift", causal)
        require(
            not causal or (self.block_size == 1 and bool(self.shift)),
            f"objective.block_size is {self.block_size} and objective.shift {self.shift}, allowed: 1 and True for "
            "objective.kind = 'causal' (set objective.kind=diffusion for the others)",
        )
        require(0 < self.eps < 1, f"objective.eps is {self.eps}, allowed: between 0 and 1")
        self._check_options()

    def _check_options(self) -> None:
        for name in ("crop_share", "anneal_steps", "mask_noise_std", "mask_noise_steps"):
            require(
                self.kind == "diffusion" or not getattr(self, name),
                f"objective.{name} is {getattr(self, name)}, allowed: 0 for objective.kind = {self.kind!r}",
            )
        require(self.crop_share <= 1, f"objective.crop_share is {self.crop_share}, allowed: at most 1")
        require(
            not self.anneal_steps or self.block_size == 0,
            f"objective.anneal_steps is {self.anneal_steps}, allowed: 0 with objective.block_size = {self.block_size} "
            "(only the whole window as one block, 0, is annealed)",
        )
        require(
            bool(self.mask_noise_std) == bool(self.mask_noise_steps),
            f"objective.mask_noise_std is {self.mask_noise_std} with objective.mask_noise_steps = "
            f"{self.mask_noise_steps}, allowed: both above 0, or both 0",
        )
