"""The activation functions of torch.nn that a dense layer may name, for numpy arrays and torch tensors."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from infinity_pool.broker.errors import InvalidInput

Activation = Callable[[Any], Any]


def activation(name: str) -> Activation:
    """Give the function of that class of torch.nn; raises InvalidInput if it is not served."""
    if name not in _NUMPY:
        raise InvalidInput(f"activation {name!r} is not served; {', '.join(_NUMPY)} are", param="model")

    def run(values: Any) -> Any:
        if isinstance(values, np.ndarray):
            return _NUMPY[name](values)
        import torch  # the values are its tensors, so it is loaded

        return getattr(torch.nn, name)()(values)

    return run


def _sigmoid(values: Any) -> Any:
    return 1 / (1 + np.exp(-values))


def _gelu(values: Any) -> Any:
    erf = np.vectorize(math.erf, otypes=[values.dtype])  # numpy has none; a batch has some thousand values at most
    return values * (1 + erf(values / math.sqrt(2))) / 2


_NUMPY: dict[str, Activation] = {
    "Identity": lambda values: values,
    "Tanh": np.tanh,
    "ReLU": lambda values: np.maximum(values, 0),
    "Sigmoid": _sigmoid,
    "SiLU": lambda values: values * _sigmoid(values),
    "GELU": _gelu,
}
