"""TFDS builders of the study's sources of text and of the novels, as ArrayRecord, without TensorFlow.

    from jaxlm.data.builders import FinePdfs

    builder = FinePdfs(files="/path/*.parquet", data_dir="runs/tfds")    # without files: from the Hugging Face hub
    builder.download_and_prepare()
    builder.as_data_source("train")[0]["text"]

`tfds.builder_from_directory(builder.data_dir)` opens what was written, wherever it lies by then, and
`prepare_data --config.files=tfds:DIR` reads it: the same documents in the same order, so the same windows.
"""

from __future__ import annotations

from jaxlm.data.builders.text import TextBuilder

__all__ = ["Austen", "Dclm", "FinePdfs", "FinewebEdu"]


class FinePdfs(TextBuilder):
    """Text out of PDFs, half of the study's mix: its documents are long."""

    name = "finepdfs"
    FILES = "hub:codelion/finepdfs-1B"
    HOMEPAGE = "https://huggingface.co/datasets/codelion/finepdfs-1B"


class Dclm(TextBuilder):
    """Filtered web pages (DataComp-LM's baseline), three tenths of the study's mix."""

    name = "dclm"
    FILES = "hub:codelion/dclm-baseline-1B"
    HOMEPAGE = "https://huggingface.co/datasets/codelion/dclm-baseline-1B"


class FinewebEdu(TextBuilder):
    """Web pages that a classifier took for educational, a fifth of the study's mix."""

    name = "fineweb_edu"
    FILES = "hub:codelion/fineweb-edu-1B"
    HOMEPAGE = "https://huggingface.co/datasets/codelion/fineweb-edu-1B"


class Austen(TextBuilder):
    """The chapters of Jane Austen's six novels (jaxlm.data.sources.austen)."""

    name = "austen"
    FILES = "austen:r-cran-janeaustenr_*.deb"
    HOMEPAGE = "https://packages.debian.org/r-cran-janeaustenr"
