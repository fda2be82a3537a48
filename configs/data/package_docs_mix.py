"""A mix that needs no download: the texts of configs/data/package_docs.py as three sources, 50/30/20.

    python -m jaxlm.prepare_data --config=configs/data/package_docs_mix.py --out=runs/docs_mix/data

In place of the study's FinePDFs, DCLM and FineWeb-Edu stand `numeric` (scipy, numpy), `models` (jax, flax, optax,
treescope) and `tools` (the rest). No text is in two of them, so that a document is in the same split whatever its
source is mixed with: a model of one mix may be asked about the validation text of another.
"""

from pathlib import Path

import ml_collections

from jaxlm import command_line


def get_config() -> ml_collections.ConfigDict:
    data = command_line.read_config_file(str(Path(__file__).with_name("package_docs.py")))
    data.source = "files"
    with data.ignore_type():
        data.files = {
            "numeric": "package_docs:scipy+numpy",
            "models": "package_docs:jax+flax+optax+treescope",
            "tools": "package_docs:orbax-checkpoint+grain+tensorflow-datasets+etils+ml-collections+absl-py",
        }
        data.weights = {"numeric": 0.5, "models": 0.3, "tools": 0.2}
    return data
