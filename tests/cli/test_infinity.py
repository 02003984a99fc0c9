"""Every option and variable of Infinity works, or is refused with what is used instead: row by row."""

import subprocess
import sys
from collections.abc import Sequence

import click
import pytest

from infinity_pool.cli.infinity import TABLE, arguments, variable, variables
from infinity_pool.cli.options import SettingOption
from infinity_pool.cli.serve import command as serve

OPTIONS = (
    *("model-id", "served-model-name", "batch-size", "revision", "trust-remote-code", "engine", "model-warmup"),
    *("vector-disk-cache", "device", "device-id", "lengths-via-tokenize", "dtype", "embedding-dtype"),
    *("pooling-method", "compile", "bettertransformer", "onnx-disable-optimize", "onnx-do-not-prefer-quantized"),
    *("preload-only", "host", "port", "url-prefix", "redirect-slash", "log-level", "permissive-cors", "api-key"),
    "proxy-root-path",
)
VARIABLES = (
    *("INFINITY_QUEUE_SIZE", "INFINITY_MAX_CLIENT_BATCH_SIZE", "INFINITY_CALIBRATION_DATASET_URL"),
    *("INFINITY_ANONYMOUS_USAGE_STATS", "INFINITY_HOME", "INFINITY_DISABLE_OPTIMUM"),
)
VALUES = {
    "--engine": ("torch", "ctranslate2", "neuron", "auto"),
    "--device": ("cpu", "cuda", "mps", "tensorrt", "auto"),
    "--dtype": ("float32", "float16", "bfloat16", "int8", "auto"),
    "--embedding-dtype": ("float32", "int8", "uint8", "binary", "ubinary"),
    "--log-level": ("critical", "error", "warning", "info", "debug"),
}


def parsed(*given: str) -> dict[str, object]:
    """Parse as `infinity serve` does, without running it."""
    context = serve.make_context("serve", ["--model", "m", *given])
    return context.params


@pytest.mark.parametrize("name", OPTIONS)
def test_each_option_is_there_or_in_the_table(name: str) -> None:
    ours = {flag for param in serve.params for flag in (*param.opts, *param.secondary_opts)}
    assert f"--{name}" in ours or name in {row.name for row in TABLE}


@pytest.mark.parametrize("name", [f"INFINITY_{name.replace('-', '_').upper()}" for name in OPTIONS] + [*VARIABLES])
def test_each_variable_is_there_or_in_the_table(name: str) -> None:
    params = [param for param in serve.params if isinstance(param, SettingOption)]
    ours = {each for param in params for each in param.envvar or ()}
    assert name in ours or name in {variable(row.name) for row in TABLE}


@pytest.mark.parametrize(("flag", "value"), [(flag, value) for flag, values in VALUES.items() for value in values])
def test_values_that_are_the_same(flag: str, value: str) -> None:
    assert value in str(parsed(flag, value)[flag[2:].replace("-", "_")])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["--engine", "optimum"], ["--engine", "onnx"]),
        (["--engine=debugengine"], ["--engine", "dummy"]),
        (["--dtype", "fp8"], ["--dtype", "float8"]),
        (["--log-level", "trace"], ["--log-level", "debug"]),
        (["--permissive-cors"], ["--cors-origin", "*"]),
        (["--no-permissive-cors"], []),
        (["--model-warmup"], []),
        (["--no-vector-disk-cache"], []),
        (["--lengths-via-tokenize"], []),
        (["--no-lengths-via-tokenize"], []),
        (["--no-bettertransformer"], []),
        (["--onnx-do-not-prefer-quantized"], []),
        (["--device-id", ""], []),
        (["--pooling-method", "auto"], []),
        (["--redirect-slash="], []),
        (["--port", "8000", "word"], ["--port", "8000", "word"]),
    ],
)
def test_options_become_ours(given: list[str], expected: list[str]) -> None:
    assert arguments([*given, "--model-id", "m"]) == [*expected, "--model-id", "m"]
    if "word" not in given:
        parsed(*given)


