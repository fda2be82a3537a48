"""The model card of a release. It says what the workdir records and nothing else: no figure here is typed by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jaxlm.config import CANON_POSITIONS, RunConfig
from jaxlm.release.directory import Release

WRITES = {False: "autoregressive", True: "masked diffusion"}
PLACES = ("before attention", "on queries, keys and values", "before the feed-forward", "inside the feed-forward")


@dataclass(frozen=True)
class Origin:
    """Where the parameters come from, as their workdir tells it.

    Attributes:
      config: of the run.
      kind: "train" or "convert".
      step: of the checkpoint.
      manifest: versions, git revision, parameter counts, hashes of data and tokenizer.
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


def model_card(release: Release, origin: Origin) -> str:
    """README.md with the metadata that the Hugging Face hub reads."""
    sections = (
        _metadata(release),
        _model(release, origin),
        _usage(release),
        _data(origin),
        _training(origin),
        _evaluation(release, origin),
        _limitations(release),
    )
    return "\n\n".join(sections) + "\n"


def _metadata(release: Release) -> str:
    tags = ["jaxlm", "text-generation", *(["diffusion", "masked-diffusion"] if release.is_diffusion else ["causal-lm"])]
    tags += ["canon"] if release.config.canon_set else []
    lines = ["license: apache-2.0", "library_name: transformers", "pipeline_tag: text-generation", "tags:"]
    return "\n".join(["---", *lines, *(f"  - {tag}" for tag in tags), "---"])


def _model(release: Release, origin: Origin) -> str:
    c, counts = release.config, origin.manifest["parameters"]
    canon = [f"{place} ({PLACES[CANON_POSITIONS.index(place)]})" for place in c.canon_set]
    reading = {
        0: "Every position sees every other.",
        1: "Every position sees itself and what is on its left.",
    }.get(release.block_size, f"Every position sees its own block of {release.block_size} and the blocks on its left.")
    rows = [
        ("parameters", f"{counts['total']:,}, of them {counts['non_embedding']:,} outside the embedding"),
        ("layers", f"{c.num_layers} of width {c.hidden_size}, feed-forward {c.intermediate_size} (SwiGLU)"),
        (
            "attention",
            f"{c.num_heads} query heads, {c.num_kv_heads} key and value heads of {c.head_dim}, rotary positions",
        ),
        ("window", f"{c.sliding_window} positions in the L layers of {c.layer_kinds}" if c.sliding_window else "none"),
        ("Canon layers", f"{c.canon_kernel} taps, {', '.join(canon)}" if canon else "none"),
        ("context", f"{c.max_positions} positions"),
        ("vocabulary", f"{release.tokenizer.vocab_size} tokens, {c.vocab_size} rows"),
        ("head", "the embedding" if c.tie_embeddings else "a matrix of its own"),
        ("weights", release.dtype),
    ]
    if release.is_diffusion:
        rows.append(("mask token", f"id {c.mask_token_id}, no token of the tokenizer"))
    return "\n".join(
        [
            f"# A {WRITES[release.is_diffusion]} language model of {counts['total']:,} parameters",
            "",
            f"Family `{c.family}`, trained with jaxlm (JAX) and exported to PyTorch. {reading}",
            "It is a base model: it goes on with a text, and was not trained to follow instructions.",
            "",
            "| | |",
            "|---|---|",
            *(f"| {name} | {value} |" for name, value in rows),
        ]
    )


def _usage(release: Release) -> str:
    more = "Sampling arguments and the cache are those of transformers; `do_sample=False` is greedy."
    if release.is_diffusion:
        more = (
            "`generate` writes `max_new_tokens` tokens by low-confidence remasking (LLaDA): it starts from masks, and "
            "each pass commits those it is surest of, which then stay. `steps=N` sets the passes (one a token if not "
            "given), `block_size=B` fills blocks of B from left to right. `do_sample=False` takes the likeliest "
            "tokens. What follows the first end of text is replaced by `pad_token_id`."
        )
    return f"""## Usage

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(DIRECTORY, trust_remote_code=True)
model = AutoModelForCausalLM.from_pretrained(DIRECTORY, trust_remote_code=True)

inputs = tokenizer(["Returns the sum of", "If True, the"], return_tensors="pt", padding=True)
ids = model.generate(
    inputs["input_ids"], attention_mask=inputs["attention_mask"], max_new_tokens=50,
    temperature=0.1, top_p=0.5, top_k=5, repetition_penalty=1.8, do_sample=True, pad_token_id=0,
)
print(tokenizer.batch_decode(ids, skip_special_tokens=True))
```

The code in this directory runs in transformers 4.57 and 5. {more}
Pads go on the left and are told by `attention_mask` alone: without one, every id is text."""


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
        lines.append(f"Went on from the parameters of another run, at its step {init['step']:,}.")
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
