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
# # Depth and width
#
# What a budget buys in depth or in width: first on paper, for the seven shapes of the study's sweep, then in pocket
# models that this notebook trains itself, a few minutes each on a laptop. They are read for one claim that is made of
# deep and narrow models, that their representations collapse.
#
# It needs `pip install -e '.[notebooks]'` and the quickstart's text (`bash launch/quickstart.sh` makes it, too).
# `JAXLM_RUNS` names the directory of the runs, `runs` in the checkout if unset; models that are there are not trained
# again. `JAXLM_NOTEBOOK=small` makes them so small, and so short, that they say nothing: the tests do that.

# %%
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import jaxlm
from jaxlm.command_line import load_config
from jaxlm.config import RunConfig
from jaxlm.data.loader import validation_batches
from jaxlm.data.windows import Windows
from jaxlm.families import build_model
from jaxlm.families.inspection import (
    attention_entropy,
    attention_weights,
    effective_rank,
    expert_load,
    hidden_states,
)
from jaxlm.randomness import key
from jaxlm.sizing import budget
from jaxlm.study.figures import BASELINE, COLOURS, STYLE
from jaxlm.study.results import read
from jaxlm.training import loop
from jaxlm.training.flops import flops_per_token, parameter_counts

plt.rcParams.update(STYLE)

checkout = Path(jaxlm.__file__).resolve().parent.parent
runs = checkout / os.environ.get("JAXLM_RUNS", "runs")
small = os.environ.get("JAXLM_NOTEBOOK") == "small"
data = runs / "quickstart" / "data"
if not (data / "fingerprint.json").is_file():
    raise SystemExit(f"no text in {data}: `bash launch/quickstart.sh` makes it")

# %% [markdown]
# ## The sweep on paper
#
# The study trained GPT-2 in seven shapes. Left, as they are: totals from 61.6M to 76.5M, and layers that differ by a
# factor of two, for the table of tokens takes from a fifth to more than a half. Whatever the scores say, they compare
# that, too. Right, the same depths with one budget (`size --budget=70M --family=gpt2`): width and feed-forward follow,
# and the price is a feed-forward that is not four times the width. The table still takes what the width demands.

# %%
published = {depth: load_config(f"{checkout}/configs/gpt2.py:{depth}", [], RunConfig) for depth in budget.DEPTHS}
matched = {shape.config.model.num_layers: shape for shape in budget.propose(published[32], 70e6, budget.DEPTHS).shapes}
sweeps = {
    "as published": {depth: config.model for depth, config in published.items()},
    "matched at 70M": {depth: shape.config.model for depth, shape in matched.items()},
}
fig, axes = plt.subplots(1, 2, figsize=(11, 3.8), sharey=True, layout="constrained")
for ax, (title, models) in zip(axes, sweeps.items(), strict=True):
    print(f"{title}\n{'layers x width':>16}{'F / D':>8}{'total':>14}{'tables':>9}{'MFLOP a token':>15}")
    for at, (depth, model) in enumerate(models.items()):
        counts = parameter_counts(build_model(model))
        total, blocks = counts["total"], counts["non_embedding"]
        mega = flops_per_token(model, 1024)["with_causal_attention"] / 1e6
        size, ratio = f"{depth} x {model.hidden_size}", model.intermediate_size / model.hidden_size
        print(f"{size:>16}{ratio:>8.2f}{total:>14,}{1 - blocks / total:>9.1%}{mega:>15.1f}")
        ax.bar(at, blocks / 1e6, color=COLOURS[0], label="blocks" if at == 0 else None)
        ax.bar(at, (total - blocks) / 1e6, bottom=blocks / 1e6, color=BASELINE, label="tables" if at == 0 else None)
    print()
    ax.set_xticks(range(len(models)), [f"{depth}\nx {model.hidden_size}" for depth, model in models.items()])
    ax.set_title(title)
    ax.set_xlabel("layers x width")
