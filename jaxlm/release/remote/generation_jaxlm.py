"""Text from a model: transformers' own loop for the autoregressive one, denoising for the diffusion one.

Both read padding from `attention_mask` only, want it on the left, and never choose the mask token or an id outside the
tokenizer. Letters in names: B rows, T positions, n positions of a block, V vocabulary.
"""

import copy

import torch
from transformers import GenerationMixin, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper
from transformers.generation import GenerateDecoderOnlyOutput

from .cache_jaxlm import CACHE_NAME, JaxlmCache

SETTINGS = (
    "max_new_tokens",
    "do_sample",
    "temperature",
    "top_k",
    "top_p",
    "repetition_penalty",
    "pad_token_id",
    "eos_token_id",
    "return_dict_in_generate",
)


def prompts(inputs, input_ids, attention_mask):
    """The prompt ids [B, T] and their mask, all ones if none was given; ValueError if pads are not on the left."""
    ids = inputs if inputs is not None else input_ids
    if ids is None or ids.dim() != 2 or ids.shape[1] == 0:
        raise ValueError("generate needs a prompt: token ids of shape [rows, positions], at least one position")
    mask = torch.ones_like(ids) if attention_mask is None else attention_mask.to(ids.device)
    if mask.shape != ids.shape:
        raise ValueError(f"attention_mask has shape {tuple(mask.shape)}, the prompt {tuple(ids.shape)}")
    if not mask[:, -1].all() or (mask[:, 1:] < mask[:, :-1]).any():
        raise ValueError("attention_mask must have its zeros on the left: use tokenizer.padding_side = 'left'")
    return ids, mask


class JaxlmCausalGenerationMixin(GenerationMixin):
    """`generate` as in transformers, with a cache that holds the inputs of the Canon layers too."""

    def generate(self, inputs=None, generation_config=None, **kwargs):
        """Arguments and result are those of `GenerationMixin.generate`."""
        settings = self.generation_config if generation_config is None else generation_config
        if kwargs.get("prefill_chunk_size", settings.prefill_chunk_size) is not None:
            raise ValueError("prefill_chunk_size is not supported by this model")
        _, kwargs["attention_mask"] = prompts(inputs, kwargs.get("input_ids"), kwargs.get("attention_mask"))
        unwanted = kwargs.get("suppress_tokens") or settings.suppress_tokens or []
        kwargs["suppress_tokens"] = sorted({*unwanted, *self.config.never_generated}) or None
        cached = kwargs.get("use_cache", settings.use_cache) is not False
        if cached and kwargs.get("cache") is None and kwargs.get("past_key_values") is None:
            kwargs[CACHE_NAME] = JaxlmCache()
        return super().generate(inputs, generation_config, **kwargs)

    def prepare_inputs_for_generation(
        self, input_ids, attention_mask=None, use_cache=None, logits_to_keep=0, cache=None, past_key_values=None, **_
    ):
        """Cuts off what the cache already holds. The other arguments of either version have no meaning here."""
        cache = past_key_values if cache is None else cache
        past = cache.get_seq_length() if cache is not None else 0
        return {
            "input_ids": input_ids[:, past:],
            "attention_mask": attention_mask,
            "cache": cache,
            "use_cache": use_cache,
            "logits_to_keep": logits_to_keep,
        }


