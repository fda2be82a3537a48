# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#       jupytext_version: 1.19.6
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # From autoregression to diffusion
#
# A model that writes from left to right becomes one that fills masks in any order, phase by phase, as in LLaDA2.0
# (arXiv 2512.15745, section 2). A model that has learned to write the next token already is a diffusion model whose
# blocks have one token each. So the blocks grow: 1, 4, 32 tokens, then the whole window. Blocks of 32 come last again,
# for a model whose blocks are finished one after another can keep what it computed of those before.
#
# It needs `pip install -e '.[notebooks]'` and the autoregressive model of `bash launch/quickstart.sh`, and trains the
# conversion itself: a few minutes on a laptop, and nothing the second time. `JAXLM_RUNS` names the directory of the
# runs, `runs` in the checkout if unset. `JAXLM_NOTEBOOK=small` makes everything so small that it says nothing: the
# tests do that.

# %%
import dataclasses
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from IPython.display import Image, Markdown, display
from matplotlib.colors import ListedColormap

import jaxlm
from jaxlm.command_line import load_config
from jaxlm.config import RunConfig
from jaxlm.data.loader import validation_batches
from jaxlm.data.windows import Windows
from jaxlm.evaluation.likelihood import Likelihood
from jaxlm.families.inspection import attention_weights
from jaxlm.generation import Sampling
from jaxlm.layers.structure import Structure
from jaxlm.objectives import build_objective
from jaxlm.study import figures, results, tables
from jaxlm.study.conversion_cost import compare
from jaxlm.study.figures import COLOURS, STYLE
from jaxlm.training import loop

plt.rcParams.update(STYLE)

checkout = Path(jaxlm.__file__).resolve().parent.parent
runs = checkout / os.environ.get("JAXLM_RUNS", "runs")
small = os.environ.get("JAXLM_NOTEBOOK") == "small"
data, out = runs / "quickstart" / "data", runs / "ar_into_diffusion"
source = out / "ar" if small else runs / "quickstart" / "ar"
needed = data / "fingerprint.json" if small else source / "COMPLETE"
if not needed.is_file():
    raise SystemExit(f"{needed} is not there: `bash launch/quickstart.sh` makes it")

# %% [markdown]
# ## The conversion
#
# `configs/pocket/dhara.py`, a little longer and with a decay. A checkpoint is kept at the end of each phase; the rest
# of this notebook looks at these.

# %%
block_sizes, decay, phase_steps = (1, 4, 32), 32, 30
shared = {"data.dir": str(data), "train.tensorboard": "false"}
if small:
    block_sizes, decay, phase_steps = (1, 4), 4, 2
    shared |= {"model.vocab_size": "320", "model.num_layers": "1", "model.hidden_size": "32", "model.head_dim": "8"}
    shared |= {"model.intermediate_size": "64", "model.num_heads": "2", "model.num_kv_heads": "1"}
    shared |= {"train.seq_len": "16", "train.batch_tokens": "64", "train.eval_windows": "2"}


def configured(name, **overrides):
    fields = shared | {field.replace("__", "."): str(value) for field, value in overrides.items()}
    file = checkout / "configs" / "pocket" / f"{name}.py"
    return load_config(str(file), [(field, value, False) for field, value in fields.items()], RunConfig)


if small:
    loop.train(configured("llama3_canon", train__total_tokens=512), source, kind="train")

num_steps = 8 * phase_steps
batch_tokens = configured("dhara").train.batch_tokens
config = configured(
    "dhara",
    train__total_tokens=num_steps * batch_tokens,
    train__save_every=phase_steps,
    train__eval_every=phase_steps,
    train__keep=num_steps,
    convert__block_sizes=",".join(map(str, block_sizes)),
    convert__warmup_share=len(block_sizes) / 8,
    convert__decay_block_sizes=decay,
    convert__decay_share=1 / 8,
)
loop.train(config, out / "diffusion", kind="convert", init_from=str(source))

