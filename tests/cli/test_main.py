"""The command line: help that teaches, errors in one line, exit codes, quick start-up."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from nibbler.cli.main import COMMANDS, explain, main
from nibbler.cli.options import NumberList, Quantity, parse_setting

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Call:
    """Run the command in a folder of its own; the exit code, and what it wrote to stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as leaving:
            main(words)
        captured = capsys.readouterr()
        return int(leaving.value.code or 0), captured.out, captured.err

    return run


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples(call: Call, command: str) -> None:
    code, out, _ = call(command, "--help")
    assert code == 0
    assert "Examples:" in out
    assert f"nibbler {command}" in out


@pytest.mark.parametrize("command", ["list", "show", "run", "status", "keep"])
def test_every_study_command_has_help(call: Call, command: str) -> None:
    code, out, _ = call("study", command, "--help")
    assert code == 0
    assert "Usage: nibbler study" in out


def test_the_main_help_says_where_to_start(call: Call) -> None:
    code, out, _ = call("--help")
    assert code == 0
    assert "nibbler study quickstart" in out
    assert all(name in out for name in COMMANDS)


def test_version(call: Call) -> None:
    from nibbler import __version__

    assert call("--version") == (0, f"nibbler {__version__}\n", "")


@pytest.mark.parametrize(
    "words, message",
    [
        (("trian",), "there is no command 'trian'"),
        (("train", "--agent", "nobody"), "agent='nobody' is not known"),
        (("train", "--steps", "many"), "'many' is no number"),
        (("train", "--steps", "1.5"), "is not a whole number"),
        (("train", "--boards", "0"), "0 is not in the range"),
        (("train", "--set", "hidden_units"), "write it as name=value"),
        (("train", "--set", "hiden_units=3"), "nibbler has no setting 'hiden_units'; it has"),
        (("train", "--set", "hidden_units=0", "--steps", "10"), "hidden_units=0"),
        (("train", "--track", "tensorboard"), "--track needs --results"),
        (("train", "--steps", "0"), "steps is 0"),
        (("study", "show", "curve"), "there is no study 'curve'"),
        (("study", "curve"), "there is no study 'curve'"),
        (("study", "run", "nothing.toml"), "there is no study file nothing.toml"),
        (("study", "quickstart", "--size", "paper"), "has no size 'paper'"),
        (("study", "quickstart", "--runner", "cloud", "--size", "smoke"), "runner='cloud' is not known"),
        (("study", "status"), "holds no study"),
        (("report", "nowhere"), "there is no folder nowhere"),
        (("report", "."), "holds no study"),
        (("bench", "gpu"), "'gpu' is not one of"),
        (("completion", "tcsh"), "'tcsh' is not one of"),
    ],
)
def test_errors_are_one_clear_line_and_a_failing_exit_code(
    call: Call, words: tuple[str, ...], message: str
) -> None:
    code, _, err = call(*words)
    assert code != 0
    assert message in err
    assert len(err.strip().splitlines()) == 1
    assert "Traceback" not in err


def test_debug_shows_the_traceback(call: Call) -> None:
    code, _, err = call("--debug", "train", "--agent", "nobody")
    assert code == 1
    assert "Traceback" in err
    assert err.strip().splitlines()[-1].startswith("nibbler:")


def test_an_error_nobody_foresaw_names_its_kind() -> None:
    assert explain(KeyError("x")) == "KeyError: 'x' (add --debug for the traceback)"
    assert explain(ValueError("two\nlines")) == "two lines"
    missing = ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib")
    assert explain(missing) == "this needs matplotlib: pip install 'nibbler[studies]'"
    assert explain(FileNotFoundError(2, "No such file", "a.txt")) == "No such file: a.txt"


@pytest.mark.parametrize(
    "text, number",
    [("500k", 500_000), ("2M", 2_000_000), ("1e6", 10**6), ("2_000", 2000), ("1.5M", 1_500_000)],
)
def test_numbers_may_be_written_as_people_write_them(text: str, number: int) -> None:
    assert Quantity().convert(text, None, None) == number


@pytest.mark.parametrize("text", ["", "k", "1.5", "nan", "inf", "-", "2Q"])
def test_what_is_no_whole_number_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        Quantity().convert(text, None, None)


def test_lists_of_numbers() -> None:
    assert NumberList().convert("2,8,1k", None, None) == (2, 8, 1000)


@pytest.mark.parametrize(
    "text, pair",
    [
        ("hidden_units=64", ("hidden_units", 64)),
        ("step-size=1e-3", ("step_size", 0.001)),
        ("hidden_bias=true", ("hidden_bias", True)),
        ("step_size=none", ("step_size", None)),
        ("swapped_input=random", ("swapped_input", "random")),
    ],
)
def test_settings_are_read_as_what_they_are(text: str, pair: tuple[str, object]) -> None:
    assert parse_setting(text) == pair


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_ask_our_command(call: Call, shell: str) -> None:
    code, out, _ = call("completion", shell)
    assert code == 0
    assert "_NIBBLER_COMPLETE" in out


@pytest.mark.parametrize(
    "words, index, offered",
    [
        ("nibbler ", 1, "study"),
        ("nibbler study ", 2, "scaling"),
        ("nibbler study show ", 3, "inputs"),
        ("nibbler train --agent ", 3, "q-learning"),
        ("nibbler study run curves --runner ", 5, "ray"),
        ("nibbler train --engine ", 3, "cuda"),
    ],
)
def test_the_shell_is_offered_names(words: str, index: int, offered: str) -> None:
    from click.shell_completion import BashComplete

    from nibbler.cli.main import nibbler

    complete = BashComplete(nibbler, {}, "nibbler", "_NIBBLER_COMPLETE")
    found = complete.get_completions(words.split()[1:index], "")
    assert offered in [item.value for item in found]


def test_starting_up_imports_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "from nibbler.cli.main import main\n"
        "try:\n    main(['study', 'list'])\nexcept SystemExit:\n    pass\n"
        "print([m for m in ('numba', 'scipy', 'matplotlib', 'pyarrow', 'jax') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
