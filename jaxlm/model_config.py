"""The architecture of a model as a frozen dataclass. Names of sizes: L layers, D width, F feed-forward width."""

from __future__ import annotations

from dataclasses import dataclass

from jaxlm.fields import option, require

CANON_POSITIONS = "ABCD"
FAMILY = "family"  # the value of a field that is as the family has it


@dataclass(frozen=True)
class ModelConfig:
    """The architecture. Sizes default to the skeleton that the study's 32-layer families share (Dhara's config.json).

    The parts that make a family itself are fields too, so that one family can be walked to another a field at a time.
    Left open ("family", 0 or None, as each says) they are what the family has: `jaxlm.families.resolve` fills them in.
    """

    family: str = option("llama3", "name in jaxlm.families.registry")
    vocab_size: int = option(50304, "rows of the embedding, ids outside the tokenizer included", minimum=1)
    num_layers: int = option(32, "stored blocks", minimum=1)
    hidden_size: int = option(384, "width D of the residual stream", minimum=1)
    intermediate_size: int = option(
        1024, "width F of the feed-forward; of each expert, if there are experts", minimum=1
    )
    num_heads: int = option(8, "query heads", minimum=1)
    num_kv_heads: int = option(4, "key and value heads; divides num_heads", minimum=1)
    head_dim: int = option(48, "width of one head; even, if it is rotated", minimum=1)
    max_positions: int = option(1024, "the longest sequence the model is meant for", minimum=1)
    tie_embeddings: bool = option(True, "the head is the embedding matrix")
    init_std: float = option(0.02, "standard deviation of every matrix at the start", minimum=0)
    norm: str = option(
        FAMILY,
        "before each branch; rms_unit_offset: RMS times 1 + w",
        allowed=(FAMILY, "rms", "layer", "rms_unit_offset"),
    )
    norm_eps: float = option(0.0, "epsilon of the norms; 0: the family's", minimum=0)
    positions: str = option(FAMILY, "how a position is known", allowed=(FAMILY, "rope", "learned", "none"))
    rope_theta: float = option(0.0, "base of the rotary frequencies; 0: the family's", minimum=0)
    rope_theta_local: float = option(0.0, "the same in L layers; 0: the family's, if it has one", minimum=0)
    feed_forward: str = option(
        FAMILY, "silu(gate) * up, gelu(gate) * up, or gelu(up)", allowed=(FAMILY, "swiglu", "geglu", "gelu")
    )
    use_bias: bool | None = option(None, "of the matrices and of LayerNorm; none: the family's")
    qk_norm: bool | None = option(None, "RMSNorm of each query and key head; none: the family's")
    scale_embeddings: bool | None = option(None, "embeddings times sqrt(D); none: the family's")
    scale_residual_init: bool | None = option(
        None, "matrices that write to the stream start smaller by sqrt(2 L); none: the family's"
    )
    query_scalar: float = option(0.0, "scores are divided by its root; 0: head_dim", minimum=0)
    layer_pattern: str = option(
        FAMILY,
        "a letter a layer, tiled and cut: G global attention, L local (sliding_window), C short convolution, "
        "S attention within a segment, M the same with a neural memory",
    )
    sliding_window: int = option(
        0, "W of the L layers: a position sees itself and W-1 back; 0: the family's", minimum=0
    )
    conv_kernel: int = option(3, "taps of a C layer", minimum=1)
    segment_len: int = option(0, "tokens of a segment of S and M layers; 0: the family's", minimum=0)
    num_longterm_tokens: int | None = option(
        None, "learned vectors that each segment ends with; none: the family's", minimum=0
    )
    num_persistent_tokens: int | None = option(
        None, "learned keys and values that S and M layers see in front of each segment; none: the family's", minimum=0
    )
    memory_reading: str = option(
        FAMILY,
        "what an M layer does with its memory: adds it to the stream or gates the attention with it (titans-pytorch), "
        "or attends to it and stores what the attention found (the paper)",
        allowed=(FAMILY, "residual", "gate", "context"),
    )
    memory_depth: int = option(0, "matrices of the memory's network; 0: the family's", minimum=0)
    memory_expansion: float = option(0.0, "its inner width, in head_dim; 0: the family's", minimum=0)
    memory_chunk: int = option(0, "positions that share a momentum and a forgetting; 0: the family's", minimum=0)
    memory_batch: int = option(0, "positions whose gradients are taken at the same weights; 0: the family's", minimum=0)
    memory_max_rate: float = option(0.0, "the largest learning rate of the memory; 0: the family's", minimum=0)
    memory_forgetting: float = option(
        0.0, "share of the memory that a chunk forgets before that is learned, below 1; 0: the family's", minimum=0
    )
    layer_repeats: int = option(1, "times that each block runs, in a row, with the same weights", minimum=1)
    num_experts: int = option(0, "experts that the router chooses from; 0: the family's", minimum=0)
    experts_per_token: int = option(0, "experts that work for one token; 0: the family's", minimum=0)
    num_shared_experts: int = option(0, "experts that work for every token", minimum=0)
    normalize_experts: bool = option(True, "the weights of a token's chosen experts sum to 1")
    router_balance_coef: float = option(0.01, "times the load-balancing loss", minimum=0)
    router_z_coef: float = option(0.001, "times the squared log-sum-exp of the router", minimum=0)
    canon_set: str = option(FAMILY, "where Canon layers sit: any of A B C D, in order, or nothing")
    canon_kernel: int = option(4, "taps of a Canon layer", minimum=1)
    canon_residual: bool = option(True, "Canon adds to its input")
    canon_bias: bool = option(False, "Canon has a bias")
    canon_activation: bool = option(False, "SiLU on the convolution's output")
    canon_d_width: str = option(
        "gate_up",
        "Canon D on [gate, up] (PhysicsLM4) or on silu(gate) * up (dhara-250m)",
        allowed=("gate_up", "product"),
    )
    mask_token_id: int | None = option(None, "[MASK] of diffusion; none: the first id outside the tokenizer", minimum=0)

    def __post_init__(self) -> None:
        require(
            self.num_heads % self.num_kv_heads == 0,
            f"model.num_kv_heads is {self.num_kv_heads}, allowed: a divisor of model.num_heads = {self.num_heads}",
        )
        require(
            self.head_dim % 2 == 0 or self.positions != "rope",
            f"model.head_dim is {self.head_dim}, allowed: an even number for model.positions 'rope', which turns pairs",
        )
        canon = "".join(p for p in CANON_POSITIONS if p in self.canon_set)
        require(
            self.canon_set in (FAMILY, canon),
            f"model.canon_set is {self.canon_set!r}, allowed: any of {CANON_POSITIONS}, each once, in order",
        )
        if self.layer_pattern != FAMILY:
            self._check_pattern()
        require(
            self.mask_token_id is None or self.mask_token_id < self.vocab_size,
            f"model.mask_token_id is {self.mask_token_id}, allowed: below model.vocab_size = {self.vocab_size}",
        )
        if self.num_experts:
            self._check_experts()

    def _check_pattern(self) -> None:
        require(
            bool(self.layer_pattern) and set(self.layer_pattern) <= set("GLCSM"),
            f"model.layer_pattern is {self.layer_pattern!r}, allowed: a string of G, L, C, S and M",
        )
        local = "L" in self.layer_pattern
        require(
            local == (self.sliding_window > 0),
            f"model.sliding_window is {self.sliding_window}, allowed: at least 1 with L layers in model.layer_pattern, "
            f"0 without (it is {self.layer_pattern!r})",
        )

    def _check_experts(self) -> None:
        require(
            0 <= self.experts_per_token <= self.num_experts,
            f"model.experts_per_token is {self.experts_per_token}, "
            f"allowed: at most model.num_experts = {self.num_experts}",
        )
        require(
            self.feed_forward != "gelu" and not self.use_bias,
            f"model.num_experts is {self.num_experts} with model.feed_forward {self.feed_forward!r} and "
            f"model.use_bias {self.use_bias}, allowed: gated experts without biases",
        )
        require(
            self.canon_set == FAMILY or "D" not in self.canon_set,
            f"model.canon_set is {self.canon_set!r} with model.num_experts {self.num_experts}, allowed: no D, for the "
            "positions that one expert works for do not follow one another",
        )

    @property
    def layer_kinds(self) -> str:
        """One letter a stored layer: `layer_pattern` tiled and cut to `num_layers`."""
        return (self.layer_pattern * self.num_layers)[: self.num_layers]

    @property
    def segment_positions(self) -> int:
        """Positions of a segment: its tokens and the learned vectors behind them; 0 without segments."""
        return self.segment_len + (self.num_longterm_tokens or 0)

    @property
    def memory_widths(self) -> list[int]:
        """Widths before, between and behind the matrices of a memory's network."""
        inner = round(self.head_dim * self.memory_expansion)
        return [self.head_dim, *[inner] * (self.memory_depth - 1), self.head_dim]
