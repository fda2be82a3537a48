"""Text from a model: transformers' own loop for the autoregressive one, denoising for the diffusion one.

Both read padding from `attention_mask` only, want it on the left, and never choose the mask token or an id outside the
tokenizer. Letters in names: B rows, T positions, N positions of the canvas, n those of the present blocks, E entries of
the plan, V vocabulary.
"""

import copy

import torch
from transformers import GenerationMixin, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper
from transformers.generation import GenerateDecoderOnlyOutput

from .cache_jaxlm import CACHE_NAME, JaxlmCache
from .schedule_jaxlm import block_by_block, cut, schedule
from .selection_jaxlm import Selection, masked_again, scores, written

OWN = ("steps", "block_size", "remasking", "threshold", "entropy_bound", "revise_rate")
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


def penalise(logits_BnV, penalty, tokens_BT, counted_BT):
    """The usual repetition penalty: divides the logits above 0 of the counted tokens and multiplies those below."""
    seen_BV = torch.zeros_like(logits_BnV[:, 0]).scatter_add(1, tokens_BT, counted_BT.to(logits_BnV.dtype)) > 0
    penalised = torch.where(logits_BnV < 0, logits_BnV * penalty, logits_BnV / penalty)
    return torch.where(seen_BV[:, None], penalised, logits_BnV)


