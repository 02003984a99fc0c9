"""
What follows the network in a sentence-transformers folder: pooling, dense layers, normalising.

`read_steps` turns modules.json into plain JSON values and one file of weights, once; `Steps` runs them, on numpy arrays
and on torch tensors alike.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array
from infinity_pool.workers.files.cache import reading
from infinity_pool.workers.files.locate import read_json, read_object
from infinity_pool.workers.text.activations import activation
from infinity_pool.workers.text.pooling import MODES, pool

Step = dict[str, Any]

_WEIGHTS = "steps.safetensors"
_LEGACY_MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""The older names, in the order in which their vectors are joined."""


def modules_of(path: Path) -> list[tuple[str, str]]:
    """
    Give (type, subfolder) of each module that modules.json lists; an empty list if there is no such file.

    Raises InvalidInput if it is no list of modules, or one of them is outside the model's folder.
    """
    modules = read_json(path / "modules.json") or []
    try:
        found = [(str(module["type"]), str(module.get("path", ""))) for module in modules]
    except (AttributeError, KeyError, TypeError) as error:
        raise InvalidInput(f"modules.json in {path} is no list of modules", param="model") from error
    for _, place in found:
        if not (path / place).resolve().is_relative_to(path.resolve()):
            raise InvalidInput(f"modules.json in {path} leads out of it, to {place!r}", param="model")
    return found


def read_steps(path: Path, folder: Path) -> list[Step]:
    """
    Read the modules after the network, and write their weights to `folder`.

    Raises InvalidInput on a module, a pooling mode or an activation that is not served.
    """
    steps: list[Step] = []
    weights: dict[str, Array] = {}
    for number, (kind, place) in enumerate(modules_of(path)[1:], start=1):
        name = kind.rpartition(".")[2] if kind.startswith("sentence_transformers.") else kind
        if name == "Dropout":  # nothing, outside training
            continue
        if name not in _READERS:
            raise InvalidInput(f"module {kind!r} of {path} is not served; {', '.join(_READERS)} are", param="model")
        step = {"kind": name, "number": number} | _READERS[name](read_object(path / place / "config.json"))
        if name in ("Dense", "LayerNorm"):
            own = _weights(path / place)
            weights |= {f"{number}.{key}": array for key, array in own.items()}
            step["width"] = len(next(array for key, array in own.items() if key.endswith("weight")))
        steps.append(step)
    if not steps or steps[0]["kind"] != "Pooling":
        raise InvalidInput(f"the module after the network in {path} is not Pooling, which is not served", param="model")
    if weights:
        from safetensors.numpy import save

        (folder / _WEIGHTS).write_bytes(save(weights))  # whose error on a full disk is one of the disk
    return steps


def _read_pooling(config: Step) -> Step:
    modes = config.get("pooling_mode") or [new for old, new in _LEGACY_MODES.items() if config.get(old)] or ["mean"]
    modes = [modes] if isinstance(modes, str) else list(modes)
    known = {*_LEGACY_MODES, "pooling_mode"}
    unknown = [mode for mode in modes if mode not in MODES]
    unknown += [key for key, on in config.items() if key.startswith("pooling_mode") and on and key not in known]
    if unknown:
        raise InvalidInput(f"pooling mode {unknown[0]!r} is not served; {', '.join(MODES)} are", param="model")
    return {"modes": modes, "include_prompt": bool(config.get("include_prompt", True))}


def _read_dense(config: Step) -> Step:
    name = str(config.get("activation_function", "torch.nn.Tanh"))
    activation(name.rpartition(".")[2] if name.startswith("torch.") else name)  # refuses what is not served
    _only_sentences("Dense", config)
    return {"activation": name.rpartition(".")[2], "residual": bool(config.get("use_residual"))}


def _read_normalize(config: Step) -> Step:
    _only_sentences("Normalize", config)
    return {}


def _only_sentences(kind: str, config: Step) -> None:
    for key in ("module_input_name", "module_output_name"):
        if config.get(key) not in (None, "sentence_embedding"):
            raise InvalidInput(f"{kind} on {config[key]!r} is not served, only on sentence_embedding", param="model")


