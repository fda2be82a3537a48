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
# # A look inside
#
# One small model, twice: LLaMA 3 with Canon layers as it was trained, from left to right (**AR**), and the diffusion
# model that was made from it (**diffusion**). `bash launch/quickstart.sh` trains both; this notebook opens them, and
# needs `pip install -e '.[notebooks]'`. `JAXLM_RUNS` names the directory of the runs, `runs` in the checkout if unset.

# %%
import os
from pathlib import Path

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from flax import nnx

import jaxlm
from jaxlm.families.inspection import attention_weights
from jaxlm.generation import Sampling
from jaxlm.layers.parameters import paths
from jaxlm.layers.reading import Reading
from jaxlm.randomness import key
from jaxlm.study import results
from jaxlm.study.figures import COLOURS, STYLE

plt.rcParams.update(STYLE)

checkout = Path(jaxlm.__file__).resolve().parent.parent
quickstart = checkout / os.environ.get("JAXLM_RUNS", "runs") / "quickstart"
workdirs = {"AR": quickstart / "ar", "diffusion": quickstart / "diffusion"}
missing = [str(path) for path in workdirs.values() if not (path / "COMPLETE").is_file()]
if missing:
    raise SystemExit(f"no finished run in {' and '.join(missing)}: `bash launch/quickstart.sh` makes them")

trained = {name: jaxlm.load(path) for name, path in workdirs.items()}
ar, diffusion = trained["AR"], trained["diffusion"]
for name, path in workdirs.items():
    print(f"{name}: step {trained[name].step} of {path}")

# %% [markdown]
# ## The model
#
# Parameters are a plain nested dict; `bind` puts them into the NNX modules that define the model. Open the tree below
# down to `layers` / `00`: a block is two norms, attention and feed-forward, and **Canon layers A and C**, each of which
# mixes every position with the three before it. Nothing else tells this family from LLaMA 3.

# %%
trunk = ar.model.bind(ar.params)
nnx.display(trunk)


# %% [markdown]
# The same as a table, one row a part. Look at where the parameters are: at this size the embedding, which is also the
# head, holds a third of them, and the blocks are all alike.


# %%
class Part(nnx.Module):
    """A part called with arrays alone, as `nnx.tabulate` wants it: a block's reading (who sees whom) is added here."""

    def __init__(self, part, structure=None):
        self.graphdef, params = nnx.split(part)
        self.params, self.structure = nnx.data(params), structure

    def __call__(self, x):
        reading = [Reading(self.structure, jnp.arange(x.shape[1])[None])] if self.structure else []
        return nnx.merge(self.graphdef, self.params)(x, *reading)


class Table(nnx.Module):
    def __init__(self, trunk, structure):
        self.embedding = Part(trunk.embedding)
        self.layers = nnx.List([Part(block, structure) for block in trunk.layers.values()])
        self.final_norm = Part(trunk.final_norm)

    def __call__(self, tokens_BT):
        x_BTD = self.embedding(tokens_BT)
        for layer in self.layers:
            x_BTD = layer(x_BTD)
        return self.final_norm(x_BTD)


console = {"force_jupyter": False, "width": 100}
print(nnx.tabulate(Table(trunk, ar.structure), jnp.zeros((1, 16), jnp.int32), console_kwargs=console))

# %% [markdown]
# ## Loss
#
# Every run writes `metrics.jsonl`, a JSON object a line. Left, AR training. Right, the conversion, with the block size
# of each phase on top: a block of 1 is still left to right, the whole window is masked diffusion. Look at the level as
# the block grows (fewer neighbours are known, so the task gets harder), and at how few tokens the conversion takes. The
# two losses are not the same quantity: diffusion's is a bound on the negative log-likelihood (ELBO).

# %%
fig, axes = plt.subplots(1, 2, figsize=(11, 3.8), sharey=True, layout="constrained")
for ax, (name, path), colour in zip(axes, workdirs.items(), COLOURS, strict=False):
    run = results.read(path)
    x, y = np.array([(line["tokens"] / 1e6, line["loss"]) for line in run.steps]).T
    ax.plot(x, y, color=colour, linewidth=1, label="training")
    x, y = np.array([(run.tokens_at(line["step"]) / 1e6, line["loss"]) for line in run.validations]).reshape(-1, 2).T
    ax.plot(x, y, "o", color="black", markerfacecolor="white", label="validation")
    for i, phase in enumerate(run.phases):
        start, stop = run.tokens_at(phase.start) / 1e6, run.tokens_at(phase.stop) / 1e6
        ax.axvspan(start, stop, color=colour, alpha=(0.05, 0.15)[i % 2], linewidth=0)
        label = results.block_label(phase.block_size, run.config.train.seq_len)
        ax.text((start + stop) / 2, 1.0, label, ha="center", va="bottom", transform=ax.get_xaxis_transform())
    ax.set_title(name, pad=20)
    ax.set_xlabel("training tokens (millions)")
    ax.legend()
axes[0].set_ylabel("loss (nats per token)")
plt.show()

# %% [markdown]
# ## Canon taps
#
# A Canon layer adds to each position a weighted sum of itself and the three before it, one set of weights (taps) a
# channel. They start uniform, with a mean size of a quarter for four taps: white. Look for taps that training opened
# (red) or closed (blue), for what differs between A (before attention) and C (before the feed-forward), and, on the
# right, for how little the conversion moves them: it is short, and the convolution stays causal in a diffusion model.


# %%
def taps(params):
    """Canon kernels by place: {"00 A": [k, channels]}."""
    found = ((path.split("/"), kernel) for path, kernel in paths(params))
    return {f"{at[1]} {at[-2][-1].upper()}": np.asarray(w) for at, w in found if at[-2].startswith("canon")}


