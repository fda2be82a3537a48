"""What an autoregressive model keeps between tokens: keys, values, and the last inputs of its short convolutions."""

import torch
from transformers import DynamicCache
from transformers.modeling_outputs import CausalLMOutputWithPast

# transformers 5.24 renamed the argument and the output `past_key_values` to `cache`.
CACHE_NAME = "cache" if "cache" in CausalLMOutputWithPast.__dataclass_fields__ else "past_key_values"


class JaxlmCache(DynamicCache):
    """A DynamicCache (every layer keeps all keys) that also holds [B, k-1, C] inputs for each Canon layer, by name."""

    def __init__(self):
        super().__init__()
        self.canon_inputs = {}

    def slide(self, name, x_BbC, reach):
        """The cached `reach` inputs before the new ones and the new ones, [B, reach + b, C]; keeps the last `reach`."""
        before = self.canon_inputs.get(name)
        if before is None:
            before = x_BbC.new_zeros(x_BbC.shape[0], reach, x_BbC.shape[2])
        inputs = torch.cat([before, x_BbC], dim=1)
        self.canon_inputs[name] = inputs[:, inputs.shape[1] - reach :]
        return inputs

    def _select(self, pick):
        self.canon_inputs = {name: pick(inputs) for name, inputs in self.canon_inputs.items()}

    def reorder_cache(self, beam_idx):
        """Beam search: row i continues what row beam_idx[i] was."""
        super().reorder_cache(beam_idx)
        self._select(lambda inputs: inputs.index_select(0, beam_idx.to(inputs.device)))

    def batch_repeat_interleave(self, repeats):
        """Each row `repeats` times."""
        super().batch_repeat_interleave(repeats)
        self._select(lambda inputs: inputs.repeat_interleave(repeats, dim=0))

    def batch_select_indices(self, indices):
        """Only these rows."""
        super().batch_select_indices(indices)
        self._select(lambda inputs: inputs[indices])

    def reset(self):
        """As if new."""
        super().reset()
        self.canon_inputs = {}

    @property
    def is_croppable(self):
        """Never: a convolution has forgotten the inputs before its last ones."""
        return False

    def crop(self, length):
        """Refused, see `is_croppable`."""
        raise ValueError("a cache with the inputs of Canon layers cannot be cropped; start again without a cache")