_READERS = {"Pooling": _read_pooling, "Dense": _read_dense, "LayerNorm": lambda _: {}, "Normalize": _read_normalize}


def _weights(place: Path) -> dict[str, Array]:
    """Read a module's weights, as float32."""
    if (file := place / "model.safetensors").exists():
        from safetensors.torch import load_file  # numpy has no bfloat16

        tensors = load_file(file)
    elif (file := place / "pytorch_model.bin").exists():
        import torch

        tensors = torch.load(file, map_location="cpu", weights_only=True)
    else:
        raise InvalidInput(f"no model.safetensors or pytorch_model.bin in {place}", param="model")
    return {name: tensor.float().numpy() for name, tensor in tensors.items()}


class Steps:
    """
    The modules after the network, ready to run.

    Weights are read when they are first needed, so that a preprocessing process never does, and kept on the device.
    """

    def __init__(self, steps: list[Step], folder: Path, hidden_size: int) -> None:
        self._steps = steps
        self._file = folder / _WEIGHTS
        self._weights: dict[type, dict[str, Any]] = {}  # by the kind of array, as engines that are compared share them
        self.modes: list[str] = steps[0]["modes"]
        self.includes_prompt: bool = steps[0]["include_prompt"]
        self.normalizes = steps[-1]["kind"] == "Normalize"
        self._hidden_size = hidden_size
        self._widths: list[int] = [step["width"] for step in steps if "width" in step]
        self.width = self._widths[-1] if self._widths else hidden_size * len(self.modes)
        self.may_pool_by_one = len(self.modes) == 1 or not self._widths

    def width_by(self, pooling: str) -> int:
        """Give the width of vectors pooled by one mode in place of the model's own, if one is named."""
        return self._hidden_size if pooling and not self._widths else self.width

    def run(self, output: Any, batch: Any, modes: Sequence[str] = (), normalize: bool = True) -> Any:
        """
        Turn [n, length, hidden] into [n, width], pooled by the model's own modes unless others are named.

        Without `normalize`, the Normalize at the end is left out.
        """
        output = pool(modes or self.modes, output, batch)
        for step in self._steps[1:] if normalize else self._steps[1:-1]:
            output = getattr(self, f"_{step['kind'].lower()}")(output, step)
        return output

    def _dense(self, vectors: Any, step: Step) -> Any:
        layer = self._linear(vectors, step, "linear")
        dense = activation(step["activation"])(layer)
        if step["residual"]:
            dense = dense + (vectors if dense.shape == vectors.shape else self._linear(vectors, step, "residual"))
        return dense

    def _layernorm(self, vectors: Any, step: Step) -> Any:
        centred = vectors - vectors.mean(-1)[..., None]
        spread = ((centred * centred).mean(-1)[..., None] + 1e-5) ** 0.5
        return centred / spread * self._weight(vectors, step, "norm.weight") + self._weight(vectors, step, "norm.bias")

    def _normalize(self, vectors: Any, _: Step) -> Any:
        return unit(vectors)

    def _linear(self, vectors: Any, step: Step, layer: str) -> Any:
        product = vectors @ self._weight(vectors, step, f"{layer}.weight").T
        bias = self._weight(vectors, step, f"{layer}.bias")
        return product if bias is None else product + bias

    def _weight(self, like: Any, step: Step, name: str) -> Any:
        if type(like) not in self._weights:
            from safetensors.numpy import load_file

            own = np.asarray if isinstance(like, np.ndarray) else like.new_tensor
            with reading(self._file):
                arrays = load_file(self._file)
            self._weights[type(like)] = {key: own(array) for key, array in arrays.items()}
        return self._weights[type(like)].get(f"{step['number']}.{name}")


def unit(vectors: Any) -> Any:
    """Scale rows to length 1, as torch's normalize does; numpy arrays or torch tensors."""
    lengths = (vectors * vectors).sum(-1)[..., None] ** 0.5
    return vectors / lengths.clip(1e-12)