start, before, after = (taps(p) for p in (ar.model.init(key(ar.config.seed, "init")), ar.params, diffusion.params))
size = {place: np.abs(w).mean(1) for place, w in before.items()}
panels = {
    "AR: mean |tap|": size,
    "AR: moved in training": {place: np.abs(w - start[place]).mean(1) for place, w in before.items()},
    "diffusion: mean |tap|": {place: np.abs(w).mean(1) for place, w in after.items()},
    "diffusion: moved in conversion": {place: np.abs(w - before[place]).mean(1) for place, w in after.items()},
}
order = sorted(size, key=lambda place: (place[-1], place))
num_taps = ar.config.model.canon_kernel
fig, axes = plt.subplots(1, 4, figsize=(13, 0.34 * len(order) + 1.4), sharey=True, layout="constrained")
for ax, (title, values) in zip(axes, panels.items(), strict=True):
    grid = np.array([values[place] for place in order])
    moved = "moved" in title
    middle = 0.5 * num_taps**-0.5  # of a start that is uniform in +-1/sqrt(k)
    ax.imshow(grid, cmap="Greens" if moved else "RdBu_r", vmin=0, vmax=middle if moved else 2 * middle, aspect="auto")
    for (row, column), value in np.ndenumerate(grid):
        dark = abs(value - (0 if moved else middle)) > 0.6 * middle
        ax.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=8, color="white" if dark else "black")
    ax.set_title(title, fontsize=10)
    ax.set_xticks(range(num_taps), [f"−{back}" if back else "self" for back in range(num_taps - 1, -1, -1)])
    ax.grid(visible=False)
axes[0].set_yticks(range(len(order)), order)
axes[0].set_ylabel("layer, place")
fig.supxlabel("position that the tap reads", fontsize=10)
plt.show()

# %% [markdown]
# ## Attention
#
# Both models read one sentence without masks; a row says where a position looks, averaged over the heads. Look at the
# upper triangle: AR has nothing there by construction, diffusion took it into use in the conversion. A bright first
# column is attention that has nothing better to do.

# %%
sentence = "Returns the index of the largest value."
ids = ar.tokenizer.encode_prompt(ar.tokenizer.end_of_text + sentence)
words = ["⟨start⟩", *(ar.tokenizer.decode([i]).strip() or "␣" for i in ids[1:])]
layers = list(trunk.layers)
width = max(9.0, 2.6 * len(layers))
fig, axes = plt.subplots(2, len(layers), figsize=(width, 6.2), sharex=True, sharey=True, layout="constrained")
for row, (name, model) in zip(axes, trained.items(), strict=True):
    maps = attention_weights(model.model, model.params, [ids], model.structure)
    for ax, (layer, (weights_BNTT,)) in zip(row, maps.items(), strict=True):
        ax.imshow(np.sqrt(weights_BNTT[0].mean(0)), cmap="magma", vmin=0, vmax=1)  # the root shows small weights, too
        ax.set_title(f"{name}, layer {layer}", fontsize=10)
        ax.set_xticks(range(len(ids)), words, rotation=90, fontsize=8)
        ax.set_yticks(range(len(ids)), words, fontsize=8)
        ax.grid(visible=False)
    ahead = [float(np.triu(np.asarray(w)[0].mean(0), 1).sum(1)[:-1].mean()) for (w,) in maps.values()]
    print(f"{name}: share of attention on later positions, by layer:", *(f"{share:.2f}" for share in ahead))
fig.supylabel("position that looks", fontsize=10)
fig.supxlabel("position that is looked at", fontsize=10)
plt.show()

# %% [markdown]
# ## From masks to text
#
# Behind the start of a document lie masks only (grey). In each pass the diffusion model writes the tokens that it is
# surest of, and what is written stays. A row is the canvas after a pass, a colour the pass that wrote the token. Look
# at the order, which is not left to right, and at how new tokens grow beside those that are there. The text of so small
# a model makes no sense.

# %%
num_tokens, num_passes = 24, 8
text = diffusion.generate(
    [diffusion.tokenizer.end_of_text],
    max_new_tokens=num_tokens,
    steps=num_passes,
    sampling=Sampling(temperature=0.1, top_p=0.5, top_k=5, repetition_penalty=1.8),
    ignore_eos=True,
)[0]
pieces = [diffusion.tokenizer.decode([i]).replace("\n", "↵").replace(" ", "·") for i in text.token_ids]
pieces = ["".join(c if c.isprintable() else "�" for c in piece) for piece in pieces]
edges = np.concatenate([[0], np.cumsum([len(piece) + 1 for piece in pieces])])
palette = plt.get_cmap("viridis")(np.linspace(0.45, 1, text.decoded.passes))
font = {"family": "monospace", "fontsize": min(10, 1100 / edges[-1]), "parse_math": False}
fig, ax = plt.subplots(figsize=(14, 0.34 * (num_passes + 1) + 0.3), layout="constrained")
for done in range(-1, text.decoded.passes):
    for piece, left, right, written in zip(pieces, edges, edges[1:], text.decoded.committed_at, strict=False):
        colour = palette[written] if written <= done else "#DDDDDD"
        ax.barh(done, right - left - 0.3, left=left, height=0.8, color=colour)
        if written <= done:
            ax.text((left + right - 0.3) / 2, done, piece, ha="center", va="center", **font)
ax.set_yticks(range(-1, num_passes), ["masks", *(f"pass {i + 1}" for i in range(num_passes))])
ax.set(xticks=[], xlim=(-0.5, edges[-1]), ylim=(num_passes - 0.5, -1.5))
ax.spines[:].set_visible(False)
ax.grid(visible=False)
plt.show()
print(text.text)