axes[0].set_ylabel("parameters (millions)")
axes[0].set_ylim(0, 95)
axes[0].legend(loc="upper left", ncols=2)
plt.show()

# %% [markdown]
# ## Pocket models of one budget
#
# LLaMA 3 in three depths that cost the same, and a mixture of experts: same text, batch, rate and seed. The shapes come
# from `propose`, too, so their feed-forward is not at the usual ratio; look at it before reading anything into a loss.
# One seed, half a million tokens, and a rate that was chosen at 4 layers: a difference of a tenth of a nat may be luck.

# %%
overrides = {"data.dir": str(data), "train.tensorboard": "false"}
depths, target = (2, 4, 16), 2_385_600  # what 4 x 192 has
if small:
    depths, target = (2, 6), 400_000
    overrides |= {"model.vocab_size": "320", "train.eval_windows": "2"}
    overrides |= {"model.hidden_size": "32", "model.intermediate_size": "64", "model.head_dim": "8"}
    overrides |= {"train.seq_len": "16", "train.batch_tokens": "64", "train.total_tokens": "256"}


def configured(name):
    file = checkout / "configs" / "pocket" / "family.py"
    return load_config(f"{file}:{name}", [(field, value, False) for field, value in overrides.items()], RunConfig)


shapes = budget.propose(configured("llama3"), target, depths).shapes
configs = {f"{shape.config.model.num_layers} x {shape.config.model.hidden_size}": shape.config for shape in shapes}
configs["moe"] = configured("moe")
trained = {}
print(f"{'':<10}{'F / D':>8}{'total':>12}{'validation loss':>22}")
for name, config in configs.items():
    workdir = runs / "depth_and_width" / name.replace(" ", "")
    loop.train(config, workdir, kind="train")
    trained[name] = jaxlm.load(workdir)
    model, last = config.model, read(workdir).validations[-1]
    total, loss = parameter_counts(trained[name].model)["total"], f"{last['loss']:.3f} ± {last['stderr']:.3f}"
    print(f"{name:<10}{model.intermediate_size / model.hidden_size:>8.2f}{total:>12,}{loss:>22}")

# %% [markdown]
# ## Do deep and narrow models collapse?
#
# The effective rank of a matrix is the exponential of the entropy of its singular values (Roy & Vetterli 2007): 1 where
# all rows point one way, the number of columns where no direction is preferred. The rows here are the hidden states of
# held-out text, layer by layer. Each model has another width, so the pictures show the rank as a share of it; "before"
# is the same model as it was drawn. The mean over positions can hide everything else, so it is taken off first (solid
# lines); dotted lines are with it. A collapse would be a line that sinks towards 0 with depth, and further in deeper
# models.

# %%
windows = Windows.open(data)
text_BT = next(validation_batches(windows, batch_size=8))["tokens"][:, :-1]


def centred(x_ND):
    return x_ND - x_ND.mean(0)


before = {name: one.model.init(key(one.config.seed, "init")) for name, one in trained.items()}
dense = [name for name in trained if name != "moe"]
fig, axes = plt.subplots(1, 2, figsize=(11, 4), sharey=True, layout="constrained")
for name, colour in zip(dense, COLOURS, strict=False):
    one = trained[name]
    for ax, (when, params) in zip(axes, {"before": before[name], "after": one.params}.items(), strict=True):
        states = hidden_states(one.model, params, text_BT, one.structure)
        flat = [np.asarray(x_BTD, np.float64).reshape(-1, x_BTD.shape[-1]) for x_BTD in states.values()]
        share = np.array([[effective_rank(f(x_ND)) / x_ND.shape[1] for x_ND in flat] for f in (centred, np.asarray)])
        at = np.linspace(0, 1, len(flat))
        ax.plot(at, share[0], "o-", color=colour, label=name, markersize=4)
        ax.plot(at, share[1], ":", color=colour)
        ax.set_title(f"hidden states, {when} training")
        ax.set_xlabel("depth (0: embedding, 1: last block)")
        table = np.asarray(params["embedding"]["table"], np.float64)
        print(f"{name}, {when}: embedding {effective_rank(table):.1f} of {table.shape[1]}, last block", end=" ")
        print(f"{share[0, -1] * table.shape[1]:.1f} (with the mean {share[1, -1] * table.shape[1]:.1f})")
