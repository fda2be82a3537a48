"""The study's two released models, asked what every row of jaxlm's study is asked.

    python -m jaxlm.study --config=configs/study/released.py --workdir=runs/released

codelion/gpt-2-70m (12 x 512, autoregressive) and codelion/dhara-70m (32 x 384, diffusion), from the Hugging Face hub
or the hub's cache; without either the command says which files it needs. Scores by item, seven tasks, both means,
chance and controls: 38.15 and 31.85 were published, the first a mean of six, the second of seven. They have no windows
of ours, so there is no loss, and nothing is decoded.
"""

import ml_collections

from jaxlm import study_config


def get_config() -> ml_collections.ConfigDict:
    study = study_config.study()
    study.title = "The study's released models"
    study.rows = (
        "gpt2_70m: import codelion/gpt-2-70m",
        "dhara_70m: import codelion/dhara-70m",
    )
    study.groups = ("released: gpt2_70m dhara_70m",)
    return study
