"""A model's network in torch, by transformers' own classes; heavy to import, so only where torch is needed."""

import pickle
from typing import Any

import torch
import transformers
from safetensors import SafetensorError

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.workers.files.content import file_names, has_weights
from infinity_pool.workers.files.table import NETWORK
from infinity_pool.workers.interface import ModelFiles
from infinity_pool.workers.networks.static import load_static

transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
transformers.logging.disable_progress_bar()  # type: ignore[no-untyped-call]

DAMAGED_WEIGHTS = (SafetensorError, pickle.UnpicklingError, EOFError)
"""What is raised for weights that are cut off or overwritten, in either format."""


def read_config(files: ModelFiles) -> Any:
    """Read a network's configuration; raises InvalidInput if transformers does not know it."""
    options = files.extra.get("config_options", {})
    try:
        config = transformers.AutoConfig.from_pretrained(files.network, **_common(files), **options)
    except (OSError, ValueError) as error:
        raise InvalidInput(f"model {files.spec!r} cannot be loaded: {error}", param="model") from error
    config.use_cache = False  # keys and values serve generation only
    return config


def load_network(files: ModelFiles, auto_class: str, dtype: torch.dtype, **options: Any) -> Any:
    """Load a network for inference, on the CPU; raises InvalidInput if its weights are missing or do not fit."""
    if auto_class == NETWORK:
        return load_static(files, dtype)
    names = file_names(files.path)
    if not has_weights(names):
        graphs = [name for name in names if name.endswith(".onnx")]
        found = f", only {', '.join(graphs[:5])}" if graphs else ""
        raise InvalidInput(f"model {files.spec!r} has no *.safetensors or pytorch_model*.bin{found}", param="model")
    options = files.extra.get("model_options", {}) | options
    loader = getattr(transformers, auto_class)
    try:
        network, report = loader.from_pretrained(
            files.network, config=read_config(files), dtype=dtype, output_loading_info=True, **_common(files), **options
        )
    except (OSError, ValueError, *DAMAGED_WEIGHTS) as error:
        message = f"model {files.spec!r} cannot be loaded from {files.network}: {error or type(error).__name__}"
        raise InvalidInput(message, param="model") from error
    if missing := _needed(report["missing_keys"]):
        raise InvalidInput(f"model {files.spec!r} has no weights for {', '.join(missing[:5])}", param="model")
    return network.eval().requires_grad_(False)


def empty_network(files: ModelFiles, auto_class: str) -> Any:
    """Give a network without weights, to look at its parts and its inputs."""
    loader = getattr(transformers, auto_class)
    with torch.device("meta"):
        return loader.from_config(read_config(files), trust_remote_code=files.trust_remote_code).eval()


def _common(files: ModelFiles) -> dict[str, Any]:
    return {"trust_remote_code": files.trust_remote_code, "local_files_only": True}


def _needed(missing: Any) -> list[str]:
    """Leave out the pooler, which many models come without and no pooling here reads."""
    return sorted(name for name in missing if not name.startswith("pooler."))
