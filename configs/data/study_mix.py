"""The study's mix, 1B tokens: 50 % FinePDFs, 30 % DCLM, 20 % FineWeb-Edu, exact by tokens.

    python -m jaxlm.prepare_data --config=configs/data/study_mix.py --out=runs/study/data

The three come from the Hugging Face hub, a file at a time when it is reached. From files that are here already:

    --config.files.finepdfs='/path/finepdfs/*.parquet' --config.files.dclm='/path/dclm/*.parquet'
    --config.files.fineweb_edu='/path/fineweb_edu/*.parquet'

Windows are mixed, not documents: of the training windows, and so of their tokens, each source has its share to 0.1 %
at every moment. A source that runs out ends the mix, and is named. Other mixes are a file like this one, with any
names and shares that sum to 1; the shares of this one are --config.weights.finepdfs, .dclm and .fineweb_edu.

Mix, corpora, encoding (GPT-2's), length of the windows and number of tokens are the study's. How documents are packed,
that repetitions are dropped, and the validation split (every 200th document of each source, mixed alike: some 5M
tokens) are jaxlm's convention; the study does not say.

Expect, beside the downloads (their size is printed before they begin), 3 GB of disk for the windows and 2 GB more for
what is encoded, until the windows are whole; 0.6 GB of memory; and 5 minutes on 2 idle cores, half an hour on busy ones
(projected from 100M and 30M tokens, `benchmark --what=prepare`). A command that was stopped goes on with what it had
encoded and writes the same bytes, on any number of processes.
"""

import ml_collections

from jaxlm import config


def get_config() -> ml_collections.ConfigDict:
    data = config.prepare()
    data.files = {
        "finepdfs": "hub:codelion/finepdfs-1B",
        "dclm": "hub:codelion/dclm-baseline-1B",
        "fineweb_edu": "hub:codelion/fineweb-edu-1B",
    }
    data.weights = {"finepdfs": 0.5, "dclm": 0.3, "fineweb_edu": 0.2}
    data.tokenizer = "gpt2"
    data.seq_len = 1024
    data.total_tokens = 1_000_000_000
    data.validation_share = 0.005
    return data
