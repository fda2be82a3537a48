"""Everything a run is, as frozen dataclasses: the only place where a field, its default and its limits are written.

`RunConfig` is what `train` and `convert` read, `PrepareConfig` what `prepare_data` reads. Files in `configs/` start
from `run()` or `prepare()` and change a few fields; `fields.build` turns the result back into these classes, and the
`__post_init__` methods say what does not fit together. Names of sizes: L layers, D width, F feed-forward width.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import ml_collections

from jaxlm.fields import Table, config_dict, nearest, option, require, section
from jaxlm.model_config import ModelConfig
from jaxlm.objective_config import ObjectiveConfig


@dataclass(frozen=True)
class DataConfig:
    """Which windows a run reads."""

    dir: str = option("", "a directory made by prepare_data")
    isolate_documents: bool = option(False, "documents in one window do not see each other")


@dataclass(frozen=True)
class TrainConfig:
    """How long, in what portions. A token budget is cut to whole optimizer steps."""

    total_tokens: int = option(1_000_000_000, "tokens to train on; sets the length of the schedule", minimum=1)
    batch_tokens: int = option(122_880, "tokens of one optimizer step", minimum=1)
    seq_len: int = option(1024, "positions of one window", minimum=2)
    micro_batch: int = option(0, "windows of one forward over all devices; 0: the whole batch", minimum=0)
    learning_rate: float = option(5e-4, "peak of the schedule", minimum=0)
    stop_at: int = option(0, "stop after this many steps, the schedule unchanged; 0: at the end", minimum=0)
    eval_every: int = option(0, "steps between validations; 0: at the end only", minimum=0)
    eval_windows: int = option(64, "validation windows of one evaluation during training; 0: none", minimum=0)
    save_every: int = option(500, "steps between checkpoints; one is always made at the end", minimum=1)
    keep: int = option(2, "checkpoints that stay, the newest", minimum=1)
    log_every: int = option(10, "steps between lines of metrics.jsonl", minimum=1)
    tensorboard: bool = option(True, "write TensorBoard events too")
    wandb_project: str = option("", "a Weights & Biases project to log to; empty: none")

    def __post_init__(self) -> None:
        require(
            self.batch_tokens % self.seq_len == 0,
            f"train.batch_tokens is {self.batch_tokens}, allowed: a multiple of train.seq_len = {self.seq_len}",
        )
        require(
            self.total_tokens >= self.batch_tokens,
            f"train.total_tokens is {self.total_tokens}, allowed: at least one batch, "
            f"train.batch_tokens = {self.batch_tokens}",
        )
        rows = self.batch_tokens // self.seq_len
        require(
            self.micro_batch == 0 or rows % self.micro_batch == 0,
            f"train.micro_batch is {self.micro_batch}, allowed: a divisor of the {rows} windows of a batch, or 0",
        )

    @property
    def batch_size(self) -> int:
        """Windows of one optimizer step."""
        return self.batch_tokens // self.seq_len

    @property
    def num_steps(self) -> int:
        """Optimizer steps of the whole schedule."""
        return self.total_tokens // self.batch_tokens

    @property
    def accumulation(self) -> int:
        """Forwards of one optimizer step."""
        return self.batch_size // (self.micro_batch or self.batch_size)


@dataclass(frozen=True)
class OptimizerConfig:
    """AdamW with a warmup and one of three schedules. The values nobody published are jaxlm's convention (README)."""

    beta1: float = option(0.9, "decay of the first moment", minimum=0)
    beta2: float = option(0.95, "decay of the second moment", minimum=0)
    eps: float = option(1e-8, "epsilon of Adam", minimum=0)
    weight_decay: float = option(0.1, "decoupled decay, times the learning rate, on matrices only", minimum=0)
    clip_norm: float = option(1.0, "largest global gradient norm; 0: no clipping", minimum=0)
    warmup_share: float = option(0.02, "share of the steps in which the rate rises from 0", minimum=0)
    final_share: float = option(0.1, "the last rate as a share of the peak", minimum=0)
    schedule: str = option(
        "cosine",
        "after the warmup; wsd: stable, then a linear decay at the end",
        allowed=("cosine", "constant", "wsd"),
    )
    decay_share: float = option(0.1, "wsd: share of the steps in which the rate falls", minimum=0)

    def __post_init__(self) -> None:
        for name in ("beta1", "beta2", "warmup_share"):
            require(getattr(self, name) < 1, f"optimizer.{name} is {getattr(self, name)}, allowed: below 1")
        if self.schedule == "wsd":
            require(
                self.warmup_share + self.decay_share <= 1,
                f"optimizer.warmup_share + optimizer.decay_share is {self.warmup_share + self.decay_share}, "
                "allowed: at most 1",
            )
        else:
            usual = type(self).decay_share
            require(
                self.decay_share == usual,
                f"optimizer.decay_share is {self.decay_share}, allowed: {usual}, its default, unless "
                "optimizer.schedule is 'wsd'",
            )


