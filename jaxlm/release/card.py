"""The model card of a release. It says what the workdir records and nothing else: no figure here is typed by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jaxlm.config import RunConfig
from jaxlm.model_config import CANON_POSITIONS, ModelConfig
from jaxlm.release.directory import Release

WRITES = {False: "autoregressive", True: "masked diffusion"}
PLACES = ("before attention", "on queries, keys and values", "before the feed-forward", "inside the feed-forward")
NORMS = {"rms": "RMSNorm", "rms_unit_offset": "RMSNorm with 1 + w", "layer": "LayerNorm"}
POSITIONS = {"rope": "rotary", "learned": "learned", "none": "none"}
FEED_FORWARDS = {"swiglu": "SwiGLU", "geglu": "GeGLU", "gelu": "GELU"}


@dataclass(frozen=True)
class Origin:
    """Where the parameters come from, as their workdir tells it.

    Attributes:
      config: of the run.
      kind: "train" or "convert".
      step: of the checkpoint.
      manifest: versions, git revision, parameter counts, hashes of data and tokenizer; `source` of an imported model.
      validation: the line of metrics.jsonl that evaluates this very step, if there is one.
      data: the fingerprint of the data, if the run's data directory is still there and still the same.
      statistics: its statistics, likewise.
    """

    config: RunConfig
    kind: str
    step: int
    manifest: Mapping[str, Any]
    validation: Mapping[str, Any] | None
    data: Mapping[str, Any] | None
    statistics: Mapping[str, Any] | None

    @property
    def imported(self) -> bool:
        """Whether somebody else trained the model."""
        return self.manifest.get("source") is not None


def model_card(release: Release, origin: Origin) -> str:
    """README.md with the metadata that the Hugging Face hub reads."""
    made = (_source(origin),) if origin.imported else (_data(origin), _training(origin))
    sections = (
        _metadata(release, origin),
        _model(release, origin),
        _usage(release),
        *made,
        _evaluation(release, origin),
        _limitations(release),
    )
    return "\n\n".join(sections) + "\n"


def _metadata(release: Release, origin: Origin) -> str:
    tags = ["jaxlm", "text-generation", *(["diffusion", "masked-diffusion"] if release.is_diffusion else ["causal-lm"])]
    tags += ["canon"] if release.config.canon_set else []
    # What may be done with an imported model is not for us to say.
    lines = [] if origin.imported else ["license: apache-2.0"]
    lines += ["library_name: transformers", "pipeline_tag: text-generation", "tags:"]
    return "\n".join(["---", *lines, *(f"  - {tag}" for tag in tags), "---"])


def _model(release: Release, origin: Origin) -> str:
    c, counts = release.config, origin.manifest["parameters"]
    reading = {
        0: "Every position sees every other.",
        1: "Every position sees itself and what is on its left.",
    }.get(
        block := release.objective.block_size or 0,
        f"Every position sees its own block of {block} and the blocks on its left.",
    )
    active = f", {counts['active']:,} at work for a token" if c.num_experts else ""
    rows = [
        ("parameters", f"{counts['total']:,}, of them {counts['non_embedding']:,} outside the embedding{active}"),
        *_parts(c),
        ("context", f"{c.max_positions} positions"),
        ("vocabulary", f"{release.tokenizer.vocab_size} tokens, {c.vocab_size} rows"),
        ("head", "the embedding" if c.tie_embeddings else "a matrix of its own"),
        ("weights", release.dtype),
    ]
    if release.is_diffusion and c.mask_token_id in range(release.tokenizer.vocab_size):
        rows.append(("mask token", f"id {c.mask_token_id}, which is also a token of the tokenizer"))
    elif release.is_diffusion:
        rows.append(("mask token", f"id {c.mask_token_id}, no token of the tokenizer"))
    by = "read by jaxlm" if origin.imported else "trained with jaxlm"
    base = (
        ""
        if origin.imported
        else "It is a base model: it goes on with a text, and was not trained to follow instructions."
    )
    return "\n".join(
        [
            f"# {WRITES[release.is_diffusion].capitalize()} language model of {counts['total']:,} parameters",
            "",
            f"Family `{c.family}`, {by} (JAX) and exported to PyTorch. {reading}",
            *([base] if base else []),
            "",
            "| | |",
            "|---|---|",
            *(f"| {name} | {value} |" for name, value in rows),
        ]
    )


def _parts(c: ModelConfig) -> list[tuple[str, str]]:
    """What the layers are made of."""
    canon = [f"{place} ({PLACES[CANON_POSITIONS.index(place)]})" for place in c.canon_set]
    repeats = f", each run {c.layer_repeats} times in a row" if c.layer_repeats > 1 else ""
    feed_forward = f"{c.intermediate_size} ({FEED_FORWARDS[c.feed_forward]})"
    if c.num_experts:
        shared = f", {c.num_shared_experts} more for every token" if c.num_shared_experts else ""
        feed_forward = f"{c.num_experts} experts of {feed_forward}, {c.experts_per_token} for a token{shared}"
    rows = [
        ("layers", f"{c.num_layers} of width {c.hidden_size}{repeats}, feed-forward {feed_forward}"),
        ("norms", NORMS[c.norm] + (", of query and key heads too" if c.qk_norm else "")),
        (
            "attention",
            f"{c.num_heads} query heads, {c.num_kv_heads} key and value heads of {c.head_dim}, "
            f"{POSITIONS[c.positions]} positions",
        ),
        ("window", f"{c.sliding_window} positions in the L layers of {c.layer_kinds}" if c.sliding_window else "none"),
        ("Canon layers", f"{c.canon_kernel} taps, {', '.join(canon)}" if canon else "none"),
    ]
    if "C" in c.layer_kinds:
        rows.append(("short convolutions", f"{c.conv_kernel} taps, in place of attention in the C of {c.layer_kinds}"))
    return rows


def _usage(release: Release) -> str:
    trust = ", trust_remote_code=True" if release.format.remote_code else ""
    pads = "Pads go on the left and are told by `attention_mask` alone: without one, every id is text."
    more = "Sampling arguments and the cache are those of transformers; `do_sample=False` is greedy."
    if release.is_diffusion:
        more = (
            "`generate` writes `max_new_tokens` tokens by low-confidence remasking (LLaDA): it starts from masks, and "
            "each pass commits those it is surest of, which then stay. `steps=N` sets the passes (one a token if not "
            "given), `block_size=B` fills blocks of B from left to right. Other orders are `remasking='margin'`, "
            "`'entropy'`, and `'revise'`, which in each pass masks a share of the written tokens again "
            "(`revise_rate=R`). In place of `steps`, `threshold=P` commits all tokens that are at least this probable, "
            "and `entropy_bound=H` tokens of up to this joint entropy, in nats: then the model decides how many passes "
            "there are. `do_sample=False` takes the likeliest tokens. What follows the first end of text is replaced "
            "by `pad_token_id`."
        )
    runs = "The code in this directory runs in transformers 4.57 and 5."
    if not release.format.remote_code:
        runs = f"It is a plain `{release.class_name}`, which transformers 4.57 and 5 run without any other code."
        pads = "Pads go on the left, and `attention_mask` tells which they are. Ids that are no text are suppressed."
    if release.format.pads_since > (4, 57):
        pads += (
            f" Batches with pads, and the cache after short prompts, need transformers {release.format.pads_since[0]}."
        )
    return f"""## Usage

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(DIRECTORY{trust})
model = AutoModelForCausalLM.from_pretrained(DIRECTORY{trust})

