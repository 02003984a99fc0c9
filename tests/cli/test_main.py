"""The console scripts: their commands, and what they load."""

import subprocess
import sys

import pytest
from click.testing import CliRunner, Result

from infinity_pool import __version__
from infinity_pool.cli.main import command
from infinity_pool.cli.serve import command as serve


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments)


def run(*command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=60)


def test_help_names_the_commands() -> None:
    shown = invoke("--help").output
    assert all(name in shown for name in ("serve", "status", "bench"))


def test_what_each_command_is_for_is_told_in_full() -> None:
    shown = invoke("--help").output
    assert "..." not in shown.partition("Commands:")[2]
    assert "infinity serve --model" in shown


def test_the_options_of_serve_are_each_in_one_section() -> None:
    lines = invoke("serve", "--help").output.splitlines()
    flags = [line.split()[0].rstrip(",") for line in lines if line.startswith("  --")]
    known = [param.opts[0] for param in serve.params]
    assert sorted(flags) == sorted([*known, "--help"])
    assert [line for line in lines if line in ("HTTP:", "Processes, queue and log:")]
    assert flags[0] == "--model"


def test_the_version_is_that_of_the_package() -> None:
    assert __version__ in invoke("--version").output


@pytest.mark.parametrize("arguments", [("serve", "--help"), ("v2", "--help"), ("--model", "m", "--help")])
def test_serve_has_another_name_and_is_what_options_alone_mean(arguments: tuple[str, ...]) -> None:
    shown = invoke(*arguments)
    assert shown.exit_code == 0
    assert "one supervised worker per model" in " ".join(shown.output.split())


def test_an_unknown_command_is_told() -> None:
    shown = invoke("surf")
    assert shown.exit_code == 2
    assert "surf" in shown.output


@pytest.mark.parametrize("script", ["infinity_pool.cli.api", "infinity_pool.cli.worker", "infinity_pool.cli.main"])
def test_help_is_quick_since_it_loads_no_model_library(script: str) -> None:
    heavy = "{'torch', 'transformers', 'onnxruntime', 'tokenizers'}"
    program = (
        f"import sys, runpy; sys.argv = ['x', '--help']\n"
        f"try: runpy.run_module({script!r}, run_name='__main__')\n"
        f"except SystemExit: sys.exit(repr({heavy} & set(sys.modules)))"
    )
    assert run("-c", program).stderr.strip().splitlines()[-1] == "set()"


def test_a_worker_without_a_model_says_what_is_missing() -> None:
    shown = run("-m", "infinity_pool.cli.worker")
    assert shown.returncode == 2
    assert "--model" in shown.stderr
