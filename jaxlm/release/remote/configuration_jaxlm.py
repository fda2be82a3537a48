"""The configuration of a language model that was trained with jaxlm: a LLaMA-like decoder, maybe with Canon layers.

One set of fields has both readings of such a model. `attention_block_size` says who sees whom: 1 is left to right (an
autoregressive model), 0 lets every position see every other (masked diffusion), b > 1 lets a position see its own block
of b and the earlier ones. `shift` says where the logits that predict token i are read: at i - 1, or at i itself.
"""

from transformers import PretrainedConfig


class JaxlmConfig(PretrainedConfig):
    """Shapes and options of the model.

    Args:
        vocab_size: rows of the embedding; ids from `tokenizer_size` on belong to no text and are never generated.
        hidden_size, intermediate_size, num_hidden_layers, num_attention_heads, num_key_value_heads, head_dim: as in
            Llama, like hidden_act, max_position_embeddings, rope_theta, rms_norm_eps, initializer_range and
            tie_word_embeddings.
        family: its name in jaxlm; documentation, the fields say what it is.
        qk_norm: whether each query and key head is normed before it is rotated.
        layer_pattern: one letter a layer, G attends to the whole sequence, L to a window.
        layer_repeats: times that each layer runs, in a row, with the same weights.
        sliding_window: W; an L layer sees fewer than W positions away. None without L layers.
        rope_theta_local: the rotary base of L layers; None for `rope_theta`.
        canon_set: where short convolutions sit, any of A (before attention), B (on q, k, v), C (before the
            feed-forward), D (inside it).
        canon_kernel, canon_residual, canon_bias, canon_activation: taps, whether the input is added, a bias, and SiLU.
        canon_d_width: "gate_up" puts D on gate and up before the activation, "product" on silu(gate) * up.
        attention_block_size, shift: see above.
        tokenizer_size: ids of the tokenizer, end of text included.
        mask_token_id: the token that diffusion replaces, None where there is none.
        mask_epsilon: least probability of a mask in training; documentation, decoding does not use it.
    """

    model_type = "jaxlm"
    keys_to_ignore_at_inference = ["cache", "past_key_values"]

    def __init__(
        self,
        vocab_size=50304,
        hidden_size=384,
        intermediate_size=1024,
        num_hidden_layers=32,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=48,
        hidden_act="silu",
        max_position_embeddings=1024,
        rope_theta=10000.0,
        rms_norm_eps=1e-6,
        initializer_range=0.02,
        tie_word_embeddings=True,
        family="llama3",
        qk_norm=False,
        layer_pattern="G",
        layer_repeats=1,
        sliding_window=None,
        rope_theta_local=None,
        canon_set="",
        canon_kernel=4,
        canon_residual=True,
        canon_bias=False,
        canon_activation=False,
        canon_d_width="gate_up",
        attention_block_size=1,
        shift=True,
        tokenizer_size=None,
        mask_token_id=None,
        mask_epsilon=None,
        use_cache=True,
        pad_token_id=None,
        bos_token_id=None,
        eos_token_id=None,
        **kwargs,
    ):
        for name, value, allowed in (
            ("hidden_act", hidden_act, ("silu",)),
            ("canon_d_width", canon_d_width, ("gate_up", "product")),
        ):
            if value not in allowed:
                raise ValueError(f"{name} is {value!r}, allowed: {', '.join(map(repr, allowed))}")
        if set(layer_pattern) - set("GL") or ("L" in layer_pattern and not sliding_window):
            raise ValueError(f"layer_pattern {layer_pattern!r} needs the letters G and L only, and L a sliding_window")
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.intermediate_size = intermediate_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.num_key_value_heads = num_key_value_heads
        self.head_dim = head_dim
        self.hidden_act = hidden_act
        self.max_position_embeddings = max_position_embeddings
        self.rope_theta = rope_theta
        self.rms_norm_eps = rms_norm_eps
        self.initializer_range = initializer_range
        self.family = family
        self.qk_norm = qk_norm
        self.layer_pattern = layer_pattern
        self.layer_repeats = layer_repeats
        self.sliding_window = sliding_window
        self.rope_theta_local = rope_theta if rope_theta_local is None else rope_theta_local
        self.canon_set = canon_set
        self.canon_kernel = canon_kernel
        self.canon_residual = canon_residual
        self.canon_bias = canon_bias
        self.canon_activation = canon_activation
        self.canon_d_width = canon_d_width
        self.attention_block_size = attention_block_size
        self.shift = shift
        self.tokenizer_size = vocab_size if tokenizer_size is None else tokenizer_size
        self.mask_token_id = mask_token_id
        self.mask_epsilon = mask_epsilon
        self.use_cache = use_cache
        super().__init__(
            tie_word_embeddings=tie_word_embeddings,
            pad_token_id=pad_token_id,
            bos_token_id=bos_token_id,
            eos_token_id=eos_token_id,
            **kwargs,
        )

    @property
    def layer_kinds(self):
        """One letter a layer: the pattern, repeated and cut to the number of layers."""
        return (self.layer_pattern * self.num_hidden_layers)[: self.num_hidden_layers]

    @property
    def never_generated(self):
        """Ids that no sampler may choose: the mask token and those outside the tokenizer."""
        outside = list(range(self.tokenizer_size, self.vocab_size))
        inside_mask = self.mask_token_id is not None and self.mask_token_id < self.tokenizer_size
        return outside + ([self.mask_token_id] if inside_mask else [])
