"""The rows of configs/study/paper.py at up to 1M parameters and 65,536 tokens.

    python -m jaxlm.study --config=configs/study/pocket.py --workdir=runs/pocket_study

Each row is paper.py's with a smaller model: width and head size an eighth (MobileLLM's a sixteenth), feed-forward three
quarters of that, so that rows matched to gpt2-32 stay below 1M too, layers and heads as they are. The peak rate is the
same for all and not tuned, a conversion has 16,384 tokens, and the text is documentation of installed packages.

Expected: two hours for all 110 runs on 2 CPU cores by two processes, 24 s to 5.5 minutes a run while they share the
cores; gpt2-64 alone, nothing compiled before, 2 min 56 s. 65,536 tokens are enough for the frequencies of tokens and
little else.
"""

from pathlib import Path

import ml_collections

from jaxlm import command_line
from jaxlm.config import RunConfig
from jaxlm.study import rows
from jaxlm.study_config import name_of

PAPER = Path(__file__).with_name("paper.py")

MIX = "--config=configs/data/package_docs_mix.py --config.seq_len=128 --config.validation_share=0.02"
SAME = "--config.tokenizer={data}/study_mix/tokenizer"
DATA = (
    f"study_mix: {MIX} --config.tokenizer=train:1024",
    f"vocab-16384: {MIX} --config.tokenizer=train:512",
    f"vocab-6400: {MIX} --config.tokenizer=train:320",
    f"mobilellm: {MIX} --config.tokenizer=train:640",
    f"mix-finepdfs: {MIX} --config.files=package_docs:scipy+numpy --config.weights= {SAME}",
    f"mix-dclm: {MIX} --config.files=package_docs:jax+flax+optax+treescope --config.weights= {SAME}",
    f"mix-fineweb_edu: {MIX} --config.weights= {SAME} --config.files=package_docs:"
    "orbax-checkpoint+grain+tensorflow-datasets+etils+ml-collections+absl-py",
    f"mix-40-30-30: {MIX} --config.weights=numeric=0.4,models=0.3,tools=0.3 {SAME}",
)
# Ids of the paper's rows and of these: what the tokenizer has, and for a mask what reaches a multiple of 32.
VOCABULARIES = {50_257: 1_024, 50_304: 1_056, 32_000: 640, 16_384: 512, 6_400: 320}

ALL = (
    "--config.model.max_positions=128 --config.train.seq_len=128 --config.train.batch_tokens=256 "
    "--config.train.micro_batch=0 --config.train.eval_every=64 --config.train.eval_windows=32 "
    "--config.train.save_every=1000 --config.train.tensorboard=False --config.optimizer.warmup_share=0.1 "
    "--config.execution.dtype=float32 --config.execution.remat=none --config.execution.loss_chunk=0"
)
RATE = "2e-3"  # of every row; at 5e-3 titans_mac diverges, else not tuned
OWN = {
    "gemma3": "--config.model.sliding_window=32",
    "titans_mac": "--config.model.memory_batch=36",
}


def _smaller(line: str) -> str:
    """A row of paper.py as a pocket row: the same command with more overrides, the last of which count."""
    command = line.partition(":")[2].split()
    if not command or command[0] not in (rows.TRAIN, rows.CONVERT):
        return line
    words, overrides = command_line.split_overrides(command)
    spec = next(word.removeprefix("--config=") for word in words if word.startswith("--config="))
    run: RunConfig = command_line.load_config(spec, overrides, RunConfig)
    model, part = run.model, 16 if run.model.family == "mobilellm" else 8
    # Four experts of the paper's width would be more than 1M parameters.
    feed_forward = 256 if model.family == "moe" else model.intermediate_size
    tokens = 65_536 if run.train.total_tokens >= 1_000_000_000 else 16_384
    sizes = (
        f"--config.model.vocab_size={VOCABULARIES[model.vocab_size]} "
        f"--config.model.hidden_size={model.hidden_size // part} "
        f"--config.model.intermediate_size={feed_forward * 3 // (4 * part)} "
        f"--config.model.head_dim={model.head_dim // part} --config.train.total_tokens={tokens}"
    )
    if command[0] == rows.CONVERT:
        sizes += " --config.convert.block_sizes=1,16"
    rate = f"--config.train.learning_rate={RATE}"
    return " ".join(filter(None, (line, sizes, OWN.get(name_of(line)), rate, ALL)))


def get_config() -> ml_collections.ConfigDict:
    study = command_line.read_config_file(str(PAPER))
    study.title = "The study's rows in pocket size"
    study.data = DATA
    study.rows = tuple(map(_smaller, study.rows))
    study.seeds = (0, 1)
    study.smallest, study.largest = 0, 1_000_000
    study.evaluate.tasks = ""
    study.evaluate.held_out_items = 100
    study.evaluate.controls = "length_only"
    study.evaluate.mc_samples = 4
    study.evaluate.draws = 2
    study.evaluate.mean = "held_out_passage,held_out_order,held_out_word"
    study.evaluate.truth = "held_out_word"
    study.decode.rounds = 1
    study.decode.prompt_tokens = 16
    study.decode.new_tokens = 32
    return study