axes[0].set_ylabel("effective rank / width")
axes[0].set_ylim(0, 1)
axes[0].legend()
plt.show()

# %% [markdown]
# What to look at: whether the lines of the deepest model lie below the others after training *and* not before. A rank
# that falls in training is no defect by itself: a model that learned anything prefers some directions. And a rank says
# nothing about the loss; compare with the table above. These are pocket models of one seed: a difference here is a
# reason to measure at 70M, not a finding.
#
# The run that this was written beside showed no collapse with depth: training lowered the rank in all three, most of it
# in the first block, from which it rose again; after the last block 2 x 288 had 0.23 of its width, 4 x 192 had 0.21 and
# 16 x 96 had 0.33. Before training it was the deepest that sank the furthest (0.49, against 0.64 and 0.56).
#
# ## Attention
#
# The entropy of each head, by layer, as a share of what even attention to everything before it would have: 1 is a head
# that averages, 0 one that points at a single position. Before training all are near 1.

# %%
fig, axes = plt.subplots(1, len(dense), figsize=(4 * len(dense), 3.6), sharey=True, layout="constrained")
for ax, name, colour in zip(axes, dense, COLOURS, strict=False):
    one = trained[name]
    even = np.log(np.arange(1, text_BT.shape[1] + 1)).mean()
    for params, style in ((before[name], {"color": BASELINE}), (one.params, {"color": colour})):
        maps = attention_weights(one.model, params, text_BT[:2], one.structure)
        entropy_LN = np.array([attention_entropy(weights_BNTT) for (weights_BNTT,) in maps.values()]) / even
        layer_LN = np.broadcast_to(np.arange(len(entropy_LN))[:, None], entropy_LN.shape)
        ax.plot(layer_LN.ravel(), entropy_LN.ravel(), "o", markersize=4, alpha=0.8, **style)
    print(
        f"{name}: entropy / even after training, mean over heads, by layer:", *(f"{e:.2f}" for e in entropy_LN.mean(1))
    )
    ax.set_title(name)
    ax.set_xticks(range(0, len(entropy_LN), 1 + len(entropy_LN) // 8))
    ax.set_xlabel("layer")
axes[0].set_ylabel("entropy / even (grey: before)")
axes[0].set_ylim(0, 1.05)
plt.show()

# %% [markdown]
# ## Who works in the mixture
#
# The share of all choices that fall on each expert, on held-out text. Even is the line. The balancing loss pulls there
# on average over a row; an expert that is far below does little, and one at 0 is dead weight.

# %%
one = trained["moe"]
loads = {
    when: expert_load(one.model, p, text_BT, one.structure)
    for when, p in {"before": before["moe"], "after": one.params}.items()
}
fig, axes = plt.subplots(1, 2, figsize=(11, 3.4), sharey=True, layout="constrained")
for ax, (when, load) in zip(axes, loads.items(), strict=True):
    share_LE = np.array(list(load.values()))
    for expert, share_L in enumerate(share_LE.T):
        at = np.arange(len(share_LE)) + (expert - (share_LE.shape[1] - 1) / 2) * 0.2
        ax.bar(at, share_L, width=0.18, color=COLOURS[expert % len(COLOURS)])
    ax.axhline(1 / share_LE.shape[1], color="black", linewidth=1)
    ax.set_xticks(range(len(load)), load)
    ax.set_title(f"{when} training")
    ax.set_xlabel("layer")
    print(f"expert load {when}: least {share_LE.min():.2f}, largest {share_LE.max():.2f}")
axes[0].set_ylabel("share of choices")
plt.show()
