"""What every command shares: flags, `--config=FILE[:ARG]` with dotted overrides in any position, errors, exit codes."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import inspect
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import ml_collections

from jaxlm import fields
from jaxlm.config import PrepareConfig, RunConfig
from jaxlm.errors import Interrupted, UserError
from jaxlm.study_config import StudyConfig

EXIT_OK, EXIT_FAULT, EXIT_USER = 0, 1, 2
_READERS = {RunConfig: "train, convert and size", PrepareConfig: "prepare_data", StudyConfig: "study"}


class Parser(argparse.ArgumentParser):
    """argparse without abbreviations, whose errors are UserErrors and which knows `--config` and its overrides."""

    def __init__(
        self, command: str, description: str, *, config: type | None = None, config_needed: bool = True
    ) -> None:
        super().__init__(
            prog=f"jaxlm {command}",
            description=description,
            allow_abbrev=False,
            formatter_class=argparse.ArgumentDefaultsHelpFormatter,
            add_help=False,
        )
        self.config_class, self.config_needed = config, config_needed
        self.add_argument("--help", "-h", action="store_true", help="show this and exit")
        if config is not None:
            file_help = "a file of configs/; --config.a.b=VALUE overrides a field"
            self.add_argument("--config", metavar="FILE[:ARG]", help=file_help)

    def error(self, message: str) -> NoReturn:
        raise UserError(message)

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """Flags as a namespace; with a config class, `.config` is the built, validated dataclass.

        A command that does not need one (`config_needed=False`) gets None without `--config`; the overrides are then
        its own to use: `.overrides` is what `load_config` takes, `.config_file` what was written after `--config`.

        `--help` prints and exits 0, whatever else is missing; with a `--config` it lists that file's fields too.
        """
        argv, overrides = split_overrides(list(argv))
        if "--help" in argv or "-h" in argv:
            self._print_help(argv, overrides)
            raise SystemExit(EXIT_OK)
        flags = [option for action in self._actions for option in action.option_strings]
        # Before argparse, which would rather say that the flag that was meant is missing.
        for word in argv:
            if word.startswith("--") and word.partition("=")[0] not in flags:
                raise UserError(f"unknown flag {word!r}; {fields.nearest(word.partition('=')[0], flags)}")
        if sum(word.partition("=")[0] == "--config" for word in argv) > 1:
            raise UserError("--config is given twice, allowed: one file")
        args, stray = self.parse_known_args(argv)
        if stray:
            raise UserError(f"unknown argument {stray[0]!r}, allowed: flags, as in --name=value")
        if self.config_class is None:
            if overrides:
                raise UserError(f"--config.{overrides[0][0]} is not used by this command")
        else:
            if args.config is None and self.config_needed:
                raise UserError("--config is missing, allowed: a file of configs/, as --config=configs/llama3_canon.py")
            args.config_file, args.overrides = args.config, overrides
            args.config = args.config and load_config(args.config, overrides, self.config_class)
        return args

    def _print_help(self, argv: list[str], overrides: list[tuple[str, str | None, bool]]) -> None:
        self.print_help()
        if self.config_class is None:
            return
        words = zip(argv, [*argv[1:], ""], strict=True)
        path = next((word.partition("=")[2] or after for word, after in words if word.startswith("--config")), "")
        if path:
            values = fields.to_dict(load_config(path, overrides, self.config_class))
        else:
            values = fields.defaults(self.config_class)
        print(f"\nfields of {path or 'a config'} (--config.NAME=VALUE):")
        for name, annotation, field in fields.leaves(self.config_class):
            value: Any = values
            for part in name.split("."):
                value = value[part]
            rows = {name: (annotation, value)}
            if isinstance(value, dict) and value:
                entry = fields.entry_type(annotation)
                rows = {f"{name}.{key}": (entry, item) for key, item in sorted(value.items())}
            for row, (kind, item) in rows.items():
                print(f"  {row:<28} {fields.type_name(kind):<16} {item!r:<16} {field.metadata['doc']}")


def split_overrides(argv: list[str]) -> tuple[list[str], list[tuple[str, str | None, bool]]]:
    """Takes `--config.a.b=v`, `--config.a.b v`, `--config.flag` and `--noconfig.flag` out of argv, in order.

    Returns what is left, and triples (dotted name, text or None where no value was written, negated).
    """
    rest, overrides, i = [], [], 0
    while i < len(argv):
        word = argv[i]
        i += 1
        negated = word.startswith("--noconfig.")
        if not negated and not word.startswith("--config."):
            rest.append(word)
            continue
        name, equals, text = word.removeprefix("--no" if negated else "--").removeprefix("config.").partition("=")
        if not equals and not negated and i < len(argv) and not argv[i].startswith("--"):
            text, equals = argv[i], " "
            i += 1
        overrides.append((name, text if equals else None, negated))
    return rest, overrides


def load_config(spec: str, overrides: list[tuple[str, str | None, bool]], cls: type) -> Any:
    """Reads `FILE[:ARG]`, applies the overrides and builds the frozen dataclass `cls`."""
    config = read_config_file(spec)
    if not set(config) <= set(fields.hints(cls)):
        for other, commands in _READERS.items():
            if set(config) <= set(fields.hints(other)):
                raise UserError(f"--config={spec} is a configuration of {commands}, not of this command")
    for name, text, negated in overrides:
        _override(config, cls, name, text, negated)
    return fields.build(cls, config)


def read_config_file(spec: str) -> ml_collections.ConfigDict:
    """The ConfigDict that `get_config(ARG)` of a file returns; ARG is what follows a colon."""
    path, _, arg = spec.partition(":")
    file = Path(path)
    if not file.is_file():
        have = sorted(str(p) for p in Path("configs").rglob("*.py"))
        raise UserError(f"no config file {path!r}; {fields.nearest(path, have) if have else 'run from the checkout'}")
    module_spec = importlib.util.spec_from_file_location(f"jaxlm_config_{file.stem}", file)
    if module_spec is None or module_spec.loader is None:
        raise UserError(f"--config={path} is not a Python file, allowed: a file that defines get_config()")
    module = importlib.util.module_from_spec(module_spec)
    # The file is the user's: whatever it raises is a mistake in it, told with the line.
    try:
        module_spec.loader.exec_module(module)
        get_config = getattr(module, "get_config", None)
        if get_config is None:
            raise UserError(f"--config={path} defines no get_config(), allowed: a file like those of configs/")
        if arg and not inspect.signature(get_config).parameters:
            raise UserError(f"--config={spec}: {file.name} takes no argument after the colon")
        config = get_config(arg) if arg else get_config()
    except UserError:
        raise
    except Exception as error:
        own = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
        line = error.lineno if isinstance(error, SyntaxError) else own[-1] if own else "?"
        raise UserError(f"--config={spec} fails in line {line}: {type(error).__name__}: {error}") from error
    if not isinstance(config, ml_collections.ConfigDict):
        raise UserError(f"--config={path}: get_config() returns {type(config).__name__}, allowed: a ConfigDict")
    return config.unlock()


def _override(config: ml_collections.ConfigDict, cls: type, name: str, text: str | None, negated: bool) -> None:
    annotations = {dotted: annotation for dotted, annotation, _ in fields.leaves(cls)}
    mapping = name.rpartition(".")[0]
    if (entry := fields.entry_type(annotations.get(mapping))) is not None:
        value = config.get(mapping)
        if isinstance(value, (Mapping, ml_collections.ConfigDict)):
            # The file decides which names there are: an override with another one is a misspelt one.
            annotations = {f"{mapping}.{key}": entry for key in value}
    if name not in annotations:
        raise UserError(f"--config.{name}: no such field; {fields.nearest(name, annotations)}")
    annotation = annotations[name]
    if negated and (text is not None or annotation is not bool):
        raise UserError(f"--noconfig.{name} is not understood, allowed: --config.{name}=VALUE")
    if text is None and annotation is not bool:
        raise UserError(f"--config.{name} needs a value, allowed: {fields.type_name(annotation)}")
    try:
        value = (not negated) if text is None else fields.parse(annotation, text)
    except (ValueError, OverflowError):
        raise UserError(f"--config.{name} is {text!r}, allowed: {fields.type_name(annotation)}") from None
    *sections, leaf = name.split(".")
    for part in sections:
        if part not in config:
            config[part] = ml_collections.ConfigDict()
        config = config[part]
    # ConfigDict checks types against the old value; None may become an int here, so the check is `build`'s.
    with config.ignore_type() if isinstance(config, ml_collections.ConfigDict) else contextlib.nullcontext():
        config[leaf] = value


def run(main: Callable[[Sequence[str]], None], argv: Sequence[str] | None = None) -> NoReturn:
    """Runs a command's `main(argv)` and exits: 0, 1 with a traceback, 2 with one line, 128 + n after a signal."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupted)
    try:
        main(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
        code = EXIT_OK
    except UserError as error:
        print(f"jaxlm: {' '.join(str(error).split())}", file=sys.stderr)
        code = EXIT_USER
    except (PermissionError, NotADirectoryError, IsADirectoryError) as error:
        # A path that somebody gave; no path of our own making is of the wrong kind.
        print(f"jaxlm: cannot use {error.filename!r}: {error.strerror}", file=sys.stderr)
        code = EXIT_USER
    except Interrupted as stop:
        print(f"jaxlm: {stop}; the same command goes on from there", file=sys.stderr)
        code = 128 + stop.signum
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    except BrokenPipeError:
        code = EXIT_FAULT
    except Exception:
        traceback.print_exc()
        code = EXIT_FAULT
    finally:
        if signal.getsignal(signal.SIGINT) is _interrupted:
            signal.signal(signal.SIGINT, signal.default_int_handler)
    raise SystemExit(code)


def _interrupted(signum: int, frame: FrameType | None) -> NoReturn:
    """Ctrl-C, where a command has no handler of its own. During an import the process ends at once.

    Libraries swallow an exception that is raised while they are imported, and jaxlib crashes of it.
    """
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            os._exit(128 + signum)
        frame = frame.f_back
    raise KeyboardInterrupt
