"""LLaMA 3 with Canon layers (PhysicsLM4, arXiv 2512.17351): short causal convolutions beside the residual stream.

    x = x + attention(A(norm(x)))                  B on [q, k, v] before the heads part
    x = x + down(D(silu(gate) * up))               gate, up = C(norm(x)) @ gate_up
    A(h)[t] = h[t] + sum of taps[j] * h[t - j] for j in 0..3; B, C and D likewise

The study's set is AC: 98,304 parameters, 0.14 %. `canon_d_width` says where in the feed-forward D sits.
"""

from jaxlm.families.pre_norm import Block

__all__ = ["PARTS", "Block"]

PARTS = {"canon_set": "AC"}
