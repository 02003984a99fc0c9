"""Tries what could run a model, each engine and number format in a process of its own, and says how each did."""

import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import NamedTuple

from infinity_pool.broker.errors import InfinityError
from infinity_pool.broker.messages import Array
from infinity_pool.workers.device.devices import expand
from infinity_pool.workers.device.memory import most_used
from infinity_pool.workers.files.content import size_of
from infinity_pool.workers.files.licence import licence_of
from infinity_pool.workers.files.locate import locate
from infinity_pool.workers.interface import Engine, Family, Progress
from infinity_pool.workers.models.choices import ENGINES
from infinity_pool.workers.models.detect import family_of
from infinity_pool.workers.models.loading import load_model
from infinity_pool.workers.networks.probes import least_cosine, outputs, probe_batches
from infinity_pool.workers.settings import DTYPES, ModelSettings
from infinity_pool.workers.supervision.child import run_in_child

_REFERENCE = ("torch", "float32")
_REPEATS = 5


class About(NamedTuple):
    """What a model's files say before anything is loaded: `licence` as its card has it, `size` in bytes."""

    family: str
    licence: str
    size: int


class Trial(NamedTuple):
    """
    How one engine, device and number format did; `refused` says why where it cannot.

    `cosine` is the worst to torch in float32 of some texts' outputs (NaN where that did not run), `seconds` the best
    time for all of these, and `memory` what the process took of the device at most, in bytes.
    """

    engine: str
    device: str
    dtype: str
    refused: str = ""
    cosine: float = float("nan")
    seconds: float = 0.0
    memory: int = 0


class _Ran(NamedTuple):
    tasks: tuple[str, ...]
    modalities: tuple[str, ...]
    outputs: list[Array]
    seconds: float
    memory: int


def look(settings: ModelSettings, progress: Progress) -> About:
    """Find a model and say what its files tell; raises InvalidInput if it is of no family that is served."""
    files = locate(settings, progress)
    family = family_of(files, settings.family)
    return About(family, licence_of(files.path), size_of(files.path))


def combinations(settings: ModelSettings) -> list[tuple[str, str, str]]:
    """Give each engine, device and dtype that could be tried here, the one that others are compared with first."""
    engines = [name for name in ENGINES if name != "dummy"] if settings.engine == "auto" else [settings.engine]
    devices = dict.fromkeys(["cpu", *expand("auto")]) if settings.device == "auto" else expand(settings.device)
    dtypes = [name for name in DTYPES if name != "auto"] if settings.dtype == "auto" else [settings.dtype]
    found = list(product(engines, devices, dtypes))
    return sorted(found, key=lambda one: (one[0], one[2]) != _REFERENCE)


def trials(settings: ModelSettings, progress: Progress) -> Iterator[tuple[Trial, tuple[str, ...], tuple[str, ...]]]:
    """Try each combination; gives how it did, and the tasks and modalities of the model where it ran."""
    reference: list[Array] | None = None
    missing: set[str] = set()  # engines, of which one row says it
    for engine, device, dtype in combinations(settings):
        if engine in missing:
            continue
        wanted = replace(settings, engine=engine, device=device, dtype=dtype)
        try:
            ran = run_in_child(_run, wanted, device, progress=progress)
        except InfinityError as error:
            if absent(engine, error):
                missing.add(engine)
                device = dtype = "any"
            yield Trial(engine, device, dtype, refused=error.message), (), ()
            continue
        if (engine, dtype) == _REFERENCE and reference is None:
            reference = ran.outputs
        cosine = least_cosine(ran.outputs, reference) if reference else float("nan")
        yield Trial(engine, device, dtype, "", cosine, ran.seconds, ran.memory), ran.tasks, ran.modalities


def absent(engine: str, error: InfinityError) -> bool:
    """Whether an engine was refused for its library, which is then missing for every device and dtype."""
    return error.message.startswith(f"engine {engine!r} needs ")


def _run(settings: ModelSettings, device: str, progress: Progress) -> _Ran:
    loaded = load_model(settings, device, progress)
    progress("running", None)
    family = loaded.family
    found = _outputs(family, loaded.engine)
    seconds = min(_timed(family, loaded.engine) for _ in range(_REPEATS))
    loaded.engine.close()
    return _Ran(family.tasks, family.modalities, found, seconds, most_used(device))


def _outputs(family: Family, engine: Engine) -> list[Array]:
    """Prepare and run the probes."""
    return outputs(engine, probe_batches(family), family)


def _timed(family: Family, engine: Engine) -> float:
    started = time.perf_counter()
    _outputs(family, engine)
    return time.perf_counter() - started
