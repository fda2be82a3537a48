"""`generate` and `jaxlm.load` on a run of a few steps: text, JSON, stops, and what is refused."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

import jaxlm
from jaxlm import generate
from jaxlm.config import ConvertConfig, PrepareConfig, RunConfig, replace
from jaxlm.data.prepare import prepare
from jaxlm.errors import UserError
from jaxlm.fields import build
from jaxlm.generation import Selection
from jaxlm.training import loop

MODEL = {
    "family": "llama3_canon",
    "canon_set": "AC",
    "vocab_size": 320,
    "num_layers": 2,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_heads": 2,
    "num_kv_heads": 1,
    "head_dim": 8,
    "max_positions": 64,
}
TRAIN = {"total_tokens": 3 * 128, "batch_tokens": 128, "seq_len": 16, "eval_windows": 0, "tensorboard": False}


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("generate")
    text = "\n\n".join(f"Document {i} says that {i} and {i + 1} are {2 * i + 1}." for i in range(400))
    (root / "text.txt").write_text(text)
    config = PrepareConfig(files=str(root / "text.txt"), tokenizer="train:300", seq_len=16)
    prepare(config, root / "data", report=lambda text: None)
    values = {"model": MODEL, "train": TRAIN, "data": {"dir": str(root / "data")}, "execution": {"data_parallel": 1}}
    loop.train(build(RunConfig, values), root / "ar", kind="train", init_from=None)
    values |= {"objective": {"kind": "diffusion"}, "convert": {"block_sizes": (1, 4)}}
    loop.train(build(RunConfig, values), root / "diffusion", kind="convert", init_from=str(root / "ar"))
    return {"ar": root / "ar", "diffusion": root / "diffusion"}


def records(capsys, *argv: str) -> list[dict]:
    generate.main([*argv, "--json"])
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("kind", ["ar", "diffusion"])
def test_json_has_one_object_a_prompt_with_what_was_promised(kind, runs, capsys) -> None:
    argv = [
        f"--workdir={runs[kind]}",
        "--prompt=Document 3",
        "--prompt=says that 5 and",
        "--max_new_tokens=9",
        "--ignore_eos",
    ]
    together = records(capsys, *argv)
    assert [r["prompt"] for r in together] == ["Document 3", "says that 5 and"]
    trained = jaxlm.load(runs[kind])
    for record in together:
        assert set(record) == {
            *("prompt", "text", "token_ids", "num_new_tokens", "passes", "cache_passes", "tokens_per_pass"),
            *("seconds", "tokens_per_sec", "seconds_to_first_token", "seconds_to_first_pass", "changed_share"),
            *("cache_bytes", "logits_bytes"),
        }
        assert trained.tokenizer.decode(record["token_ids"]) == record["text"]
        assert record["num_new_tokens"] == 9
        assert (record["passes"], record["cache_passes"]) == ((8, 1) if kind == "ar" else (9, 0))
        assert 0 < record["seconds_to_first_pass"] <= record["seconds_to_first_token"] <= record["seconds"]
        assert record["cache_bytes"] > 0 if kind == "ar" else record["cache_bytes"] == 0
        vocab_size = trained.config.model.vocab_size
        assert record["logits_bytes"] == 4 * 2 * vocab_size * (1 if kind == "ar" else 9)
    for sampled in ([], ["--temperature=1"]):
        one_by_one, at_once = (records(capsys, *argv, *sampled, f"--batch_size={rows}") for rows in (1, 0))
        assert [r["token_ids"] for r in one_by_one] == [r["token_ids"] for r in at_once]


def test_from_python(runs) -> None:
    trained = jaxlm.load(runs["diffusion"])
    assert (trained.kind, trained.mode, trained.step) == ("convert", "diffusion", 3)
    assert trained.logits([[1, 2, 3]]).shape == (1, 3, 320)
    out = trained.generate(["Document"], max_new_tokens=6, steps=3)[0]
    assert out.decoded.passes == 3
    assert sorted(set(out.decoded.committed_at)) == [0, 1, 2]


def test_a_checkpoint_is_read_as_in_its_phase_of_the_conversion(runs) -> None:
    """Steps 1..4 of five are blocks of 4, then the window, then blocks of 8: each is another model to decode."""
    trained = jaxlm.load(runs["diffusion"])
    convert = ConvertConfig(block_sizes=(4,), warmup_share=0.4, decay_block_sizes=(8,), decay_share=0.4)
    config = replace(trained.config, train={"total_tokens": 5 * 128})
    config = dataclasses.replace(config, convert=convert)
    sizes = [dataclasses.replace(trained, config=config, step=step).structure.block_size for step in range(6)]
    assert sizes == [4, 4, 4, 0, 8, 8]
    at_the_end = dataclasses.replace(trained, config=config, step=5)
    out = at_the_end.generate(["Document"], max_new_tokens=12, steps=6)[0]
    assert len(out.decoded.token_ids) == 12


def test_a_converted_model_still_reads_from_left_to_right(runs, capsys) -> None:
    assert records(capsys, f"--workdir={runs['diffusion']}", "--mode=ar", "--prompt=Document 3")[0]["cache_passes"] == 1


def test_a_stop_string_ends_the_text_before_it(runs) -> None:
    trained = jaxlm.load(runs["ar"])
    free = trained.generate(["Document 3"], max_new_tokens=12, ignore_eos=True)[0]
    stop = free.text[len(free.text) // 2 :][:2]
    cut = trained.generate(["Document 3"], max_new_tokens=12, ignore_eos=True, stop=[stop])[0]
    assert cut.text == free.text[: free.text.index(stop)]
    assert free.token_ids[: len(cut.token_ids)] == cut.token_ids
    assert len(trained.tokenizer.decode(cut.token_ids)) >= len(cut.text)


def test_end_of_text_is_no_part_of_the_result(runs) -> None:
    trained = jaxlm.load(runs["ar"])
    free = trained.generate(["Document 3"], max_new_tokens=8, ignore_eos=True)[0]
    end = free.token_ids[3]
    object.__setattr__(trained.tokenizer, "end_of_text_id", end)
    cut = trained.generate(["Document 3"], max_new_tokens=8)[0]
    assert cut.token_ids == free.token_ids[: free.token_ids.index(end)]


def test_a_spelt_out_end_of_text_is_a_token_of_the_prompt(runs) -> None:
    trained = jaxlm.load(runs["ar"])
    assert trained.tokenizer.encode_prompt("<|endoftext|>") == [trained.tokenizer.end_of_text_id]
    assert len(trained.generate(["<|endoftext|>"], max_new_tokens=4, ignore_eos=True)[0].token_ids) == 4


def test_prompts_from_a_file(runs, tmp_path, capsys) -> None:
    (tmp_path / "prompts.txt").write_text("Document 1\nDocument 2\n")
    out = records(capsys, f"--workdir={runs['ar']}", f"--prompts_file={tmp_path / 'prompts.txt'}", "--max_new_tokens=3")
    assert [r["prompt"] for r in out] == ["Document 1", "Document 2"]


@pytest.mark.parametrize(
    ("kind", "flags", "message"),
    [
        (
            "ar",
            ["--prompt=" + "many words " * 40],
            r"a prompt of \d+ tokens .* allowed: at most model.max_positions = 64",
        ),
        ("ar", ["--prompt=a", "--steps=4"], "--steps=4 belongs to --mode=diffusion"),
        ("ar", ["--prompt=a", "--steps=0"], "--steps=0 belongs to --mode=diffusion"),
        ("ar", ["--prompt=a", "--cache=none"], "--cache=none belongs to --mode=diffusion"),
        ("diffusion", ["--prompt=a", "--cache=blocks"], "--cache is 'blocks', allowed: none, block, prefix"),
        ("diffusion", ["--prompt=a", "--cache=block"], "--cache=block of a model that sees the whole text"),
        ("diffusion", ["--prompt=a", "--remasking="], "--remasking is '', allowed: low_confidence, random"),
        ("ar", ["--prompt=a", "--threshold=0"], "--threshold=0.0 belongs to --mode=diffusion"),
        ("ar", ["--prompt=a", "--remasking=low_confidence"], "--remasking=low_confidence belongs to --mode=diffusion"),
        ("ar", ["--template=The ___."], "--template with --mode=ar: from left to right, no hole"),
        ("diffusion", ["--template=The ___.", "--mode=ar"], "--template with --mode=ar: from left to right, no hole"),
        ("ar", ["--template=The ___.", "--mode=diffusion"], "--mode=diffusion needs a mask token"),
        ("ar", ["--template=The ___.", "--prompt=a"], "--prompt and --template are both given"),
        ("ar", ["--template=The ___.", "--max_new_tokens=50"], "--max_new_tokens and --template are both given"),
        ("ar", ["--template=The ___.", "--ignore_eos"], "--ignore_eos and --template are both given"),
        ("diffusion", ["--template=The __."], "--template='The __.' has no hole, allowed: ___"),
        (
            "diffusion",
            ["--template=" + "words ___ " * 40],
            r"--template has \d+ tokens, holes included, allowed: at most",
        ),
        ("diffusion", ["--prompt=a", "--steps=4", "--threshold=1"], "--steps and --threshold are both given"),
        ("diffusion", ["--prompt=a", "--steps=4", "--entropy_bound=1"], "--steps and --entropy_bound are both given"),
        ("diffusion", ["--prompt=a", "--remasking=best"], "--remasking is 'best', allowed: low_confidence, random"),
        ("ar", ["--prompt=a", "--mode=diffusion"], "--mode=diffusion needs a mask token and this run has none"),
        ("ar", ["--prompt="], "a prompt has no tokens"),
        ("ar", ["--prompt=a", "--step=77"], "77"),
        ("ar", [], "--prompt is missing"),
        ("ar", ["--prompt=a", "--prompts_file=b"], "both given"),
        ("ar", ["--prompts_file=/nowhere"], "cannot be read"),
        ("ar", ["--prompt=a", "--top_p=2"], "--top_p is 2.0"),
        ("ar", ["--prompt=a", "--batch_size=-1"], "--batch_size is -1"),
        ("ar", ["--prompt=a", "--stop="], "--stop is empty"),
        ("diffusion", ["--prompt=a", "--steps=-3"], "--steps is -3, allowed: at least 1, or 0 for one a token"),
        ("diffusion", ["--prompt=a", "--steps=2", "--block_size=10"], "--steps is 2, allowed: at least 5"),
    ],
    ids=str,
)
def test_mistakes_are_one_line(kind, flags, message, runs) -> None:
    with pytest.raises(UserError, match=message) as caught:
        generate.main([f"--workdir={runs[kind]}", *flags])
    assert "\n" not in str(caught.value)


def test_a_directory_that_is_no_run_is_refused(tmp_path) -> None:
    with pytest.raises(UserError, match="no jaxlm workdir|not a jaxlm workdir|no such"):
        generate.main([f"--workdir={tmp_path}", "--prompt=a"])


def test_tokens_a_second_count_what_was_decoded(runs) -> None:
    out = jaxlm.load(runs["ar"]).generate(["Document 3"], max_new_tokens=5, ignore_eos=True)[0]
    record = out.record()
    assert record["tokens_per_sec"] == pytest.approx(5 / record["seconds"])
    assert np.isclose(record["tokens_per_pass"], 1.0)


def test_a_template_keeps_its_text_and_fills_its_holes(runs, capsys) -> None:
    texts = ["Document ___ says that 1_000 and ____ are one.", "___ says"]
    argv = [f"--workdir={runs['diffusion']}", *(f"--template={text}" for text in texts)]
    together = records(capsys, *argv, "--remasking=revise", "--revise_rate=0.5")
    tokenizer = jaxlm.load(runs["diffusion"]).tokenizer
    first, second = (r["token_ids"] for r in together)
    assert [r["text"] for r in together] == [
        f"Document {tokenizer.decode(first[:3])} says that 1_000 and {tokenizer.decode(first[3:])} are one.",
        f"{tokenizer.decode(second)} says",
    ]
    for text, record in zip(texts, together, strict=True):
        assert record["prompt"] == text
        assert record["passes"] == record["num_new_tokens"] == len(record["token_ids"])
        assert tokenizer.end_of_text_id not in record["token_ids"]
    alone = records(capsys, *argv, "--remasking=revise", "--revise_rate=0.5", "--batch_size=1")
    assert [r["text"] for r in alone] == [r["text"] for r in together]


def test_flags_of_a_canvas_reach_the_decoder(runs, capsys) -> None:
    argv = [f"--workdir={runs['diffusion']}", "--prompt=Document 3", "--max_new_tokens=10", "--ignore_eos"]
    trained = jaxlm.load(runs["diffusion"])
    for flags, selection in (
        (["--threshold=0.004"], Selection(threshold=0.004)),
        (["--entropy_bound=20"], Selection(entropy_bound=20)),
        (["--remasking=random"], Selection("random")),
        (["--remasking=revise", "--revise_rate=0.5"], Selection("revise", revise_rate=0.5)),
    ):
        record = records(capsys, *argv, *flags)[0]
        out = trained.generate(["Document 3"], max_new_tokens=10, ignore_eos=True, selection=selection)[0]
        assert (record["token_ids"], record["passes"]) == (out.token_ids, out.decoded.passes)
        assert record["changed_share"] == out.decoded.changed_share
    assert records(capsys, *argv, "--block_size=5", "--threshold=0")[0]["passes"] == 2