class JaxlmDiffusionGenerationMixin(GenerationMixin):
    """A canvas of masks, of which each pass writes a part; what is written stays, unless `revise` masks it again."""

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
        remasking=None,
        threshold=None,
        entropy_bound=None,
        revise_rate=None,
        **kwargs,
    ):
        """Writes `max_new_tokens` tokens behind each prompt.

        The canvas is `max_new_tokens` masks. Each pass reads prompt and canvas, chooses a token for every mask of the
        present block and writes those that come first in the order of `remasking`.

        Args:
            inputs: the prompts, [B, T], padded on the left.
            input_ids: the same under its other name.
            attention_mask: [B, T], 0 at pads; without it every token is text, whatever its id.
            steps: passes over the canvas; None for one a token, or as many as a threshold or a bound takes.
            block_size: positions that are filled together, from left to right; None for the whole canvas, or for the
                blocks that the model was trained with.
            remasking, threshold, entropy_bound, revise_rate: see `Selection`. With a threshold or a bound, the rows of
                a batch may need different numbers of passes.
            generation_config: of transformers, of which SETTINGS are read.
            **kwargs: any of SETTINGS. Without `do_sample`, or at temperature 0, the likeliest token is chosen; an unset
                `top_k` is 50 when sampling, as in transformers.

        Returns:
            Prompts and continuations [B, T + new], with `pad_token_id` behind the first end of text, cut at the longest
            row; in a ModelOutput with `return_dict_in_generate`.
        """
        unknown = sorted(set(kwargs) - set(SETTINGS))
        if unknown:
            raise ValueError(f"generate has no {', '.join(unknown)}; it has {', '.join((*OWN, *SETTINGS))}")
        settings = copy.deepcopy(self.generation_config if generation_config is None else generation_config)
        settings.update(**kwargs)
        ids_BT, real_BT = prompts(inputs, input_ids, attention_mask)
        width, new = ids_BT.shape[1], settings.max_new_tokens
        if new is None:
            raise ValueError("max_new_tokens is missing, allowed: how many tokens to write, at least 1")
        selection = Selection(remasking, threshold, entropy_bound, revise_rate)
        plan = self._plan(real_BT.sum(1).tolist(), new, steps, block_size, selection)
        row_BT = torch.cat([ids_BT, ids_BT.new_full((len(ids_BT), new), self.config.mask_token_id)], dim=1)
        real_BT = torch.cat([real_BT, real_BT.new_ones(len(ids_BT), new)], dim=1)
        self._fill(row_BT, real_BT, width, plan, selection, settings)
        sequences = self._cut(row_BT, width, settings)
        return GenerateDecoderOnlyOutput(sequences=sequences) if settings.return_dict_in_generate else sequences

    def _fill(self, row_BT, real_BT, width, plan, selection, settings):
        """Writes `row_BT` from position `width` on. Each row walks through its entries: one a pass, or one a block."""
        device, shift, (plan_BE4, entries_B) = row_BT.device, int(self.config.shift), plan
        choose, penalty = self._chooser(settings), settings.repetition_penalty or 1.0
        forbidden = torch.tensor(self.config.never_generated, dtype=torch.long, device=device)
        # Whether a position is text, told apart from its id: a prompt may hold the mask, and its pads anything.
        known_BT = real_BT.bool() & (torch.arange(row_BT.shape[1], device=device) < width)
        entry_B, index_B = torch.zeros_like(entries_B), torch.arange(len(entries_B), device=entries_B.device)
        while (going_B := entry_B < entries_B).any():
            entry_B4 = plan_BE4[index_B, entry_B]
            lo, hi = int(entry_B4[going_B, 0].min()), int(entry_B4[:, 1].max())
            start_B1, stop_B1, count_B1, revise_B1 = entry_B4.to(device).split(1, dim=1)
            place_n, columns = torch.arange(lo, hi, device=device), slice(width + lo, width + hi)
            hidden = self.model(row_BT, real_BT).last_hidden_state[:, columns.start - shift : columns.stop - shift]
            logits_BnV = self.lm_head(hidden).float().index_fill(-1, forbidden, -torch.inf)
            if penalty != 1.0:
                logits_BnV = penalise(logits_BnV, penalty, row_BT, known_BT)
            choice_Bn = choose(logits_BnV)
            token_Bn, known_Bn = row_BT[:, columns], known_BT[:, columns]  # views: setting them sets the rows
            block_Bn = (place_n >= start_B1) & (place_n < stop_B1)
            open_Bn, old_Bn = block_Bn & ~known_Bn, block_Bn & known_Bn
            write_Bn = written(selection, scores(selection.rule, logits_BnV, choice_Bn), open_Bn, count_B1 + revise_B1)
            token_Bn[write_Bn], known_Bn[write_Bn] = choice_Bn[write_Bn], True
            if selection.rule == "revise":
                again_Bn = masked_again(logits_BnV, token_Bn, old_Bn, revise_B1)
                token_Bn[again_Bn], known_Bn[again_Bn] = self.config.mask_token_id, False
            stays_Bn = block_Bn & ~known_Bn if selection.adaptive else torch.zeros_like(block_Bn)
            entry_B = entry_B + (going_B & ~stays_Bn.any(1).to(entry_B.device))
            if selection.rule != "revise":  # a token that may still change ends nothing
                whole_BN = known_BT[:, width:].long().cumprod(1).bool()
                ended_B = (whole_BN & self._ends(row_BT[:, width:], settings)).any(1)
                entry_B = torch.where(ended_B.to(entry_B.device), entries_B, entry_B)

    def _plan(self, lengths, new, steps, block_size, selection):
        """The entries of each row, [B, E + 1, 4] with zeros behind the last, and how many they are, [B]; on the CPU."""
        longest, grid = self.config.max_position_embeddings, self.config.attention_block_size
        if max(lengths) + new > longest:
            raise ValueError(
                f"a prompt of {max(lengths)} tokens and {new} new ones do not fit: max_position_embeddings is {longest}"
            )
        if block_size is not None and (block_size < 1 or (grid and block_size != grid)):
            allowed = f"{grid}, the model's own" if grid else "at least 1"
            raise ValueError(f"block_size is {block_size}, allowed: {allowed}, or None")
        if steps is not None and selection.adaptive:
            name = "threshold" if selection.threshold is not None else "entropy_bound"
            raise ValueError(f"steps and {name} are both given, allowed: one of them")
        # Training lays blocks over the positions at which the logits are read.
        cuts = [cut(length - int(self.config.shift), new, block_size or new, grid) for length in lengths]
        if selection.adaptive:
            rows = [block_by_block(blocks) for blocks in cuts]
        else:
            rows = [schedule(blocks, new if steps is None else steps, selection.revise_rate or 0.0) for blocks in cuts]
        entries = [len(row) for row in rows]
        padded = [row + [(0, 0, 0, 0)] * (max(entries) + 1 - len(row)) for row in rows]
        return torch.tensor(padded), torch.tensor(entries)

    def _chooser(self, settings):
        """A function from logits [B, n, V] to token ids [B, n]."""
        temperature = 1.0 if settings.temperature is None else settings.temperature
        if temperature != 0 and not 1e-3 <= temperature <= 1e3:
            raise ValueError(f"temperature is {temperature}, allowed: 0 (greedy), or 0.001 to 1000")
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
