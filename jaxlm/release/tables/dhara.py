"""DharaForMaskedDiffusion of codelion/dhara-70m, read only: the tensors of our own code, the fields of its own config.

Its code is not public knowledge; what is read is the architecture that reproduces its published size, bidirectional
with causal Canon layers, and logits that are read at the mask itself.
"""

from __future__ import annotations

from jaxlm.config import ObjectiveConfig
from jaxlm.families import resolve
from jaxlm.model_config import ModelConfig
from jaxlm.release.formats import Format, Values, required, rope_theta
from jaxlm.release.tables import llama, remote

CANON = ("canon_set", "canon_kernel", "canon_residual", "canon_bias", "canon_activation")


def from_config(values: Values) -> tuple[ModelConfig, ObjectiveConfig]:
    """The model of the published config.json, whose head is tied though it does not say so."""
    config = ModelConfig(
        family="dhara",
        **llama.sizes(values, tied=True),
        norm_eps=llama.epsilon(values),
        rope_theta=rope_theta(values, 10_000.0),
        **{name: values[name] for name in CANON if name in values},
        canon_d_width="product",
        mask_token_id=required(values, "mask_token_id"),
    )
    return resolve(config), ObjectiveConfig(kind="diffusion", eps=float(values.get("mask_epsilon", 1e-3)))


FORMAT = Format(
    class_names=("DharaForMaskedDiffusion",),
    model_type="dhara",
    family="dhara",
    table=remote.table,
    from_config=from_config,
)