inputs = tokenizer(["Returns the sum of", "If True, the"], return_tensors="pt", padding=True)
ids = model.generate(
    inputs["input_ids"], attention_mask=inputs["attention_mask"], max_new_tokens=50,
    temperature=0.1, top_p=0.5, top_k=5, repetition_penalty=1.8, do_sample=True, pad_token_id=0,
)
print(tokenizer.batch_decode(ids, skip_special_tokens=True))
```

{runs} {more}
{pads}"""


def _source(origin: Origin) -> str:
    source = origin.manifest["source"]
    return "\n".join(
        [
            "## Where it comes from",
            "",
            f"jaxlm did not train this model. It read a `{source['class']}` whose file of weights has the SHA-256",
            f"`{source['weights_sha256']}`; its licence and its limits are those of that model.",
        ]
    )


def _data(origin: Origin) -> str:
    hashes = origin.manifest["data"]
    lines = ["## Training data", ""]
    if origin.data is not None:
        config = origin.data["config"]
        what = f"`{config['files']}`" if config.get("files") else f"the source `{config['source']}`"
        lines.append(f"Text of {what}, tokenizer `{config['tokenizer']}`, prepared by jaxlm.")
    if origin.statistics is not None:
        s = origin.statistics
        lines.append(
            f"{s['documents']:,} documents, {s['bytes']:,} bytes, {s['tokens']:,} tokens "
            f"({s['bytes_per_token']:.2f} bytes a token), training and validation together."
        )
    lines.append(
        f"SHA-256 of the token windows: `{hashes['data_sha256']}`; of the tokenizer: `{hashes['tokenizer_sha256']}`."
    )
    return "\n".join(lines)


def _training(origin: Origin) -> str:
    config, train, optimizer = origin.config, origin.config.train, origin.config.optimizer
    lines = ["## Training", ""]
    if init := origin.manifest.get("init_from"):
        lines.append(f"Went on from the parameters of another model, at its step {init['step']:,}.")
    if origin.kind == "convert":
        convert = config.convert
        sizes = ", ".join(map(str, convert.block_sizes))
        last = ", ".join(map(str, convert.decay_block_sizes))
        lines.append(
            f"Converted to diffusion: {convert.warmup_share:.0%} of the steps on blocks of {sizes} tokens, then the "
            "whole window as one block" + (f", the last {convert.decay_share:.0%} on {last}." if last else ".")
        )
    versions = ", ".join(f"{name} {version}" for name, version in origin.manifest["versions"].items() if version)
    lines += [
        f"{origin.step:,} of {train.num_steps:,} steps of {train.batch_tokens:,} tokens "
        f"({origin.step * train.batch_tokens:,} tokens), windows of {train.seq_len}, seed {config.seed}.",
        f"AdamW (betas {optimizer.beta1}, {optimizer.beta2}, weight decay {optimizer.weight_decay} on matrices, "
        f"gradient norm clipped at {optimizer.clip_norm}), learning rate up to {train.learning_rate} "
        f"({optimizer.schedule}, warmup {optimizer.warmup_share:.0%}), computed in {config.execution.dtype}, "
        "parameters in float32.",
        f"Code revision {origin.manifest.get('git_revision') or 'unknown'}"
        f"{' with uncommitted changes' if origin.manifest.get('git_changes') else ''}; {versions}.",
    ]
    return "\n".join(lines)


def _evaluation(release: Release, origin: Origin) -> str:
    lines = ["## Evaluation", ""]
    if (line := origin.validation) is None:
        lines.append("The run holds no evaluation of this checkpoint.")
    else:
        loss = "evidence bound (an upper bound of the loss)" if release.is_diffusion else "loss"
        error = f" ± {line['stderr']:.4f}" if line.get("stderr") is not None else ""
        bits = f", {line['bits_per_byte']:.4f} bits a byte" if line.get("bits_per_byte") is not None else ""
        lines.append(f"On held-out text of the same source: {loss} {line['loss']:.4f}{error} nats a token{bits}.")
    lines.append("No benchmark scores are part of this card.")
    return "\n".join(lines)


def _limitations(release: Release) -> str:
    lines = [
        "## Limitations",
        "",
        f"- Small, and knows only the text it was trained on; at most {release.config.max_positions} positions.",
        "- May write what is false or harmful; nothing was done to prevent it.",
    ]
    if release.is_diffusion:
        lines.append(
            "- Each pass reads the whole sequence, without a cache: writing one text takes more work than reading it."
        )
        lines.append("- The number of new tokens is fixed before the first is written.")
    return "\n".join(lines)
