"""The six novels of Jane Austen: connected prose, in public domain, from a package of Debian's.

    apt-get download r-cran-janeaustenr    # on Debian or Ubuntu, no root needed: 1.6 MB into the present directory
    python -m jaxlm.prepare_data --config=configs/data/austen.py --out=runs/austen/data

Anywhere else the file, or the directory that `dpkg -x` or R's library made of it, is named:
--config.files=austen:/path/r-cran-janeaustenr_1.0.0-1_all.deb. It needs the package rdata (the extra `data`).

A document is a chapter, with its heading: 269 of them, 4,023,936 bytes, 55 of Emma, 48 of Mansfield Park, 31 of
Northanger Abbey, 24 of Persuasion, 61 of Pride and Prejudice, 50 of Sense and Sensibility; every twentieth is for
validation. As it stands, with a byte-level BPE of 4,096 ids: 1,070,957 tokens of 3.757 bytes, 3,945 windows of 256
tokens for training and 238 (60,829 tokens) for validation; `gzip -9` needs 3.00 bits for a validation byte, `xz -9`
2.65. data_sha256 of version 1.0.0-1: b50ee14ba0073c4b98e76187b8209d4aba8ee79d086bf877a5b427ddd8345908. With
--config.tokenizer=gpt2 --config.seq_len=1024: 992,801 tokens, 914 and 56 windows. It takes 5 seconds and 3 MB of disk.

A million tokens are few: a pocket model sees them several times, and memorises. Chapters of one novel are in both
splits, so names of persons are known; what is held out is the text.
"""

import ml_collections

from jaxlm import config


def get_config() -> ml_collections.ConfigDict:
    data = config.prepare()
    data.files = "austen:r-cran-janeaustenr_*.deb"
    data.tokenizer = "train:4096"
    data.seq_len = 256
    return data
