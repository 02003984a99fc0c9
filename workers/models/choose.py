"""Which engine `auto` is: on the CPU, of those that give torch's vectors the fastest."""

import time
from collections.abc import Callable

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.workers.device.devices import RUNTIMES, kind_of
from infinity_pool.workers.files.cache import is_surroundings
from infinity_pool.workers.files.content import file_names, has_weights, size_of
from infinity_pool.workers.interface import Batch, Engine, Family, ModelFiles, Progress
from infinity_pool.workers.models.choices import ENGINES, engine_module
from infinity_pool.workers.networks.probes import difference, outputs, probe_batches

Choice = dict[str, str]
Converted = Callable[[str], ModelFiles]

_TOLERANCE = 1e-5  # of any number of a float32 vector, or relative to it where it is over 1
_LARGEST = 2 * 2**30  # bytes of weights; beyond, exporting takes minutes and a second copy of the disk's space
_SECONDS = 1.0  # of running all engines in turn
_QUANTISED = ("ctranslate2", "onnx")  # engines that have int8, the one nearer to float32 first


def choose(converted: Converted, family: Family, device: str, dtype: str, progress: Progress) -> Choice:
    """
    Choose, and say why.

    `converted(name)` gives the files with what that engine needs. Runs once, in a process of its own. Raises
    InvalidInput if no engine can run the model so.
    """
    if kind_of(device) in RUNTIMES:
        return {"engine": "onnx", "reason": f"onnx is the engine for {kind_of(device)}"}
    torch_files = converted("torch")
    if not has_weights(file_names(torch_files.path)):
        return {"engine": "onnx", "reason": "the model has no weights for torch"}
    if dtype == "int8":
        return _first(_QUANTISED, converted, family, device, dtype)
    if why := _only_torch(torch_files, device, dtype):
        return {"engine": "torch", "reason": why}
    rivals, refusals = _load(_rivals(), converted, family, device, dtype)
    if not rivals:
        return {"engine": "torch", "reason": "; ".join(refusals) or "no other engine is installed"}
    progress(f"comparing {', '.join(rivals)} with torch", None)
    return _race(engine_module("torch").load(torch_files, family, device, dtype), rivals, refusals, family)


def _only_torch(files: ModelFiles, device: str, dtype: str) -> str | None:
    if kind_of(device) != "cpu":
        return f"torch is the engine for {kind_of(device)}"
    if dtype not in ("auto", "float32"):
        return f"torch is the engine for {dtype}"
    size = size_of(files.path)
    return f"{size / 2**30:.1f} GiB of weights are too many to export" if size > _LARGEST else None


def _rivals() -> list[str]:
    """Name the engines whose libraries are installed, but for torch and the one that runs nothing."""
    return [name for name in ENGINES if name not in ("torch", "dummy") and _is_installed(name)]


def _is_installed(name: str) -> bool:
    try:
        engine_module(name)
    except InvalidInput:
        return False
    return True


def _first(names: tuple[str, ...], converted: Converted, family: Family, device: str, dtype: str) -> Choice:
    """Take the first engine that runs the model in a dtype that torch has not."""
    failures = []
    for name in names:
        try:
            engine_module(name).load(converted(name), family, device, dtype).close()
        except InvalidInput as error:
            failures.append(error.message)
        else:
            return {"engine": name, "reason": "; ".join([*failures, f"{name} runs {dtype}"])}
    raise InvalidInput(f"no engine here runs this model in {dtype}: {'; '.join(failures)}", param="dtype")


def _load(
    names: list[str], converted: Converted, family: Family, device: str, dtype: str
) -> tuple[dict[str, Engine], list[str]]:
    """Load those engines that take the model, and say of the others why they do not."""
    engines, refusals = {}, []
    for name in names:
        try:
            engines[name] = engine_module(name).load(converted(name), family, device, dtype)
        except InvalidInput as error:
            refusals.append(error.message)
    return engines, refusals


def _race(torch: Engine, rivals: dict[str, Engine], refusals: list[str], family: Family) -> Choice:
    batches = probe_batches(family)
    reference = outputs(torch, batches, family)
    differences: dict[str, float] = {}
    for name, engine in rivals.items():
        try:
            differences[name] = difference(outputs(engine, batches, family), reference)
        except Exception as error:
            if is_surroundings(error):
                raise
            refusals.append(f"{name} cannot run it: {error}")  # a graph that traced wrong fails in ways of its own
    equals = {name: rivals[name] for name, found in differences.items() if found <= _TOLERANCE}  # NaN is no agreement
    seconds = _time({"torch": torch, **equals}, batches, family)
    words = [_words(name, found, seconds) for name, found in differences.items()]
    return {"engine": min(seconds, key=lambda name: seconds[name]), "reason": "; ".join([*words, *refusals])}


def _words(name: str, found: float, seconds: dict[str, float]) -> str:
    differs = f"{name} differs from torch by {found:.1e}"
    if name not in seconds:
        return differs
    return f"{differs} and runs at {seconds['torch'] / seconds[name]:.1f} times its speed"


def _time(engines: dict[str, Engine], batches: list[Batch], family: Family) -> dict[str, float]:
    """Give each engine's best time for each batch, summed: what else runs on the machine slows some runs, not all."""
    if len(engines) == 1:
        return dict.fromkeys(engines, 0.0)
    best = {name: [float("inf")] * len(batches) for name in engines}
    until = time.perf_counter() + _SECONDS
    while time.perf_counter() < until:
        for place, batch in enumerate(batches):
            for name, engine in engines.items():
                start = time.perf_counter()
                engine.run(batch, family.reduce)
                best[name][place] = min(best[name][place], time.perf_counter() - start)
    return {name: sum(times) for name, times in best.items()}
