"""The corpus that needs no download: documentation strings of the packages that jaxlm needs.

    python -m jaxlm.prepare_data --config=configs/data/package_docs.py --out=runs/quickstart/data

They are read from the installed source, which is not imported; each module, class and function gives one document.
Expect 12,201 documents, 10,943,258 bytes after 7,385 short ones and 232 repetitions are dropped; a byte-level BPE of
4,096 ids; 3,408,970 tokens, 3.210 bytes each; 12,637 windows of 256 tokens for training and 679 (173,732 tokens,
558,828 bytes) for validation. `gzip -9` needs 2.69 bits for a validation byte, `xz -9` 2.17. It takes 15 to 20
seconds on 2 idle CPU cores and 8 MB of disk.

The list is fixed, at the versions of constraints.txt, so that `data_sha256` in fingerprint.json is the same everywhere:
32a7c37b977ed94b39d7145b549c2e57dc8160aaad7ee80c4b58c5936888228e. jaxlib is left out because its Python files come from
a build that differs by platform. Documents are split, not modules: a validation text may have siblings in training.
"""

import ml_collections

from jaxlm import config

PACKAGES = (
    "absl-py==2.5.1",
    "etils==1.15.0",
    "flax==0.12.8",
    "grain==0.2.18",
    "jax==0.10.2",
    "ml-collections==1.1.0",
    "numpy==2.4.6",
    "optax==0.2.8",
    "orbax-checkpoint==0.12.8",
    "scipy==1.17.1",
    "tensorflow-datasets==4.9.10",
    "treescope==0.1.10",
)


def get_config() -> ml_collections.ConfigDict:
    data = config.prepare()
    data.source = "package_docs"
    data.packages = PACKAGES
    data.tokenizer = "train:4096"
    data.seq_len = 256
    return data