@dataclass(frozen=True)
class ConvertConfig:
    """The block-size schedule from autoregression to diffusion (LLaDA2.0): warmup by `block_sizes`, then stable, decay.

    Warmup and decay are shares of the steps, or numbers of tokens cut to whole steps; a share is left at its default
    where tokens are given.
    """

    block_sizes: tuple[int, ...] = option((1, 4, 32, 64), "blocks of the warmup phases", minimum=1)
    warmup_share: float = option(0.4, "share of the steps spent on block_sizes", minimum=0)
    warmup_tokens: int | None = option(None, "tokens spent on block_sizes; none: warmup_share decides", minimum=1)
    warmup_parts: tuple[float, ...] = option((), "relative lengths of the warmup phases; empty: equal", minimum=0)
    decay_block_sizes: tuple[int, ...] = option((), "blocks of the decay phases after the stable one", minimum=1)
    decay_share: float = option(0.0, "share of the steps spent on decay_block_sizes", minimum=0)
    decay_tokens: int | None = option(None, "tokens spent on decay_block_sizes; none: decay_share decides", minimum=1)
    decay_parts: tuple[float, ...] = option((), "relative lengths of the decay phases; empty: equal", minimum=0)

    def __post_init__(self) -> None:
        for group, block_sizes in (("warmup", self.block_sizes), ("decay", self.decay_block_sizes)):
            share, tokens = getattr(self, f"{group}_share"), getattr(self, f"{group}_tokens")
            usual = getattr(type(self), f"{group}_share")
            require(
                tokens is None or share == usual,
                f"convert.{group}_tokens is {tokens} and convert.{group}_share {share}, allowed: one of them "
                f"(the share at its default, {usual})",
            )
            parts = getattr(self, f"{group}_parts")
            require(
                not parts or (len(parts) == len(block_sizes) and min(parts) > 0),
                f"convert.{group}_parts is {parts}, allowed: a number above 0 for each of {len(block_sizes)} blocks, "
                "or nothing",
            )
        require(
            bool(self.block_sizes) or self.warmup_tokens is None,
            f"convert.warmup_tokens is {self.warmup_tokens}, allowed: none without convert.block_sizes",
        )
        shares = self.decay_share + (self.warmup_share if self.warmup_tokens is None else 0)
        require(shares <= 1, f"convert.warmup_share + convert.decay_share is {shares}, allowed: at most 1")
        decays = self.decay_share > 0 or self.decay_tokens is not None
        require(
            bool(self.decay_block_sizes) == decays,
            f"convert.decay_share is {self.decay_share} and convert.decay_tokens {self.decay_tokens}, allowed: one "
            "above 0 with convert.decay_block_sizes, else 0 and none",
        )


@dataclass(frozen=True)
class ExecutionConfig:
    """How the same mathematics is run. Nothing here changes what is computed, only rounding, memory and speed."""

    dtype: str = option("bfloat16", "compute type; parameters stay float32", allowed=("bfloat16", "float32"))
    attention: str = option("auto", "implementation of attention", allowed=("auto", "xla", "blocked", "cudnn"))
    experts: str = option(
        "auto", "dense: every expert sees every token; grouped: sorted by expert", allowed=("auto", "dense", "grouped")
    )
    layers: str = option("auto", "auto: unroll on a CPU, scan elsewhere", allowed=("auto", "scan", "unroll"))
    remat: str = option("none", "what the backward pass recomputes", allowed=("none", "dots", "full"))
    loss_chunk: int = option(0, "positions of all rows whose logits are held at once; 0: all", minimum=0)
    data_parallel: int = option(-1, "size of the mesh axis `data`; -1: the devices that are left")
    fsdp: int = option(1, "size of the mesh axis `fsdp`, over which parameters are split", minimum=1)


