"""The contract of every command: overrides anywhere, errors in one line with code 2, help that lists the fields."""

from __future__ import annotations

import argparse
import importlib
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from jaxlm import command_line
from jaxlm.__main__ import COMMANDS, module_of
from jaxlm.config import PrepareConfig, RunConfig
from jaxlm.errors import Interrupted, UserError

CONFIG = """
from jaxlm import config as jaxlm_config

def get_config(layers="2"):
    config = jaxlm_config.run()
    config.model.num_layers = int(layers)
    config.convert.block_sizes = (1, 2)
    return config
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(CONFIG)
    return path


def parse(*argv: str, config: type = RunConfig) -> argparse.Namespace:
    parser = command_line.Parser("train", "Trains.", config=config)
    parser.add_argument("--workdir")
    parser.add_argument("--json", action="store_true")
    return parser.parse(argv)


def test_two_configs_are_one_too_many(file: Path) -> None:
    with pytest.raises(UserError, match="--config is given twice, allowed: one file"):
        parse(f"--config={file}", f"--config={file}:3")


def test_overrides_may_stand_before_between_and_after(file: Path) -> None:
    argv = ["--config.seed=3", "--workdir", "w", f"--config={file}", "--config.train.total_tokens", "1e9", "--json"]
    args = parse(*argv)
    assert (args.config.seed, args.config.train.total_tokens, args.workdir, args.json) == (3, 10**9, "w", True)


def test_the_last_override_of_a_field_counts(file: Path) -> None:
    assert parse(f"--config={file}", "--config.seed=1", "--config.seed=2").config.seed == 2


def test_the_argument_after_the_colon_reaches_the_file(file: Path) -> None:
    assert parse(f"--config={file}:5").config.model.num_layers == 5
    assert parse("--config", str(file)).config.model.num_layers == 2


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (["--config.train.tensorboard"], True),
        (["--noconfig.train.tensorboard"], False),
        (["--config.train.tensorboard=false"], False),
        (["--config.train.tensorboard", "true"], True),
        (["--config.train.tensorboard", "--json"], True),
    ],
)
def test_booleans_in_all_their_forms(file: Path, words: list[str], value: bool) -> None:
    assert parse(f"--config={file}", *words).config.train.tensorboard is value


def test_fields_without_a_value_take_one_and_lose_it_again(file: Path) -> None:
    assert parse(f"--config={file}", "--config.model.mask_token_id=7").config.model.mask_token_id == 7
    again = parse(f"--config={file}", "--config.model.mask_token_id=7", "--config.model.mask_token_id=none")
    assert again.config.model.mask_token_id is None


def test_tuples_are_written_with_or_without_brackets(file: Path) -> None:
    for text in ("1,4,16", "(1, 4, 16)", "[1,4,16]"):
        assert parse(f"--config={file}", f"--config.convert.block_sizes={text}").config.convert.block_sizes == (
            1,
            4,
            16,
        )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--config.sed=1"], "--config.sed: no such field; did you mean 'seed'"),
        (["--config.model.num_layres=1"], "--config.model.num_layres: no such field; did you mean 'model.num_layers'"),
        (["--config.modle.num_layers=1"], "--config.modle.num_layers: no such field; did you mean 'model.num_layers'"),
        (["--config.learning_rate=1"], "--config.learning_rate: no such field; did you mean 'train.learning_rate'"),
        (["--config.model=1"], "--config.model: no such field"),
        (["--config.seed=one"], "--config.seed is 'one', allowed: int"),
        (["--config.seed=1.5"], "--config.seed is '1.5', allowed: int"),
        (["--config.seed"], "--config.seed needs a value, allowed: int"),
        (["--noconfig.seed"], "--noconfig.seed is not understood"),
        (["--noconfig.train.tensorboard=true"], "--noconfig.train.tensorboard is not understood"),
        (["--config.train.tensorboard=maybe"], "--config.train.tensorboard is 'maybe', allowed: bool"),
        (["--config.model.mask_token_id=x"], "--config.model.mask_token_id is 'x', allowed: int or none"),
        (["--config.convert.block_sizes=1,x"], "--config.convert.block_sizes is '1,x', allowed: tuple of int"),
        (["--config.execution.dtype=fp8"], "execution.dtype is 'fp8', allowed: 'bfloat16', 'float32'"),
        (["--config.train.total_tokens=100"], "train.total_tokens is 100, allowed: at least one batch"),
        (["--wrokdir=w"], "unknown flag '--wrokdir=w'; did you mean '--workdir'"),
        (["--work=w"], "unknown flag '--work=w'"),
        (["w"], "unknown argument 'w'"),
    ],
)
def test_a_mistake_names_what_was_typed_and_what_is_allowed(file: Path, words: list[str], message: str) -> None:
    with pytest.raises(UserError) as error:
        parse(f"--config={file}", *words)
    assert str(error.value).startswith(message)


def test_a_misspelt_flag_is_named_before_the_one_that_is_missing(file: Path) -> None:
    parser = command_line.Parser("train", "Trains.", config=RunConfig)
    parser.add_argument("--workdir", required=True)
    with pytest.raises(UserError, match="unknown flag '--wrokdir=w'; did you mean '--workdir'"):
        parser.parse([f"--config={file}", "--wrokdir=w"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("def get_config(:", "fails in line 1: SyntaxError"),
        ("x = 1\n", "defines no get_config()"),
        ("def get_config():\n    return {}\n", "get_config() returns dict, allowed: a ConfigDict"),
        ("def get_config():\n\n    return 1 / 0\n", "fails in line 3: ZeroDivisionError"),
        ("import nothing_like_this\n", "fails in line 1: ModuleNotFoundError"),
        (CONFIG.replace("num_layers", "num_layres"), "fails in line 6: AttributeError"),
    ],
)
def test_a_broken_config_file_is_named_with_the_line(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "broken.py"
    path.write_text(content)
    with pytest.raises(UserError) as error:
        parse(f"--config={path}")
    assert message in str(error.value) and str(path) in str(error.value)


def test_a_config_that_is_not_there_is_answered_with_those_like_it() -> None:
    with pytest.raises(UserError, match="no config file 'configs/lama3_canon.py'; did you mean .*llama3_canon.py"):
        parse("--config=configs/lama3_canon.py")


def test_a_config_is_asked_for_and_an_argument_it_does_not_take_is_refused(tmp_path: Path, file: Path) -> None:
    with pytest.raises(UserError, match="--config is missing"):
        parse("--workdir=w")
    plain = tmp_path / "plain.py"
    plain.write_text(CONFIG.replace('layers="2"', "").replace("int(layers)", "2"))
    with pytest.raises(UserError, match=r"plain.py takes no argument after the colon"):
        parse(f"--config={plain}:5")


def test_the_config_of_another_command_is_refused(file: Path) -> None:
    with pytest.raises(UserError, match="is a configuration of train, convert and size, not of this command"):
        parse(f"--config={file}", config=PrepareConfig)


def test_a_config_may_leave_sections_out(tmp_path: Path) -> None:
    path = tmp_path / "sparse.py"
    path.write_text("import ml_collections\n\ndef get_config():\n    return ml_collections.ConfigDict({'seed': 4})\n")
    config = parse(f"--config={path}", "--config.model.num_layers=3").config
    assert (config.seed, config.model.num_layers) == (4, 3)


def test_help_lists_flags_and_every_field_and_exits_0(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        parse(f"--config={file}", "--config.seed=5", "--help")
    assert stop.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("--workdir" in line for line in lines)
    by_name = {line.split()[0]: line.split() for line in lines if line.startswith("  ") and line.split()}
    assert by_name["seed"][1:3] == ["int", "5"]
    assert by_name["model.num_layers"][1:3] == ["int", "2"]
    assert "optimizer.weight_decay" in by_name and "convert.block_sizes" in by_name


def exit_of(main: object, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    with pytest.raises(SystemExit) as stop:
        command_line.run(main, [])  # type: ignore[arg-type]
    assert isinstance(stop.value.code, int)
    return stop.value.code, capsys.readouterr().err


def test_how_a_command_ends(capsys: pytest.CaptureFixture[str]) -> None:
    def fails(error: BaseException) -> object:
        def main(argv: object) -> None:
            raise error

        return main

    assert exit_of(lambda argv: None, capsys) == (0, "")
    assert exit_of(fails(UserError("two\nlines")), capsys) == (2, "jaxlm: two lines\n")
    code, err = exit_of(fails(NotADirectoryError(20, "Not a directory", "a/b")), capsys)
    assert (code, err) == (2, "jaxlm: cannot use 'a/b': Not a directory\n")
    code, err = exit_of(fails(Interrupted(signal.SIGTERM)), capsys)
    assert code == 143 and "SIGTERM" in err
    assert exit_of(fails(KeyboardInterrupt()), capsys)[0] == 130
    code, err = exit_of(fails(RuntimeError("ours")), capsys)
    assert code == 1 and err.startswith("Traceback") and "RuntimeError: ours" in err


def test_an_interrupt_during_an_import_ends_the_command_at_once(tmp_path: Path) -> None:
    # What jaxlib and others do with an exception at that time: it is lost, and the command would go on.
    (tmp_path / "swallows.py").write_text(
        "import signal\ntry:\n    signal.raise_signal(signal.SIGINT)\nexcept BaseException:\n    pass\n"
    )
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from jaxlm import command_line\n"
    code += "def main(argv):\n    import swallows\n    print('went on')\ncommand_line.run(main, [])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_an_interrupt_at_another_time_cleans_up(capsys: pytest.CaptureFixture[str]) -> None:
    cleaned = []

    def main(argv: object) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            cleaned.append(True)

    assert exit_of(main, capsys) == (130, "") and cleaned == [True]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def jaxlm(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", *argv], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["jaxlm.size", "--config=configs/nothing.py"], "no config file 'configs/nothing.py'"),
        (["jaxlm.size", "--config=configs/llama3_canon.py", "--config.modle.num_layers=3"], "model.num_layers"),
        (["jaxlm.size", "--config=configs/llama3_canon.py", "--config.train.total_tokens=5"], "at least one batch"),
        (["jaxlm", "trian"], "no command 'trian'; did you mean 'train'"),
    ],
)
def test_a_mistake_is_one_line_on_standard_error_and_code_2(argv: list[str], message: str) -> None:
    done = jaxlm(*argv)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("jaxlm: ") and done.stderr.count("\n") == 1 and message in done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        importlib.import_module(module_of(command)).main(["--help"])
    assert stop.value.code == 0
    assert f"usage: jaxlm {command}" in capsys.readouterr().out


def test_the_console_script_names_its_commands() -> None:
    done = jaxlm("jaxlm", "--help")
    assert done.returncode == 0 and "prepare_data" in done.stdout and done.stderr == ""