# %% [markdown]
# Phases, checkpoints, and what the checkpoints will be called. A phase of two streams reads each window twice, noisy
# and clean, and so costs twice the time of the whole window.

# %%
run = results.read(out / "diffusion")
seq_len = config.train.seq_len
stages = {"AR": jaxlm.load(source)}
for phase in run.phases:
    size = f"blocks of {phase.block_size}" if phase.block_size else "whole window"
    name = f"back to {size}" if size in stages else size
    stages[name] = jaxlm.load(out / "diffusion", phase.stop)
    tokens, streams = (
        run.tokens_at(phase.stop) - run.tokens_at(phase.start),
        "two streams" if phase.block_size else "one",
    )
    print(f"updates {phase.start + 1:>3} to {phase.stop:>3}: {name}, {tokens:,} tokens, {streams}")
ar, diffusion, last = stages["AR"], stages["whole window"], list(stages)[-1]

# %% [markdown]
# ## Who sees whom
#
# A dark cell: the position of this row sees the position of this column. Above, how a finished text is read: the
# staircase gets coarser until everything sees everything. Below, how the same phase is trained. The row of text is
# there twice, noisy (first half) and clean (second half): a noisy block sees itself and, of what lies before it, only
# the clean copy, as it will when it is written. The whole window needs no clean copy, for nothing lies before it.

# %%
shown = min(64, seq_len)


def seen(structure):
    at = np.arange(shown * structure.streams)
    return np.broadcast_to(structure.visible(at[:, None], at[None], shown), (len(at), len(at)))


fig, axes = plt.subplots(2, len(stages), figsize=(2.3 * len(stages), 5.2), layout="constrained")
for (above, below), (name, stage) in zip(axes.T, stages.items(), strict=True):
    size = stage.structure.block_size
    one_stream = name == "AR" or size == 0
    for ax, streams in ((above, 1), (below, 1 if one_stream else 2)):
        ax.imshow(seen(Structure(size, streams)), cmap=ListedColormap(["#F2F2F2", COLOURS[0]]), vmin=0, vmax=1)
        ax.grid(visible=False)
        ticks = ([shown / 2, 1.5 * shown], ["noisy", "clean"]) if streams == 2 else ([0, shown - 1], [1, shown])
        ax.set_xticks(*ticks, fontsize=8)
        ax.set_yticks(*ticks, fontsize=8)
        if streams == 2:
            ax.axhline(shown - 0.5, color="black", linewidth=0.8)
            ax.axvline(shown - 0.5, color="black", linewidth=0.8)
    above.set_title(name, fontsize=10)
axes[0, 0].set_ylabel("reading: position that looks")
axes[1, 0].set_ylabel("training: position that looks")
fig.supxlabel("position that is looked at", fontsize=10)
plt.show()

# %% [markdown]
# ## What each phase is good at
#
# Every checkpoint, scored on the same held-out windows with every block size. AR is scored as what it is (first column)
# and, like the others, as a diffusion model, which it never was: it has not seen a mask. Look along a row at how the
# loss rises with the block (fewer neighbours are known); along the diagonal, where a phase is scored by what it was
# trained for; and at the last row, whether the decay gives up anything of the whole window.
#
# The first column is no bound: it reads every model from left to right. Nothing in the conversion trains that (what a
# clean token predicts is never asked for), and still it is not forgotten at once. The run that this was written beside
# went from 3.77 to 4.39 nats in the phase of blocks of 1, and to no more than 4.50 later.

# %%
windows = Windows.open(data)
num_windows = 2 if small else 24
token_bytes_V = windows.tokenizer.token_bytes()


def scorer(model, objective, mask_token_id):
    objective = build_objective(objective, model, mask_token_id=mask_token_id)
    likelihood = Likelihood(objective, token_bytes_V)
    return lambda params: likelihood.validate(params, validation_batches(windows, 2, num_windows), num_windows, 0).loss


