"""The README and the table of options: that is the declarations', and what people are told to type works."""

import os
import re
import subprocess
import sys
from dataclasses import MISSING
from typing import Any

import pytest

from infinity_pool.api.settings import ApiSettings
from infinity_pool.broker.settings import Option, options_of
from infinity_pool.cli.backfill.tasks.embed import Settings as EmbedSettings
from infinity_pool.cli.bench.settings import BenchSettings
from infinity_pool.cli.calibrate import CalibrateSettings
from infinity_pool.cli.dead import DeadSettings
from infinity_pool.cli.export import ExportSettings
from infinity_pool.cli.options import choices_of, flag, settings_options, variable
from infinity_pool.cli.serve.settings import ServeSettings
from infinity_pool.cli.status import StatusSettings
from infinity_pool.workers.settings import ModelSettings, WorkerSettings

from ..docker.conftest import ROOT
from .conftest import Serving

README = (ROOT / "README.md").read_text()
OPTIONS = ROOT / "docs/options.md"
COMMANDS: dict[str, tuple[type[Any], ...]] = {
    "serve": (ModelSettings, ServeSettings),
    "worker": (WorkerSettings,),
    "api": (ApiSettings,),
}
BLOCK = re.compile(r"(?<=<!-- options -->\n).*?(?=\n<!-- /options -->)", re.DOTALL)


def table() -> str:
    """Draw the table as it should be: each option once, with the commands that have it."""
    commands: dict[str, list[str]] = {}
    for command, classes in COMMANDS.items():
        for settings in classes:
            for name, (field, option) in options_of(settings).items():
                commands.setdefault(row(name, field.default, option), []).append(command)
    lines = [f"{cells} {', '.join(names)} |" for cells, names in commands.items()]
    return "\n".join(["| option | what it is | default | of |", "|---|---|---|---|", *lines])


def row(name: str, default: object, option: Option) -> str:
    names = " ".join(f"`{each}`" for each in (flag(name), *option.aliases, variable(name, option)))
    choices = f" One of {', '.join(choices_of(option))}." if option.choices else ""
    shown = "" if default in (MISSING, "", ()) else f"`{str(default).lower()}`"
    return f"| {names} | {option.help}{choices} | {shown} |"


def test_the_table_of_options_is_that_of_the_declarations() -> None:
    if os.environ.get("UPDATE_OPTIONS"):
        OPTIONS.write_text(BLOCK.sub(lambda _: table(), OPTIONS.read_text()))
    assert BLOCK.findall(OPTIONS.read_text()) == [table()], "UPDATE_OPTIONS=1 brings it up to date"


def test_every_flag_that_is_named_exists() -> None:
    classes = (
        ModelSettings,
        ServeSettings,
        WorkerSettings,
        ApiSettings,
        StatusSettings,
        DeadSettings,
        BenchSettings,
        ExportSettings,
        CalibrateSettings,
        EmbedSettings,
    )
    known = {name for settings in classes for each in settings_options(settings) for name in each.opts}
    pages = [README, *(page.read_text() for page in (OPTIONS, ROOT / "docs/requests.md"))]
    ours = "\n".join(line for page in pages for line in page.splitlines() if "docker compose" not in line)
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", ours))
    assert len(named) > 20
    assert named <= known, named - known


def test_its_links_lead_somewhere() -> None:
    for link in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / link).exists(), link


@pytest.mark.parametrize("program", re.findall(r"```python\n(.*?)```", README, re.DOTALL))
def test_its_python_runs(program: str, serving: Serving) -> None:
    here = program.replace("http://127.0.0.1:7997", serving.url).replace('"minilm"', '"dummy"')
    done = subprocess.run([sys.executable, "-c", here], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "12.0" in done.stdout or "(1, 13)" in done.stdout


def test_its_first_curl_runs(serving: Serving) -> None:
    command, *_ = re.findall(r"curl http.*?}'", README, re.DOTALL)
    here = command.replace("http://127.0.0.1:7997", serving.url).replace('"minilm"', '"dummy"')
    done = subprocess.run(["sh", "-c", here], capture_output=True, text=True, timeout=60)
    assert '"embedding":[12.0,' in done.stdout.replace(" ", "")


@pytest.fixture(scope="module")
def serving() -> Any:
    serving = Serving("--model", "dummy", "--engine", "dummy")
    yield serving.ready()
    serving.end()