@dataclass(frozen=True)
class RunConfig:
    """One training run or conversion."""

    seed: int = option(0, "of the parameters, the order of the data and the corruption", minimum=0)
    model: ModelConfig = section(ModelConfig, "the architecture")
    data: DataConfig = section(DataConfig, "the windows")
    train: TrainConfig = section(TrainConfig, "budget, batch, bookkeeping")
    optimizer: OptimizerConfig = section(OptimizerConfig, "AdamW and its schedule")
    objective: ObjectiveConfig = section(ObjectiveConfig, "what a batch costs")
    convert: ConvertConfig = section(ConvertConfig, "the block-size schedule of a conversion")
    execution: ExecutionConfig = section(ExecutionConfig, "dtype, implementations, mesh")

    def __post_init__(self) -> None:
        require(
            self.train.seq_len <= self.model.max_positions,
            f"train.seq_len is {self.train.seq_len}, allowed: at most model.max_positions = {self.model.max_positions}",
        )
        require(
            (self.objective.block_size or 0) <= self.train.seq_len,
            f"objective.block_size is {self.objective.block_size}, "
            f"allowed: at most train.seq_len = {self.train.seq_len}",
        )
        if self.objective.anneal_steps:
            require(
                self.execution.attention in ("auto", "xla"),
                f"execution.attention is {self.execution.attention!r}, allowed: 'auto' or 'xla' with "
                "objective.anneal_steps, whose mask is random",
            )
            # Settled here, so that what a run says of itself, its size and its compilation speak of what it does.
            object.__setattr__(self, "execution", dataclasses.replace(self.execution, attention="xla"))

    def check_conversion(self) -> None:
        """Raises ConfigError for a block-size schedule that does not fit; only a conversion reads it."""
        require(
            self.objective.kind == "diffusion",
            f"objective.kind is {self.objective.kind!r}, allowed: 'diffusion' for a conversion",
        )
        for name in ("block_sizes", "decay_block_sizes"):
            require(
                not (self.objective.anneal_steps and getattr(self.convert, name)),
                f"convert.{name} is {getattr(self.convert, name)}, allowed: () with objective.anneal_steps, which goes "
                "from causal to the whole window by itself",
            )
            for size in getattr(self.convert, name):
                require(
                    size <= self.train.seq_len,
                    f"convert.{name} has {size}, allowed: at most train.seq_len = {self.train.seq_len}",
                )


@dataclass(frozen=True)
class PrepareConfig:
    """From text to fixed windows on disk."""

    source: str = option("files", "what `files` says; else one source as it is written there, without a mix")
    files: str | Mapping[str, str] = option(
        "",
        "patterns of .txt, .jsonl or .parquet files (also .gz), by commas; tfds:NAME; hub:OWNER/NAME; package_docs; or "
        "several of these with names, as files.NAME",
    )
    weights: Mapping[str, float] = option(Table(), "of a mix, by name: share of the tokens", minimum=0)
    text_column: str = option("text", "the column or key of the text; without it prompt and completion are read")
    packages: tuple[str, ...] = option((), "name==version, ...: whose documentation strings package_docs reads")
    tokenizer: str = option("train:4096", "train:SIZE, gpt2, or a tokenizer directory")
    seq_len: int = option(1024, "T: a window holds T+1 tokens and starts T after the last one", minimum=2)
    total_tokens: int | None = option(None, "stop after this many training tokens; none: all of the text", minimum=1)
    validation_share: float = option(0.05, "share of the documents (of the text, if few) for validation", minimum=0)
    min_bytes: int = option(64, "shorter documents are dropped", minimum=0)
    deduplicate: bool = option(True, "drop documents whose normalised text was seen before")
    seed: int = option(0, "of the order in which package_docs hands on its texts", minimum=0)

    def __post_init__(self) -> None:
        self._check_mix()
        require(
            0 < self.validation_share < 1,
            f"validation_share is {self.validation_share}, allowed: between 0 and 1, both excluded",
        )
        require(
            self.total_tokens is None or self.total_tokens >= self.seq_len,
            f"total_tokens is {self.total_tokens}, allowed: at least one window, seq_len = {self.seq_len}",
        )

    def _check_mix(self) -> None:
        names = () if isinstance(self.files, str) else tuple(self.files)
        require(isinstance(self.files, str) or bool(names), "files is empty, allowed: at least one source")
        require(
            not names or self.source == "files", f"source is {self.source!r}, allowed: 'files' where those are named"
        )
        for name in self.weights:
            hint = nearest(name, names) if names else "allowed: none, files has no names"
            require(name in names, f"weights has {name!r}, which files has not; {hint}")
        missing = [name for name in names if name not in self.weights]
        require(not missing, f"weights has no {', '.join(missing)}, allowed: a share for each of {', '.join(names)}")
        total = sum(self.weights.values())
        require(
            not names or (min(self.weights.values()) > 0 and abs(total - 1) <= 1e-6),
            f"weights is {self.weights}, which sums to {total:.6g}, allowed: shares above 0 that sum to 1",
        )


# Bookkeeping that may change between two starts of one run (contract 7); every other difference is refused.
FREE_BETWEEN_STARTS = frozenset(
    f"train.{name}"
    for name in "stop_at eval_every eval_windows save_every keep log_every tensorboard wandb_project".split()
)


def run() -> ml_collections.ConfigDict:
    """A locked ConfigDict with every field of `RunConfig` at its default, for the files in `configs/`."""
    return config_dict(RunConfig)


def prepare() -> ml_collections.ConfigDict:
    """A locked ConfigDict with every field of `PrepareConfig` at its default, for the files in `configs/data/`."""
    return config_dict(PrepareConfig)


def replace(config: RunConfig, **sections: dict[str, object]) -> RunConfig:
    """`replace(config, train={"seq_len": 64})`: the same run with some fields changed, validated anew."""
    changed = {name: dataclasses.replace(getattr(config, name), **values) for name, values in sections.items()}
    return dataclasses.replace(config, **changed)