def split(total, parts):
    """`total` in `parts` whole shares as equal as possible, the larger ones first."""
    return [total // parts + (i < total % parts) for i in range(parts)]


def schedule(first, new, steps, block_size, grid):
    """One row's passes: (start, stop, count), each commits `count` tokens of canvas positions [start, stop).

    The passes are divided evenly over the blocks, from left to right, and the tokens of a block over its passes; the
    first ones get one more, and no pass commits nothing.

    Args:
        first: position of the canvas in its row: tokens of the prompt, without pads.
        new: tokens of the canvas.
        steps: passes, at least one a block.
        block_size: blocks counted from the start of the canvas.
        grid: if not 0, blocks end on multiples of it in the row instead: what a block-causal model was trained on.
    """
    if grid:
        edges = [0, *(edge - first for edge in range((first // grid + 1) * grid, first + new, grid)), new]
    else:
        edges = [*range(0, new, block_size), new]
    blocks = list(zip(edges[:-1], edges[1:], strict=True))
    if steps < len(blocks):
        raise ValueError(f"steps is {steps}, allowed: at least the number of blocks, {len(blocks)}")
    shares = zip(blocks, split(steps, len(blocks)), strict=True)
    return [(lo, hi, n) for (lo, hi), share in shares for n in split(hi - lo, min(share, hi - lo))]


def penalise(logits_BnV, penalty, tokens_BT, counted_BT):
    """The usual repetition penalty: divides the logits above 0 of the counted tokens and multiplies those below."""
    seen_BV = torch.zeros_like(logits_BnV[:, 0]).scatter_add(1, tokens_BT, counted_BT.to(logits_BnV.dtype)) > 0
    penalised = torch.where(logits_BnV < 0, logits_BnV * penalty, logits_BnV / penalty)
    return torch.where(seen_BV[:, None], penalised, logits_BnV)


class JaxlmDiffusionGenerationMixin(GenerationMixin):
    """Low-confidence remasking (LLaDA, arXiv 2502.09992): the surest tokens are committed first and stay."""

    @torch.no_grad()
    def generate(
        self,
        inputs=None,
        generation_config=None,
        *,
        input_ids=None,
        attention_mask=None,
        steps=None,
        block_size=None,
        **kwargs,
    ):
        """Writes `max_new_tokens` tokens behind each prompt.

        The canvas is `max_new_tokens` masks. Each pass reads prompt and canvas, chooses a token for every mask of the
        present block and commits those it is surest of.

        Args:
            inputs: the prompts, [B, T], padded on the left.
            input_ids: the same under its other name.
            attention_mask: [B, T], 0 at pads; without it every token is text, whatever its id.
            steps: passes over the canvas; None for one a token.
            block_size: positions that are filled together, from left to right; None for the whole canvas, or for the
                blocks that the model was trained with.
            generation_config: of transformers, of which SETTINGS are read.
            **kwargs: any of SETTINGS. Without `do_sample`, or at temperature 0, the likeliest token is chosen; an unset
                `top_k` is 50 when sampling, as in transformers.

        Returns:
            Prompts and continuations [B, T + new], with `pad_token_id` behind the first end of text, cut at the longest
            row; in a ModelOutput with `return_dict_in_generate`.
        """
        unknown = sorted(set(kwargs) - set(SETTINGS))
        if unknown:
            raise ValueError(f"generate has no {', '.join(unknown)}; it has steps, block_size, {', '.join(SETTINGS)}")
        settings = copy.deepcopy(self.generation_config if generation_config is None else generation_config)
        settings.update(**kwargs)
        ids_BT, real_BT = prompts(inputs, input_ids, attention_mask)
        width, new = ids_BT.shape[1], settings.max_new_tokens
        if new is None:
            raise ValueError("max_new_tokens is missing, allowed: how many tokens to write, at least 1")
        passes = self._passes(real_BT.sum(1).tolist(), new, steps, block_size)
        choose, penalty = self._chooser(settings), settings.repetition_penalty or 1.0
        mask_id, shift = self.config.mask_token_id, int(self.config.shift)
        forbidden = torch.tensor(self.config.never_generated, dtype=torch.long, device=ids_BT.device)

        row_BT = torch.cat([ids_BT, ids_BT.new_full((len(ids_BT), new), mask_id)], dim=1)
        real_BT = torch.cat([real_BT, real_BT.new_ones(len(ids_BT), new)], dim=1)
        # Whether a position is text, told apart from its id: a prompt may hold the mask, and its pads anything.
        known_BT = real_BT.bool() & (torch.arange(width + new, device=ids_BT.device) < width)
        for start_B1, stop_B1, count_B1 in passes:
            lo, hi = int(start_B1[count_B1 > 0].min()), int(stop_B1.max())
            start_B1, stop_B1, count_B1 = (t.to(ids_BT.device) for t in (start_B1, stop_B1, count_B1))
            place_n = torch.arange(lo, hi, device=ids_BT.device)
            columns = slice(width + lo, width + hi)
            hidden = self.model(row_BT, real_BT).last_hidden_state[:, columns.start - shift : columns.stop - shift]
            logits_BnV = self.lm_head(hidden).float().index_fill(-1, forbidden, -torch.inf)
            if penalty != 1.0:
                logits_BnV = penalise(logits_BnV, penalty, row_BT, known_BT)
            token_Bn = choose(logits_BnV)
            confidence_Bn = logits_BnV.log_softmax(-1).gather(-1, token_Bn[..., None])[..., 0]
            open_Bn = ~known_BT[:, columns] & (place_n >= start_B1) & (place_n < stop_B1)
            # Stable, so that of equals the leftmost is committed, on every device.
            order_Bn = confidence_Bn.masked_fill(~open_Bn, -torch.inf).sort(dim=1, descending=True, stable=True).indices
            rank_Bn = order_Bn.argsort(dim=1)
            commit_Bn = open_Bn & (rank_Bn < count_B1)
            row_BT[:, columns] = torch.where(commit_Bn, token_Bn, row_BT[:, columns])
            known_BT[:, columns] |= commit_Bn
            # What is committed stays, so a text is finished once it is written up to its end.
            written_Bn = known_BT[:, width:].long().cumprod(1).bool()
            if (written_Bn & self._ends(row_BT[:, width:], settings)).any(1).all():
                break
        sequences = self._cut(row_BT, width, settings)
        return GenerateDecoderOnlyOutput(sequences=sequences) if settings.return_dict_in_generate else sequences

    def _passes(self, lengths, new, steps, block_size):
        """Of each pass [3, B, 1]: start, stop and count of `schedule` for each row; rows that are done count 0."""
        longest, grid = self.config.max_position_embeddings, self.config.attention_block_size
        if max(lengths) + new > longest:
            raise ValueError(
                f"a prompt of {max(lengths)} tokens and {new} new ones do not fit: max_position_embeddings is {longest}"
            )
        if block_size is not None and (block_size < 1 or (grid and block_size != grid)):
            allowed = f"{grid}, the model's own" if grid else "at least 1"
            raise ValueError(f"block_size is {block_size}, allowed: {allowed}, or None")
        rows = [schedule(first, new, new if steps is None else steps, block_size or new, grid) for first in lengths]
        longest = max(map(len, rows))
        return torch.tensor([row + [(0, 0, 0)] * (longest - len(row)) for row in rows]).permute(1, 2, 0)[..., None]

    def _chooser(self, settings):
        """A function from logits [B, n, V] to token ids [B, n]."""
        temperature = 1.0 if settings.temperature is None else settings.temperature
        if not settings.do_sample or temperature == 0:
            return lambda logits_BnV: logits_BnV.argmax(-1)
        top_k = 50 if settings.top_k is None else settings.top_k
        warpers = [TemperatureLogitsWarper(float(temperature))]
        warpers += [TopKLogitsWarper(top_k)] if top_k else []
        warpers += [TopPLogitsWarper(settings.top_p)] if settings.top_p is not None and settings.top_p < 1 else []

        def sample(logits_BnV):
            scores = logits_BnV.flatten(0, 1)
            for warper in warpers:
                scores = warper(None, scores)
            return torch.multinomial(scores.softmax(-1), 1).view(logits_BnV.shape[:2])

        return sample

    def _ends(self, tokens_BT, settings):
        """Which tokens, bool [B, T], end the text."""
        eos = settings.eos_token_id
        eos = [] if eos is None else eos if isinstance(eos, (list, tuple)) else [eos]
        return torch.isin(tokens_BT, torch.tensor(eos, dtype=tokens_BT.dtype, device=tokens_BT.device))

    def _cut(self, row_BT, width, settings):
        """Pads what follows the first end of text, and drops the columns that are padding in every row."""
        ends_BT = self._ends(row_BT[:, width:], settings).long()
        after_BT = ends_BT.cumsum(1) - ends_BT > 0
        if after_BT.any():
            pad = settings.pad_token_id if settings.pad_token_id is not None else self.config.eos_token_id
            row_BT[:, width:].masked_fill_(after_BT, pad)
        return row_BT[:, : width + int((~after_BT).sum(1).max())]
