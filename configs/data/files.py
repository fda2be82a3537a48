"""Your own text as token windows: .txt, .jsonl or .parquet files (also gzipped), or tfds:NAME.

    python -m jaxlm.prepare_data --config=configs/data/files.py --config.files='/path/*.txt' --out=runs/mine/data
    python -m jaxlm.prepare_data --config=configs/data/files.py --config.files=tfds:lm1b --out=runs/lm1b/data

As it stands it makes what `configs/pocket/*` read: a byte-level BPE of 4,096 ids learnt from the training text and
windows of 256 tokens; a twentieth of the documents is for validation. What the study's models read:

    --config.tokenizer=gpt2 --config.seq_len=1024 --config.total_tokens=1e9

A .txt file is one document (or several, with `<|endoftext|>` between them); a line of a .jsonl file and a row of a
.parquet file is one, under the key `text` unless --config.text_column says otherwise. Fewer than 20 documents: the last
twentieth of the text is for validation.

Several sources in exact shares are a mix: configs/data/study_mix.py.

Expect 0.3 million tokens a second on 2 CPU cores, 2.5 bytes of disk a token, and 0.2 GB of memory whatever the size of
the text (and 16 bytes for each document, to find repetitions).
"""

import ml_collections

from jaxlm import config


def get_config() -> ml_collections.ConfigDict:
    data = config.prepare()
    data.source = "files"
    data.tokenizer = "train:4096"
    data.seq_len = 256
    return data
