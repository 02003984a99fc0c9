"""Options: one declaration, read from flags and variables, and written back for child processes."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from infinity_pool.api.settings import ApiSettings
from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.settings import CommonSettings, option, options_of
from infinity_pool.cli.bench.settings import BenchSettings
from infinity_pool.cli.dead import DeadSettings
from infinity_pool.cli.options import environment, read, read_each, settings_options, variable
from infinity_pool.cli.serve.settings import ServeSettings
from infinity_pool.cli.status import StatusSettings
from infinity_pool.workers.models.choices import ENGINES
from infinity_pool.workers.settings import ModelSettings, WorkerSettings

Values = Mapping[str, Any]
SECRET = "hush-hush"


@pytest.fixture(autouse=True)
def no_settings_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("INFINITY_"):
            monkeypatch.delenv(name)


def invoke(
    params: list[click.Parameter], use: Callable[[Values], Any], args: Sequence[str], env: Values
) -> tuple[Any, Result]:
    made: list[Any] = []
    command = click.Command("test", params=params, callback=lambda **values: made.append(use(values)))
    result = CliRunner().invoke(command, list(args), env=env)
    return (made[0] if made else None), result


def one(settings: type[Any], args: Sequence[str] = (), **env: str) -> tuple[Any, Result]:
    return invoke(settings_options(settings), lambda values: read(settings, values), args, env)


def models(args: Sequence[str] = (), **env: str) -> tuple[list[ModelSettings], Result]:
    options = settings_options(ModelSettings, repeated=options_of(ModelSettings))
    made, result = invoke(options, lambda values: read_each(ModelSettings, values, key="model"), args, env)
    return made or [], result


def test_defaults_are_those_of_the_declaration() -> None:
    made, _ = one(ApiSettings)
    assert made == ApiSettings()


def test_a_flag_wins_over_its_variable() -> None:
    made, _ = one(ApiSettings, ["--port", "1"], INFINITY_PORT="2", INFINITY_HOST="::")
    assert (made.port, made.host) == (1, "::")


def test_names_types_and_aliases_come_from_the_declaration() -> None:
    made, _ = one(WorkerSettings, ["--model-id", "m", "--max-length", "7", "--no-trust-remote-code"])
    assert (made.model, made.max_length, made.trust_remote_code) == ("m", 7, False)
    made, _ = one(WorkerSettings, ["--model", "m"], INFINITY_TRUST_REMOTE_CODE="true", INFINITY_DRAIN_TIMEOUT="1.5")
    assert (made.trust_remote_code, made.drain_timeout) == (True, 1.5)


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (["--port", "-1"], "--port"),
        (["--port", "http"], "--port"),
        (["--log-level", "loud"], "--log-level"),
        (["--timeout", "0"], "--timeout"),
    ],
)
def test_a_value_out_of_range_names_the_option(args: list[str], complaint: str) -> None:
    _, result = one(ApiSettings, args)
    assert result.exit_code == 2
    assert complaint in result.output


def test_a_bad_variable_is_named() -> None:
    _, result = one(ApiSettings, INFINITY_MAX_ITEMS="many")
    assert "INFINITY_MAX_ITEMS" in result.output


def test_the_engines_are_the_files_in_their_folder() -> None:
    assert {"torch", "onnx", "dummy"} <= set(ENGINES)
    for engine in ("auto", *ENGINES):
        made, _ = one(WorkerSettings, ["--model", "m", "--engine", engine])
        assert made.engine == engine
    _, result = one(WorkerSettings, ["--model", "m", "--engine", "steam"])
    assert result.exit_code == 2
    assert "onnx" in result.output


def test_help_tells_default_and_variable() -> None:
    _, result = one(ApiSettings, ["--help"])
    words = " ".join(result.output.split())
    assert "Port to listen on; 0: any free one. [env var: INFINITY_PORT; default: 7997; 0<=x<=65535]" in words


@pytest.mark.parametrize("args", [["--help"], ["--port", "x"], ["--nonsense"]])
def test_secrets_are_neither_in_help_nor_in_errors(args: list[str]) -> None:
    env = {"INFINITY_API_KEY": SECRET, "INFINITY_REDIS_URL": f"redis://:{SECRET}@host"}
    _, result = one(ApiSettings, args, **env)
    assert SECRET not in result.output
    assert SECRET not in repr(ApiSettings(api_key=SECRET, redis_url=env["INFINITY_REDIS_URL"]))


def test_a_kubernetes_service_variable_is_ignored_with_a_warning() -> None:
    made, result = one(ApiSettings, INFINITY_PORT="tcp://10.0.0.7:7997")
    assert made.port == ApiSettings().port
    assert result.stderr.count("INFINITY_PORT") == 1


def test_a_text_may_begin_with_tcp() -> None:
    made, result = one(ApiSettings, INFINITY_API_KEY="tcp://x")
    assert made.api_key == "tcp://x"
    assert not result.stderr


def test_one_value_is_for_all_models_and_several_go_by_position() -> None:
    made, _ = models(["--model", "a", "--model", "b", "--engine", "torch", "--engine", "onnx", "--dtype", "float16"])
    assert [(each.model, each.engine, each.dtype) for each in made] == [
        ("a", "torch", "float16"),
        ("b", "onnx", "float16"),
    ]


def test_repeated_switches_go_by_position() -> None:
    made, _ = models(["--model", "a", "--model", "b", "--no-trust-remote-code", "--trust-remote-code"])
    assert [each.trust_remote_code for each in made] == [False, True]


def test_variables_hold_values_of_several_models() -> None:
    made, _ = models(INFINITY_MODEL="a;b;", INFINITY_SERVED_MODEL_NAME=";second")
    assert [(each.model, each.served_model_name) for each in made] == [("a", ""), ("b", "second")]


def test_an_option_that_is_a_commands_own_has_a_variable_of_its_own() -> None:
    made, _ = one(DeadSettings, INFINITY_DEAD_MODEL="m", INFINITY_DEAD_DROP="1-1;2-1", INFINITY_REDIS_URL="unix:///x")
    assert (made.model, made.drop, made.redis_url) == ("m", ("1-1", "2-1"), "unix:///x")
    made, _ = one(BenchSettings, INFINITY_BENCH_MODEL="m", INFINITY_MODEL="/a/path", INFINITY_API_KEY="key")
    assert (made.model, made.api_key) == ("m", "key")


def test_no_variable_means_two_things() -> None:
    meanings: dict[str, set[str]] = {}
    kinds = (ModelSettings, ServeSettings, WorkerSettings, ApiSettings, StatusSettings, DeadSettings, BenchSettings)
    for settings in kinds:
        for name, (_, declared) in options_of(settings).items():
            for each in (name, *declared.aliases):
                meanings.setdefault(variable(each, declared), set()).add(declared.help)
    several = {name for name, helps in meanings.items() if len(helps) > 1}
    assert several == {"INFINITY_REDIS_URL", "INFINITY_API_KEY", "INFINITY_REQUIRE_MODEL"}  # their defaults differ


def test_another_name_of_a_flag_is_one_of_its_variable_too() -> None:
    made, _ = models(INFINITY_MODEL_ID="a;b")
    assert [each.model for each in made] == ["a", "b"]
    made, _ = models(INFINITY_MODEL_ID="a;b", INFINITY_MODEL="c")
    assert [each.model for each in made] == ["c"]


def test_a_flag_wins_over_a_variable_of_several_models() -> None:
    made, _ = models(["--model", "c"], INFINITY_MODEL="a;b", INFINITY_REPLICAS="3")
    assert [(each.model, each.replicas) for each in made] == [("c", 3)]


@pytest.mark.parametrize("count", [2, 4])
def test_any_other_number_of_values_is_an_error_that_names_option_and_counts(count: int) -> None:
    made, result = models(["--model", "a", "--model", "b", "--model", "c", *["--max-length", "1"] * count])
    assert result.exit_code == 2
    assert f"--max-length was given {count} times, but --model 3 times" in result.output
    assert not made


def test_what_may_be_given_several_times() -> None:
    made, _ = one(ApiSettings, ["--require-model", "a", "--require-model", "org/b"], INFINITY_REQUIRE_MODEL="c")
    assert made.require_model == ("a", "org/b")
    made, _ = one(ApiSettings, INFINITY_REQUIRE_MODEL="a;org/b")
    assert made.require_model == ("a", "org/b")


def test_a_model_is_needed() -> None:
    _, result = models()
    assert result.exit_code == 2
    assert "--model" in result.output


@pytest.mark.parametrize(
    "settings",
    [
        WorkerSettings(
            model="org/name;x", trust_remote_code=True, drain_timeout=0.1, max_length=3, redis_url="unix:///a b"
        ),
        WorkerSettings(model="m", engine="onnx", log_format="json"),
        ApiSettings(api_key="sesame ☃; 'quoted'", port=0, reuse_port=True),
        ApiSettings(require_model=("a", "org/b")),
        ServeSettings(api_processes=2, preload_only=True),
    ],
)
def test_a_child_reads_the_same_settings_from_its_environment(settings: CommonSettings) -> None:
    made, _ = one(type(settings), **environment(settings))
    assert made == settings


@dataclass(frozen=True)
class Own:
    """Settings with nothing but defaults, so that every kind is seen once."""

    text: str = option("A text.", default="x")
    number: int = option("A number.", default=3)
    part: float = option("A part.", default=0.5)
    on: bool = option("A switch.", default=True)


def test_a_switch_that_is_on_can_be_turned_off() -> None:
    made, _ = one(Own, ["--no-on"])
    assert made == Own(on=False)
    made, _ = one(Own, **environment(Own(on=False)))
    assert made == Own(on=False)


@pytest.mark.parametrize(
    ("name", "value"), [("--timeout", "nan"), ("--timeout", "inf"), ("--port", "65536"), ("--port", "-1")]
)
def test_a_number_that_cannot_be_meant_is_refused(name: str, value: str) -> None:
    _, result = one(ApiSettings, [name, value])

    assert result.exit_code == 2
    assert name in result.output


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        ({"model": " "}, "model"),
        ({"served_model_name": "a b"}, "served_model_name"),
        ({"batch_tokens": "x"}, "batch_tokens"),
    ],
)
def test_what_could_never_be_served_is_refused_before_it_is_loaded(wrong: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        ModelSettings(**{"model": "m", **wrong}).check()
    assert caught.value.param == param
