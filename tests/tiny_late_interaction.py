"""Makes tiny models that give matrices, with random weights, in folders like those of real ones."""

import json
import string
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from tests.tiny_models import ARCHITECTURES, POSITIONS, WIDTH, pooling, save_modules, save_network

PYLATE: dict[str, Any] = {
    "query_prefix": "[Q] ",
    "document_prefix": "[D] ",
    "query_length": 16,
    "document_length": 40,
    "attend_to_expansion_tokens": False,
    "do_query_expansion": True,
    "skiplist_words": list(string.punctuation),
}
DIM = 24


def network_with(kind: str, *markers: str) -> tuple[Any, Any]:
    """Give a tiny network whose tokenizer has some tokens more."""
    torch.manual_seed(0)
    network, tokenizer = ARCHITECTURES[kind]()
    tokenizer.add_tokens(list(markers), special_tokens=True)
    network.resize_token_embeddings(len(tokenizer))
    return network, tokenizer


def save_pylate(folder: Path, kind: str = "bert", **settings: Any) -> Path:
    """Write a folder as PyLate does: a network, a Dense of its own kind, and its settings."""
    network, tokenizer = network_with(kind, "[Q] ", "[D] ")
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "1_Dense").mkdir()
    save_file({"linear.weight": torch.randn(DIM, WIDTH) / 8}, folder / "1_Dense" / "model.safetensors")
    identity = "torch.nn.modules.linear.Identity"
    dense = {"in_features": WIDTH, "out_features": DIM, "bias": False, "activation_function": identity}
    (folder / "1_Dense" / "config.json").write_text(json.dumps(dense))
    kinds = {"": "sentence_transformers.models.Transformer", "1_Dense": "pylate.models.Dense.Dense"}
    modules = [{"idx": at, "name": str(at), "path": path, "type": kinds[path]} for at, path in enumerate(kinds)]
    (folder / "modules.json").write_text(json.dumps(modules))
    described = {name: value for name, value in (PYLATE | settings).items() if value is not None}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(described))
    return folder


def save_bge_m3(folder: Path, with_modules: bool = False) -> Path:
    """Write a tiny folder like the real one."""
    save_network("xlm_roberta", folder, model_max_length=POSITIONS)
    torch.save(torch.nn.Linear(WIDTH, 1).state_dict(), folder / "sparse_linear.pt")
    torch.save(torch.nn.Linear(WIDTH, DIM).state_dict(), folder / "colbert_linear.pt")
    return save_modules(folder, pooling("cls"), ("Normalize", {})) if with_modules else folder
