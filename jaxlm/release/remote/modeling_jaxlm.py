"""A LLaMA-like decoder with or without Canon layers, as an autoregressive and as a masked diffusion model.

Runs in transformers 4.57 and 5.x. Padding is read from `attention_mask` only and may hold any id: no position sees a
pad, rotary positions start at the first real token, and the short convolutions see zeros where the pads are.

Letters in names: B rows, b new positions, S all positions, cached ones included, N query heads, K key and value heads,
H head width, C channels.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast

from .cache_jaxlm import CACHE_NAME, JaxlmCache
from .configuration_jaxlm import JaxlmConfig
from .generation_jaxlm import JaxlmCausalGenerationMixin, JaxlmDiffusionGenerationMixin

# From a local directory transformers 4.57 takes along only the files that this one names itself.
from .schedule_jaxlm import schedule  # noqa: F401
from .selection_jaxlm import Selection  # noqa: F401


@dataclass
class Reading:
    """What every layer needs to know of the sequence.

    rotation: by kind of layer, cosines and sines, [B or 1, 1, b, H/2], fp32. visible: by kind of layer, bool
    [B or 1, 1, b, S], which keys a query sees. real_Bb1: bool [B, b, 1], False at pads; None without padding. cache:
    None when the whole sequence is read at once. run: how often the present layer has run before.
    """

    rotation: dict
    visible: dict
    real_Bb1: torch.Tensor | None
    cache: JaxlmCache | None
    run: int = 0


def read(config, batch, length, attention_mask, cache, device):
    """The Reading of `length` new positions that follow those in the cache.

    attention_mask: [B, S], 1 at real tokens and 0 at pads, over the cached positions too; or None.
    """
    past = cache.get_seq_length() if cache is not None else 0
    total = past + length
    real_BS = None
    if attention_mask is not None:
        if tuple(attention_mask.shape) != (batch, total):
            raise ValueError(f"attention_mask has shape {tuple(attention_mask.shape)}, it must be {(batch, total)}")
        real_BS = attention_mask.to(device).bool()
        if cache is not None and length > 1 and (real_BS[:, :-1] & ~real_BS[:, 1:]).any():
            raise ValueError("pads must be on the left of the text: a cache takes what is on the right for its end")
    index_S = torch.arange(total, device=device)
    position_BS = index_S[None] if real_BS is None else (real_BS.long().cumsum(-1) - 1).clamp(min=0)
    query, key = position_BS[:, past:, None], position_BS[:, None, :]
    size = config.attention_block_size
    seen = key // size <= query // size if size else torch.ones_like(key <= query)
    local = seen & ((query - key).abs() < config.sliding_window) if config.sliding_window else seen
    # A pad sees itself, whoever else it sees, for a softmax over nothing is not a number.
    itself = index_S == index_S[past:, None]
    keep = [s if real_BS is None else (s & real_BS[:, None, :]) | itself for s in (seen, local)]
    half, rotation = config.head_dim // 2, {}
    for kind, theta in (("G", config.rope_theta), ("L", config.rope_theta_local)):
        frequency = theta ** (-torch.arange(half, device=device, dtype=torch.float32) / half)
        angle = position_BS[:, None, past:, None].float() * frequency
        rotation[kind] = (angle.cos(), angle.sin())
    real_Bb1 = None if real_BS is None else real_BS[:, past:, None]
    return Reading(rotation, {k: v[:, None] for k, v in zip("GL", keep, strict=True)}, real_Bb1, cache)


def rotate(x_BNbH, rotation):
    """Turns the pairs (i, i + H/2) of each head by its position, in fp32."""
    first, second = x_BNbH.float().chunk(2, dim=-1)
    cos, sin = rotation
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x_BNbH.dtype)


class JaxlmRMSNorm(nn.Module):
    """x / rms(x) * weight in fp32."""

    def __init__(self, width, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        x32 = x.float()
        return (x32 * torch.rsqrt(x32.square().mean(-1, keepdim=True) + self.eps) * self.weight.float()).to(x.dtype)


class JaxlmCanon(nn.Module):
    """x + a short causal depthwise convolution of x (PhysicsLM4, arXiv 2512.17351); the last tap is for the present."""

    def __init__(self, config, channels, name):
        super().__init__()
        taps = config.canon_kernel
        self.conv = nn.Conv1d(channels, channels, taps, groups=channels, bias=config.canon_bias)
        self.name, self.reach = name, taps - 1
        self.residual, self.activation = config.canon_residual, config.canon_activation

    def forward(self, x_BbC, reading):
        if reading.real_Bb1 is not None:
            x_BbC = x_BbC.masked_fill(~reading.real_Bb1, 0)
        if reading.cache is None:
            inputs = F.pad(x_BbC, (0, 0, self.reach, 0))
        else:
            inputs = reading.cache.slide(f"{reading.run}.{self.name}", x_BbC, self.reach)
        # A few shifted products: Conv1d itself, on so few taps, takes several times as long.
        length, weight_kC = x_BbC.shape[1], self.conv.weight[:, 0].T
        y_BbC = sum(inputs[:, j : j + length] * weight_kC[j] for j in reversed(range(self.reach + 1)))
        if self.conv.bias is not None:
            y_BbC = y_BbC + self.conv.bias
        y_BbC = F.silu(y_BbC) if self.activation else y_BbC
        return x_BbC + y_BbC if self.residual else y_BbC


def canon_or_none(config, place, channels, name):
    """A Canon layer if the model has one at that place."""
    return JaxlmCanon(config, channels, name) if place in config.canon_set else None


class JaxlmAttention(nn.Module):
    """Grouped-query attention; Canon B sits on queries, keys and values before the heads part."""

    def __init__(self, config, layer):
        super().__init__()
        D, self.width = config.hidden_size, config.head_dim
        queries, keys = config.num_attention_heads * self.width, config.num_key_value_heads * self.width
        self.q_proj = nn.Linear(D, queries, bias=False)
        self.k_proj = nn.Linear(D, keys, bias=False)
        self.v_proj = nn.Linear(D, keys, bias=False)
        self.o_proj = nn.Linear(queries, D, bias=False)
        self.q_norm = JaxlmRMSNorm(self.width, config.rms_norm_eps) if config.qk_norm else None
        self.k_norm = JaxlmRMSNorm(self.width, config.rms_norm_eps) if config.qk_norm else None
        self.canon_b_q = canon_or_none(config, "B", queries, f"{layer}.b_q")
        self.canon_b_k = canon_or_none(config, "B", keys, f"{layer}.b_k")
        self.canon_b_v = canon_or_none(config, "B", keys, f"{layer}.b_v")
        self.kind, self.first_cache = config.layer_kinds[layer], layer * config.layer_repeats
        self.groups = config.num_attention_heads // config.num_key_value_heads

    def _heads(self, x_BbD, project, canon, norm, reading):
        y = project(x_BbD) if canon is None else canon(project(x_BbD), reading)
        y_BNbH = y.unflatten(-1, (-1, self.width)).transpose(1, 2)
        return y_BNbH if norm is None else norm(y_BNbH)

    def forward(self, x_BbD, reading):
        rotation = reading.rotation[self.kind]
        q_BNbH = rotate(self._heads(x_BbD, self.q_proj, self.canon_b_q, self.q_norm, reading), rotation)
        k_BKSH = rotate(self._heads(x_BbD, self.k_proj, self.canon_b_k, self.k_norm, reading), rotation)
        v_BKSH = self._heads(x_BbD, self.v_proj, self.canon_b_v, None, reading)
        if reading.cache is not None:
            k_BKSH, v_BKSH = reading.cache.update(k_BKSH, v_BKSH, self.first_cache + reading.run)
        k_BNSH, v_BNSH = (t.repeat_interleave(self.groups, dim=1) for t in (k_BKSH, v_BKSH))
        out_BNbH = F.scaled_dot_product_attention(q_BNbH, k_BNSH, v_BNSH, attn_mask=reading.visible[self.kind])
        return self.o_proj(out_BNbH.transpose(1, 2).flatten(2))


class JaxlmMLP(nn.Module):
    """down(silu(gate) * up); Canon D sits on gate and up, or on their product."""

    def __init__(self, config, layer):
        super().__init__()
        D, width = config.hidden_size, config.intermediate_size
        self.gate_proj = nn.Linear(D, width, bias=False)
        self.up_proj = nn.Linear(D, width, bias=False)
        self.down_proj = nn.Linear(width, D, bias=False)
        both, product = (config.canon_d_width == kind for kind in ("gate_up", "product"))
        self.canon_d_gate = canon_or_none(config, "D", width, f"{layer}.d_gate") if both else None
        self.canon_d_up = canon_or_none(config, "D", width, f"{layer}.d_up") if both else None
        self.canon_d = canon_or_none(config, "D", width, f"{layer}.d") if product else None

    def forward(self, x_BbD, reading):
        gate, up = self.gate_proj(x_BbD), self.up_proj(x_BbD)
        if self.canon_d_gate is not None:
            gate, up = self.canon_d_gate(gate, reading), self.canon_d_up(up, reading)
        product = F.silu(gate) * up
        if self.canon_d is not None:
            product = self.canon_d(product, reading)
        return self.down_proj(product)


class JaxlmLayer(nn.Module):
    """h = canon_a(norm(x)); x + attention(h); then h = canon_c(norm(x)); x + mlp(h)."""

    def __init__(self, config, layer):
        super().__init__()
        D = config.hidden_size
        self.input_layernorm = JaxlmRMSNorm(D, config.rms_norm_eps)
        self.canon_a = canon_or_none(config, "A", D, f"{layer}.a")
        self.self_attn = JaxlmAttention(config, layer)
        self.post_attention_layernorm = JaxlmRMSNorm(D, config.rms_norm_eps)
        self.canon_c = canon_or_none(config, "C", D, f"{layer}.c")
        self.mlp = JaxlmMLP(config, layer)

    def forward(self, x_BbD, reading):
        h_BbD = self.input_layernorm(x_BbD)
        x_BbD = x_BbD + self.self_attn(h_BbD if self.canon_a is None else self.canon_a(h_BbD, reading), reading)
        h_BbD = self.post_attention_layernorm(x_BbD)
        return x_BbD + self.mlp(h_BbD if self.canon_c is None else self.canon_c(h_BbD, reading), reading)


class JaxlmPreTrainedModel(PreTrainedModel):
    """Loading, saving and initialisation."""

    config_class = JaxlmConfig
    base_model_prefix = "model"
    _no_split_modules = ["JaxlmLayer"]
    _supports_sdpa = True
    # A cache cannot go back (see cache_jaxlm.py): this is how transformers is told to refuse assisted decoding.
    _is_stateful = True

    def _init_weights(self, module):
        if isinstance(module, nn.Conv1d):
            # Canon starts uniform in +-1/sqrt(taps), Conv1d's own start; 0.02 is known to be a bad one.
            bound = module.kernel_size[0] ** -0.5
            for parameter in module.parameters():
                nn.init.uniform_(parameter, -bound, bound)
        else:
            super()._init_weights(module)


class JaxlmModel(JaxlmPreTrainedModel):
    """Tokens to hidden states."""

    def __init__(self, config):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(JaxlmLayer(config, i) for i in range(config.num_hidden_layers))
        self.norm = JaxlmRMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_init()

    def forward(self, input_ids, attention_mask=None, cache=None, past_key_values=None, use_cache=None):
        """Token ids [B, b] to hidden states [B, b, D] after the final norm; see `read` for the mask.

        `cache` and `past_key_values` are two names of one thing, a JaxlmCache; `use_cache=True` makes a new one.
        """
        cache = past_key_values if cache is None else cache
        cache = JaxlmCache() if cache is None and use_cache else cache
        if cache is not None and not isinstance(cache, JaxlmCache):
            raise ValueError(f"the cache is a {type(cache).__name__}, use_cache=True makes the JaxlmCache it must be")
        if cache is not None and self.config.attention_block_size != 1:
            raise ValueError("only a model that reads from left to right has a cache, this one does not")
        reading = read(self.config, *input_ids.shape, attention_mask, cache, input_ids.device)
        x_BbD = self.embed_tokens(input_ids)
        for layer in self.layers:
            for reading.run in range(self.config.layer_repeats):
                x_BbD = layer(x_BbD, reading)
        return BaseModelOutputWithPast(last_hidden_state=self.norm(x_BbD), **{CACHE_NAME: cache})


class JaxlmLanguageModel(JaxlmPreTrainedModel):
    """The trunk and a head, which is the embedding if the two are tied."""

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config):
        super().__init__(config)
        self.model = JaxlmModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()


class JaxlmForCausalLM(JaxlmLanguageModel, JaxlmCausalGenerationMixin):
    """Autoregression: the logits at i predict token i + 1."""

    def forward(
        self,
        input_ids,
        attention_mask=None,
        cache=None,
        past_key_values=None,
        labels=None,
        use_cache=None,
        logits_to_keep=0,
        return_dict=True,
    ):
        """Logits [B, b, V], of the last `logits_to_keep` positions if not 0; the mean loss if `labels` (-100: none)."""
        if use_cache is None:
            use_cache = self.config.use_cache and labels is None
        out = self.model(input_ids, attention_mask, cache, past_key_values, use_cache)
        logits = self.lm_head(out.last_hidden_state[:, -logits_to_keep:])
        loss = None
        if labels is not None:
            loss = F.cross_entropy(logits[:, :-1].float().flatten(0, 1), labels[:, 1:].flatten())
        out = CausalLMOutputWithPast(loss=loss, logits=logits, **{CACHE_NAME: out[CACHE_NAME] if use_cache else None})
        return out if return_dict else out.to_tuple()


class JaxlmForMaskedDiffusion(JaxlmLanguageModel, JaxlmDiffusionGenerationMixin):
    """Masked diffusion: the logits at i (at i - 1 with `config.shift`) predict the token that the mask at i hides."""

    def forward(self, input_ids, attention_mask=None, return_dict=True):
        """Logits [B, T, V] of a canvas in which `config.mask_token_id` stands for what is not known."""
        out = CausalLMOutputWithPast(logits=self.lm_head(self.model(input_ids, attention_mask).last_hidden_state))
        return out if return_dict else out.to_tuple()
