"""
From one vector a token to one vector a text, as sentence-transformers' Pooling does it.

All ways but `max` are weighted sums, so their weights are made at collate, from the lengths alone, and pooling is one
matrix product that numpy and torch share. Sequences are padded on the right.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from infinity_pool.broker.messages import Array

MODES = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")


def pooling_arrays(modes: Sequence[str], mask: Array, prompts: Array | None) -> dict[str, Array]:
    """
    Give what `pool` needs besides the network's output.

    `mask` is bool [n, length]; `prompts`, int [n], says how many tokens of each text are left out. The arrays are
    float32: `pool_weights` [n, modes but max, length], and for max `pool_floor` [n, length, 1].
    """
    places = np.arange(mask.shape[1])
    kept = mask if prompts is None else mask & (places >= prompts[:, None])
    arrays = {}
    if sums := [_weights(mode, kept, places) for mode in modes if mode != "max"]:
        arrays["pool_weights"] = np.stack(sums, axis=1)
    if "max" in modes:
        arrays["pool_floor"] = np.where(kept, np.float32(0), np.float32(-np.inf))[..., None]
    return arrays


def _weights(mode: str, kept: Array, places: Array) -> Array:
    if mode == "cls":
        return np.asarray(places == kept.argmax(1)[:, None], np.float32)
    if mode == "lasttoken":
        last = len(places) - 1 - kept[:, ::-1].argmax(1)
        return np.asarray(kept & (places == last[:, None]), np.float32)
    weights = kept.astype(np.float32)
    if mode == "weightedmean":
        weights *= (places + 1).astype(np.float32)
    total = np.maximum(weights.sum(1, keepdims=True), np.float32(1e-9))
    return np.asarray(weights / (np.sqrt(total) if mode == "mean_sqrt_len_tokens" else total))


def pool(modes: Sequence[str], output: Any, arrays: Any) -> Any:
    """Pool [n, length, hidden] to [n, modes * hidden]; numpy arrays, or torch tensors on one device."""
    sums: Any = arrays["pool_weights"] @ output if "pool_weights" in arrays else None
    if "max" not in modes:
        return sums.reshape(sums.shape[0], -1)
    highest = _max(output + arrays["pool_floor"])
    column = iter(range(len(modes)))
    return _join([highest if mode == "max" else sums[:, next(column)] for mode in modes])


def _max(array: Any) -> Any:
    return array.max(1) if isinstance(array, np.ndarray) else array.amax(1)


def _join(parts: list[Any]) -> Any:
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts, axis=-1)
    import torch  # the parts are its tensors, so it is loaded

    return torch.cat(parts, dim=-1)
