"""Byte-level byte-pair encodings: one trained here, GPT-2's, or that of a directory.

Byte-level, because every token then has an exact number of bytes, and losses can be given per byte of text.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from jaxlm.data.gpt2 import FastGpt2, gpt2_vocabulary
from jaxlm.errors import UserError

END_OF_TEXT = "<|endoftext|>"
SMALLEST = 257  # 256 bytes and end-of-text


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-in for each byte: itself where it prints, else one of the characters from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [b for b in range(256) if b not in printable]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(hidden)}


class Tokenizer:
    """Text to token ids and back. `<|endoftext|>` ends every document; it is the only special token jaxlm uses."""

    def __init__(
        self, backend: tokenizers.Tokenizer, end_of_text: str = END_OF_TEXT, fast: FastGpt2 | None = None
    ) -> None:
        end_of_text_id = backend.token_to_id(end_of_text)
        if end_of_text_id is None:
            raise UserError(f"the tokenizer has no token {end_of_text!r}, allowed: one with an end-of-text token")
        # Text that spells a special token is text: it must not become a boundary between documents.
        backend.encode_special_tokens = True
        backend.no_truncation()
        backend.no_padding()
        self._backend, self._fast = backend, fast
        self.end_of_text = end_of_text
        self.end_of_text_id: int = end_of_text_id
        self.vocab_size: int = max(backend.get_vocab(with_added_tokens=True).values()) + 1

    @classmethod
    def train(cls, texts: Iterable[str], size: int) -> Tokenizer:
        """A byte-pair encoding of `size` ids learnt from `texts`, `<|endoftext|>` the last of them (as in GPT-2).

        The same texts give the same tokenizer. Little text may give fewer ids. Raises UserError for a size below 257.
        """
        cls.check_size(size)
        learner = tokenizers.Tokenizer(models.BPE())
        learner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = sorted(_byte_alphabet())
        learner.train_from_iterator(
            texts, trainers.BpeTrainer(vocab_size=size - 1, show_progress=False, initial_alphabet=alphabet)
        )
        model = json.loads(learner.to_str())["model"]
        merges = [(left, right) for left, right in model["merges"]]
        return cls(_backend(model["vocab"] | {END_OF_TEXT: len(model["vocab"])}, merges))

    @staticmethod
    def check_size(size: int) -> None:
        """Raises UserError for a size that `train` cannot give, before any text is read."""
        if size < SMALLEST:
            raise UserError(f"tokenizer is train:{size}, allowed: at least {SMALLEST} (256 bytes and end-of-text)")

    @classmethod
    def gpt2(cls) -> Tokenizer:
        """GPT-2's 50,257 ids. Raises UserError, naming the package to install, where its two files are not at hand."""
        vocab, merges = gpt2_vocabulary()
        alphabet = _byte_alphabet()
        ranks = {bytes(alphabet[c] for c in token): i for token, i in vocab.items() if token != END_OF_TEXT}
        try:
            fast = FastGpt2(ranks)
        except ImportError:
            fast = None
        return cls(_backend(vocab, merges), fast=fast)

    @classmethod
    def load(cls, directory: str | Path) -> Tokenizer:
        """The tokenizer of a directory with `tokenizer.json`, or GPT-2's `vocab.json` and `merges.txt`.

        The end-of-text token is the `eos_token` of `tokenizer_config.json` or `special_tokens_map.json`,
        `<|endoftext|>` without one. Raises UserError for a directory without a tokenizer, and for one that is not
        byte-level.
        """
        try:
            backend = _read_backend(Path(directory))
            eos = _read_end_of_text(Path(directory))
        except UserError:
            raise
        except Exception as error:  # the library raises Exception itself
            raise UserError(f"no tokenizer in {directory}: {str(error).splitlines()[0]}") from None
        if not _is_byte_level(json.loads(backend.to_str()).get("decoder")):
            raise UserError(
                f"the tokenizer of {directory} is not byte-level, allowed: byte-level BPE (as GPT-2's), whose tokens "
                "are bytes"
            )
        return cls(backend, eos)

    def save(self, directory: str | Path) -> None:
        """Writes the files from which transformers' AutoTokenizer (4.57 and 5) makes this tokenizer, padding left."""
        out = Path(directory)
        out.mkdir(parents=True, exist_ok=True)
        self._backend.save(str(out / "tokenizer.json"))
        special = {f"{role}_token": self.end_of_text for role in ("bos", "eos", "pad", "unk")}
        settings = special | {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_input_names": ["input_ids", "attention_mask"],
            "padding_side": "left",
            "clean_up_tokenization_spaces": False,
        }
        for name, value in (("tokenizer_config.json", settings), ("special_tokens_map.json", special)):
            (out / name).write_text(json.dumps(value, indent=2) + "\n")

    def encode(self, text: str) -> list[int]:
        """The ids of the text and no others; a special token that the text spells out is encoded letter by letter."""
        return self._backend.encode(text, add_special_tokens=False).ids

    def encode_prompt(self, text: str) -> list[int]:
        """`encode` as transformers' tokenizers do: an end-of-text token that is spelt out becomes that token.

        A tokenizer that begins every text with a token of its own does so here; ours and GPT-2's add none.
        """
        first, *rest = text.split(self.end_of_text)
        begun = self._backend.encode(first, add_special_tokens=True).ids
        return begun + [i for piece in rest for i in (self.end_of_text_id, *self.encode(piece))]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of each text: with tiktoken on one core where this is GPT-2's, else on all of them."""
        if self._fast is not None and all(map(self._fast.can_encode, texts)):
            return self._fast.encode_batch(texts)
        return [e.ids for e in self._backend.encode_batch_fast(list(texts), add_special_tokens=False)]

    @property
    def encoded_by(self) -> str:
        """The library that `encode_batch` uses."""
        return "tokenizers" if self._fast is None else "tiktoken"

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the ids, special tokens spelt out; bytes that are no character become U+FFFD."""
        return self._backend.decode([int(i) for i in ids], skip_special_tokens=False)

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The bytes of the ids, none for special tokens: exactly the bytes that `token_bytes` counts."""
        return b"".join(self._pieces[i] for i in ids)

    def token_bytes(self) -> npt.NDArray[np.int32]:
        """How many bytes of text each id stands for: int32 [vocab_size], 0 for special tokens."""
        return np.array([len(piece) for piece in self._pieces], np.int32)

    def sha256(self) -> str:
        """Of everything that decides how a text is encoded."""
        content = json.loads(self._backend.to_str()) | {"end_of_text": self.end_of_text}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    @cached_property
    def _pieces(self) -> list[bytes]:
        alphabet = _byte_alphabet()
        added = self._backend.get_added_tokens_decoder()
        pieces = [b""] * self.vocab_size
        for token, index in self._backend.get_vocab(with_added_tokens=True).items():
            if index not in added:
                pieces[index] = bytes(alphabet[c] for c in token)
            elif not added[index].special:
                pieces[index] = token.encode()
        return pieces