mask_token_id = diffusion.config.model.mask_token_id
columns = {"left to right": scorer(ar.model, ar.config.objective, None)}
for size in dict.fromkeys((*block_sizes, decay, 0)):
    objective = dataclasses.replace(config.objective, block_size=size)
    columns[f"blocks of {size}" if size else "whole window"] = scorer(diffusion.model, objective, mask_token_id)
loss = np.array([[score(stage.params) for score in columns.values()] for stage in stages.values()])
fig, ax = plt.subplots(figsize=(1.5 * len(columns) + 1.5, 0.5 * len(stages) + 1.4), layout="constrained")
ax.imshow(loss, cmap="viridis_r", vmin=loss.min(), vmax=loss[1:].max(), aspect="auto")
for (row, column), value in np.ndenumerate(loss):
    dark = value > (loss.min() + loss[1:].max()) / 2
    ax.text(column, row, f"{value:.2f}", ha="center", va="center", color="white" if dark else "black", fontsize=9)
ax.set_xticks(range(len(columns)), columns)
ax.set_yticks(range(len(stages)), stages)
ax.set_xlabel("scored as (nats per token; a bound but in the first column)")
ax.set_ylabel("after the phase")
ax.grid(visible=False)
plt.show()
for name, values in zip(stages, loss, strict=True):
    print(f"loss after {name}:", *(f"{value:.3f}" for value in values))

# %% [markdown]
# ## By noise level
#
# The whole-window ELBO is a mean over noise levels: of the loss of a masked token when a share t of the text is masked.
# Left of the picture nearly all neighbours are known, on the right nothing is, and all that is left are the token
# frequencies. Look for how far each line falls to the left: that is what a model makes of context on both sides. Its
# mean is the ELBO.

# %%
text_BT = next(validation_batches(windows, batch_size=2 if small else 8))["tokens"][:, 1:]
levels = np.linspace(0.1, 1.0, 4 if small else 10)
order_BT = np.random.default_rng(0).random(text_BT.shape).argsort(1).argsort(1)  # the same masks for every checkpoint
bidirectional = Structure(0)


@jax.jit
def masked_loss(params, masked_BT):
    x_BTD = diffusion.model.hidden(params, jnp.where(masked_BT, mask_token_id, text_BT), bidirectional)
    log_BTV = jax.nn.log_softmax(diffusion.model.logits(params, x_BTD))
    nats_BT = -jnp.take_along_axis(log_BTV, text_BT[..., None], axis=-1)[..., 0]
    return (nats_BT * masked_BT).sum() / masked_BT.sum()


fig, ax = plt.subplots(figsize=(7.4, 4), layout="constrained")
for (name, stage), colour in zip(list(stages.items())[1:], COLOURS, strict=False):
    by_level = [float(masked_loss(stage.params, order_BT < t * text_BT.shape[1])) for t in levels]
    ax.plot(levels, by_level, "o-", color=colour, label=name, markersize=4)
    print(f"{name}: nats of a masked token at t = 0.1 {by_level[0]:.2f}, at 1 {by_level[-1]:.2f}")
ax.set_xlabel("t, share of the text that is masked")
ax.set_ylabel("loss of a masked token (nats)")
ax.legend()
plt.show()

# %% [markdown]
# ## One head, before and after
#
# Of all heads the one that looks ahead most after the conversion, on one sentence, in each phase. The upper right of AR
# is empty by construction, and so is that of blocks of 1; what lies there later was learned in the conversion. Small
# blocks are small squares on the diagonal, and the whole sentence is less than a block of 32.

# %%
sentence = "Returns the index of the largest value."
ids = ar.tokenizer.encode_prompt(ar.tokenizer.end_of_text + sentence)[:seq_len]
words = ["⟨start⟩", *(ar.tokenizer.decode([i]).strip() or "␣" for i in ids[1:])]
maps = {}
for name, stage in stages.items():
    found = attention_weights(stage.model, stage.params, [ids], stage.structure)
    maps[name] = np.array([np.asarray(weights_BNTT, np.float64)[0] for (weights_BNTT,) in found.values()])
