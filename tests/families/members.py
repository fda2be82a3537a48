"""One tiny model of each family, and of what a family may look like, for tests that every family must pass."""

from typing import Any

WINDOW = 5

TITANS: dict[str, Any] = {
    "family": "titans_mac",
    "layer_pattern": "SM",
    "segment_len": 5,
    "num_longterm_tokens": 2,
    "num_persistent_tokens": 3,
    "memory_chunk": 2,
    "memory_batch": 6,
}

_MEMBERS: dict[str, dict[str, Any]] = {
    "gpt2": {"family": "gpt2", "num_kv_heads": 4, "intermediate_size": 48},
    "llama3": {"family": "llama3"},
    "llama3_canon": {"family": "llama3_canon", "canon_set": "ABCD"},
    "llama3_canon, D on the product": {
        "family": "llama3_canon",
        "canon_set": "AD",
        "canon_d_width": "product",
        "canon_bias": True,
        "tie_embeddings": False,
    },
    "llama3_canon, windows": {
        "family": "llama3_canon",
        "canon_set": "BC",
        "canon_kernel": 3,
        "layer_pattern": "LG",
        "sliding_window": WINDOW,
    },
    "qwen3": {"family": "qwen3"},
    "gemma3": {"family": "gemma3", "layer_pattern": "LG", "sliding_window": WINDOW, "query_scalar": 12.0},
    "lfm2": {"family": "lfm2", "layer_pattern": "CG"},
    "moe": {"family": "moe"},
    "moe, shared": {"family": "moe", "num_shared_experts": 1, "normalize_experts": False},
    "titans_mac": TITANS,
    "titans_mac, gates": TITANS
    | {"layer_pattern": "M", "memory_reading": "gate", "memory_depth": 3, "memory_batch": 8},
    "titans_mac, context": TITANS | {"memory_reading": "context", "memory_batch": 0, "memory_chunk": 7},
    "dllm": {"family": "dllm"},
    "dllm_canon": {"family": "dllm_canon"},
    "dhara": {"family": "dhara"},
    "mobilellm, LS": {"family": "mobilellm", "layer_repeats": 2},
    "minimind, experts": {"family": "minimind", "num_experts": 4, "num_shared_experts": 1},
}

# Two layers, and three where they are of two kinds: so a period is not whole.
MEMBERS = {name: {"num_layers": 3 if "layer_pattern" in member else 2} | member for name, member in _MEMBERS.items()}

# Those that can be read in another way than from left to right.
ANY_READING = {name: member for name, member in MEMBERS.items() if member["family"] != "titans_mac"}