def _backend(vocab: dict[str, int], merges: list[tuple[str, str]]) -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([tokenizers.AddedToken(END_OF_TEXT, special=True, normalized=False)])
    return backend


def _read_backend(directory: Path) -> tokenizers.Tokenizer:
    if (file := directory / "tokenizer.json").is_file():
        return tokenizers.Tokenizer.from_file(str(file))
    vocab, merges = directory / "vocab.json", directory / "merges.txt"
    if not (vocab.is_file() and merges.is_file()):
        raise UserError(f"no tokenizer in {directory}, allowed: a directory with tokenizer.json")
    tokens: dict[str, int] = json.loads(vocab.read_text("utf-8"))
    if END_OF_TEXT not in tokens:
        raise UserError(f"{vocab} has no token {END_OF_TEXT!r}, allowed: one with an end-of-text token")
    lines = (line.partition(" ") for line in merges.read_text("utf-8").split("\n") if not line.startswith("#version"))
    return _backend(tokens, [(left, right) for left, _, right in lines if left])


def _read_end_of_text(directory: Path) -> str:
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        if (file := directory / name).is_file() and (eos := json.loads(file.read_text("utf-8")).get("eos_token")):
            return str(eos["content"] if isinstance(eos, dict) else eos)
    return END_OF_TEXT


def _is_byte_level(decoder: dict | None) -> bool:
    decoder = decoder or {}
    return decoder.get("type") == "ByteLevel" or any(map(_is_byte_level, decoder.get("decoders", [])))