ahead = {name: np.triu(weights_LNTT, 1).sum(-1)[..., :-1].mean(-1) for name, weights_LNTT in maps.items()}
layer, head = np.unravel_index(ahead["whole window"].argmax(), ahead["whole window"].shape)
fig, axes = plt.subplots(1, len(stages), figsize=(2.5 * len(stages), 3.4), sharey=True, layout="constrained")
for ax, (name, weights_LNTT) in zip(axes, maps.items(), strict=True):
    ax.imshow(np.sqrt(weights_LNTT[layer, head]), cmap="magma", vmin=0, vmax=1)  # the root shows small weights, too
    ax.set_title(name, fontsize=10)
    ax.set_xticks(range(len(ids)), words, rotation=90, fontsize=7)
    ax.set_yticks(range(len(ids)), words, fontsize=7)
    ax.grid(visible=False)
    print(f"{name}: share of this head's attention on later positions {ahead[name][layer, head]:.2f}")
axes[0].set_ylabel(f"layer {layer}, head {head}: looks")
fig.supxlabel("is looked at", fontsize=10)
plt.show()

# %% [markdown]
# ## What it writes
#
# The same beginning, continued from left to right (`--mode=ar`) and from masks (`--mode=diffusion`, one token a pass),
# after every phase. From left to right a token is read one position before it, from masks at its own position: two
# abilities that one model has side by side. Look at which of the two gets worse and which gets better. So small a model
# makes no sense either way.

# %%
prompt, num_tokens = "Returns the", 8 if small else 24
sampling = Sampling(temperature=0.0, repetition_penalty=1.5)
for name, stage in stages.items():
    for mode in ("ar", "diffusion") if name != "AR" else ("ar",):  # AR has no mask
        text = stage.generate([prompt], mode=mode, max_new_tokens=num_tokens, sampling=sampling, ignore_eos=True)[0]
        print(f"{name + ', ' + mode:<32}{prompt}{text.text!r}")

# %% [markdown]
# ## In which order
#
# A dot is a token: across its position, downwards the pass that wrote it. From left to right is a diagonal. With the
# whole window as a block the model chooses, four tokens a pass, those it is surest of: mostly beside what is there, for
# neighbours are what it knows most from. In blocks it chooses within one and goes on to the next when that is full.

# %%
num_tokens = 8 if small else 96
passes = num_tokens // 4
writers = {"AR": {"mode": "ar"}, "whole window": {"steps": passes}, last: {"steps": passes}}
fig, axes = plt.subplots(1, len(writers), figsize=(4 * len(writers), 3.8), layout="constrained")
for ax, (name, options), colour in zip(axes, writers.items(), COLOURS, strict=False):
    text = stages[name].generate([prompt], max_new_tokens=num_tokens, sampling=sampling, ignore_eos=True, **options)[0]
    order = text.decoded.committed_at
    ax.plot(range(1, len(order) + 1), np.add(order, 1), "o", color=colour, markersize=4)
    ax.set_title(name)
    ax.set_xlabel("position of the new token")
    ax.yaxis.get_major_locator().set_params(integer=True)
    ax.invert_yaxis()
    back = np.mean(np.diff(order) < 0)
    print(f"{name}: {max(order) + 1} passes, {back:.0%} of the tokens were written before their left neighbour")
axes[0].set_ylabel("pass that wrote it")
plt.show()

# %% [markdown]
# ## Was it worth it?
#
# `bash launch/pocket_conversion.sh` measures what a conversion saves: the loss that it reaches with a tenth of the
# tokens, beside diffusion from scratch with the same tokens and with ten times as many, over three seeds. If its runs
# are here, this is its answer.

# %%
found = sorted(path.parent for path in (runs / "conversion").glob("*/COMPLETE"))
comparisons = compare(results.read_all(found))
if comparisons:
    figures.conversion(comparisons, out / "conversion.png")
    display(Markdown("\n".join(tables.conversion_costs(comparisons))), Image(out / "conversion.png"))
else:
    print(f"no runs to compare in {runs / 'conversion'}: `bash launch/pocket_conversion.sh` makes them")
