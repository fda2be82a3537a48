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
# # The study's numbers, by hand
#
# A report of `study` leaves all that it shows in `data.json`: the score of every item under every seed, losses by
# window, curves, published figures. This notebook reads that file and computes differences of its own, so that nobody
# has to believe the report.
#
# It needs `pip install -e '.[notebooks]'` and a report. `JAXLM_STUDY` names a `data.json`; if unset it is that of the
# committed pocket study. Pocket rows test the machinery and say nothing about which architecture is better.

# %%
import json
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import jaxlm
from jaxlm.study.figures import BASELINE, COLOURS, STYLE

plt.rcParams.update(STYLE)
checkout = Path(jaxlm.__file__).resolve().parent.parent
file = Path(os.environ.get("JAXLM_STUDY", "notebooks/pocket_study/data.json"))
if not file.is_file():
    file = checkout / file
if not file.is_file():
    raise SystemExit(f"{file} is not there: `study --config=FILE --workdir=DIR` makes one in DIR/report")
data = json.loads(file.read_text("utf-8"))
print(data["title"])
for sentence in data["opening"]:
    print(sentence)

# %% [markdown]
# ## Scores of items
#
# `scores[row][seed]` is a vector for each task. A mean over tasks is only taken of rows that have all of them.

# %%
scores = {}
for cell in data["cells"]:
    if cell["items"]:
        of_tasks = {
            task: np.array(cell["items"][task][record["metric"]].split(), float)
            for task, record in cell["tasks"].items()
            if task in cell["items"]
        }
        scores.setdefault(cell["row"], {})[cell["seed"]] = of_tasks
tasks = list(dict.fromkeys(task for seeds in scores.values() for one in seeds.values() for task in one))
complete = {row: seeds for row, seeds in scores.items() if all(set(tasks) == set(one) for one in seeds.values())}
print(f"{len(complete)} rows with all of {', '.join(tasks)}")
if len(complete) < 2:
    raise SystemExit("there is nothing to compare: `study` or `evaluate --tasks` asks rows the same tasks")


def mean(row):
    return 100 * np.mean([[one[task].mean() for task in tasks] for one in complete[row].values()])


for row in sorted(complete, key=mean, reverse=True):
    of_seeds = [100 * np.mean([one[task].mean() for task in tasks]) for one in complete[row].values()]
    print(f"{row:<24}{mean(row):6.2f}   by seed: {', '.join(f'{value:.2f}' for value in of_seeds)}")

# %% [markdown]
# ## A difference with its interval
#
# Two rows answer the same items, so items are drawn in pairs: what is hard for both moves both. Each draw also takes
# seeds with replacement. With two or three seeds this says little about seeds; the report pools them over all rows.

# %%
DRAWS = 2_000


def difference(first, second, seed=0):
    """Points by which the second row is above the first: its value, and draws around it."""
    rng = np.random.default_rng(seed)
    total = np.zeros(DRAWS)
    value = 0.0
    rows = [complete[first], complete[second]]
    chosen = [rng.integers(len(seeds), size=(DRAWS, len(seeds))) for seeds in rows]
    for task in tasks:
        a, b = (np.array([one[task] for one in seeds.values()]) for seeds in rows)
        counts = rng.multinomial(a.shape[1], np.full(a.shape[1], 1 / a.shape[1]), size=DRAWS) / a.shape[1]
        by_seed = [counts @ x.T for x in (a, b)]
        drawn = [np.take_along_axis(x, c, axis=1).mean(1) for x, c in zip(by_seed, chosen, strict=True)]
        total += 100 * (drawn[1] - drawn[0]) / len(tasks)
        value += 100 * (b.mean() - a.mean()) / len(tasks)
    return value, total


reference, *others = complete
found = {other: difference(reference, other) for other in others}
for other, (value, draws) in found.items():
    low, high = np.quantile(draws, [0.025, 0.975])
    words = "no difference at this size" if low <= 0 <= high else "apart, before any correction for many comparisons"
    print(f"{other} minus {reference}: {value:+.2f} points, 95 % from {low:+.2f} to {high:+.2f}: {words}")

# %%
order = sorted(found, key=lambda other: found[other][0])
fig, ax = plt.subplots(figsize=(7.5, 1.2 + 0.25 * len(order)), layout="constrained")
for i, other in enumerate(order):
    value, draws = found[other]
    low, high = np.quantile(draws, [0.025, 0.975])
    ax.plot([low, high], [i, i], color=COLOURS[0])
    ax.plot(value, i, "o", color=COLOURS[0])
ax.axvline(0, color=BASELINE)
ax.set_yticks(range(len(order)), order)
ax.set_xlabel(f"points above {reference}, with 95 % of the draws")
plt.show()

# %% [markdown]
# ## Two copies of one model
#
# What the same row scores on two halves of its items shows how far chance alone goes. Of many comparisons a few will
# look like differences: one in twenty, if nothing is corrected.

# %%
rng = np.random.default_rng(1)
halves = []
for seeds in complete.values():
    one = next(iter(seeds.values()))
    for task in tasks:
        shuffled = rng.permutation(one[task])
        half = len(shuffled) // 2
        halves.append(100 * (shuffled[:half].mean() - shuffled[half : 2 * half].mean()))
fig, ax = plt.subplots(figsize=(6, 3), layout="constrained")
ax.hist(halves, 30, color=BASELINE)
ax.set_xlabel("points between two halves of one row's items of a task")
plt.show()
print(f"standard deviation of no difference: {np.std(halves):.2f} points")

# %% [markdown]
# ## Published beside measured
#
# Left the published averages of the sweep, over six tasks, over seven, or not stated; right what was measured here, on
# the tasks named above. The two have no common axis.

# %%
fig, axes = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
kinds = list(dict.fromkeys(one["num_tasks"] for one in data["published"]["sweep"]))
for kind, colour in zip(kinds, COLOURS, strict=False):
    part = [one for one in data["published"]["sweep"] if one["num_tasks"] == kind]
    label = "tasks not stated" if kind is None else f"mean of {kind}"
    axes[0].plot([one["layers"] for one in part], [one["average"] for one in part], "o", color=colour, label=label)
axes[0].legend()
shown = [(one["layers"], mean(one["row"])) for one in data["published"]["sweep"] if one["row"] in complete]
axes[1].plot(*np.reshape(shown, (-1, 2)).T, "o", color=COLOURS[0])
for ax, title in zip(axes, ("published", "measured here"), strict=True):
    ax.set_xscale("log", base=2)
    ax.set_xlabel("layers")
    ax.set_ylabel("points")
    ax.set_title(title)
plt.show()

# %% [markdown]
# ## Runs of one's own
#
# `python -m jaxlm.study --report=WORKDIR,WORKDIR --out=DIR` compares any runs and studies; with
# `JAXLM_STUDY=DIR/data.json` this notebook reads them. Runs without `evaluate --tasks` have no items, and are left out
# above.