@pytest.mark.parametrize(
    ("given", "instead"),
    [
        (["--batch-size", "32"], "--batch-tokens"),
        (["--device", "xla"], "--engine tpu"),
        (["--device-id", "0,1"], "--device"),
        (["--pooling-method", "cls"], "`pooling`"),
        (["--vector-disk-cache"], "map()"),
        (["--onnx-disable-optimize"], "--onnx-file"),
        (["--redirect-slash", "/docs"], "/docs"),
        (["--no-model-warmup"], "--batch-tokens"),
    ],
)
def test_options_that_are_refused_name_what_is_used_instead(given: Sequence[str], instead: str) -> None:
    with pytest.raises(click.UsageError) as caught:
        arguments(given)
    assert given[0] in caught.value.message
    assert instead in caught.value.message


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"INFINITY_ENGINE": "optimum;torch;"}, {"INFINITY_ENGINE": "onnx;torch"}),
        ({"INFINITY_DTYPE": "fp8"}, {"INFINITY_DTYPE": "float8"}),
        ({"INFINITY_PERMISSIVE_CORS": "true"}, {"INFINITY_CORS_ORIGIN": "*"}),
        ({"INFINITY_PERMISSIVE_CORS": "false"}, {}),
        ({"INFINITY_QUEUE_SIZE": "5"}, {"INFINITY_MAX_QUEUE_ITEMS": "5"}),
        ({"INFINITY_QUEUE_SIZE": "5", "INFINITY_MAX_QUEUE_ITEMS": "6"}, {}),
        ({"INFINITY_MAX_CLIENT_BATCH_SIZE": "7"}, {"INFINITY_MAX_ITEMS": "7"}),
        ({"INFINITY_HOME": "/cache"}, {"INFINITY_CACHE_DIR": "/cache"}),
        ({"INFINITY_MODEL_WARMUP": "1", "INFINITY_BETTERTRANSFORMER": "false"}, {}),
        ({"INFINITY_ANONYMOUS_USAGE_STATS": "0", "INFINITY_DISABLE_OPTIMUM": "1", "DO_NOT_TRACK": "1"}, {}),
    ],
)
def test_variables_become_ours(given: dict[str, str], expected: dict[str, str]) -> None:
    assert variables(given) == expected


@pytest.mark.parametrize(
    ("name", "value", "instead"),
    [
        ("INFINITY_BATCH_SIZE", "32;64", "--batch-tokens"),
        ("INFINITY_VECTOR_DISK_CACHE", "true", "map()"),
        ("INFINITY_CALIBRATION_DATASET_URL", "https://example.org/texts", "infinity calibrate"),
    ],
)
def test_variables_that_are_refused(name: str, value: str, instead: str) -> None:
    with pytest.raises(click.UsageError) as caught:
        variables({name: value})
    assert name in caught.value.message
    assert instead in caught.value.message


@pytest.mark.parametrize(
    ("given", "environment", "told"),
    [
        (["--queue-size", "many"], {}, "'--queue-size'"),
        (["--queue-size=many"], {}, "'--queue-size'"),
        ([], {"INFINITY_QUEUE_SIZE": "many"}, "'INFINITY_QUEUE_SIZE'"),
        ([], {"INFINITY_QUEUE_SIZE": "5", "INFINITY_MAX_QUEUE_ITEMS": "many"}, "'--max-queue-items'"),
        (["--max-queue-items", "many"], {"INFINITY_QUEUE_SIZE": "5"}, "'--max-queue-items'"),
    ],
)
def test_a_wrong_value_is_told_of_by_the_name_it_was_given_by(
    given: list[str], environment: dict[str, str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.environ", environment)
    with pytest.raises(click.BadParameter) as caught:
        serve.make_context("serve", ["--model", "m", *given])
    assert caught.value.format_message().startswith(f"Invalid value for {told}")


def test_as_a_user_starts_it() -> None:
    command = [sys.executable, "-m", "infinity_pool.cli.main", "v2", "--model-id", "m", "--batch-size", "8"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 2
    assert "--batch-size 8 is not served: use --batch-tokens" in ran.stderr
