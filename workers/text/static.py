"""
Reads static models: one vector for each token of the vocabulary, and nothing that looks at its neighbours.

They are sentence-transformers' StaticEmbedding and model2vec's, whose vectors may be shared by several tokens
(`mapping`) and weighed (`weights`). Their tokenizers are files of the `tokenizers` library and add nothing.
"""

from pathlib import Path
from typing import Any

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.workers.files.table import NETWORK, read_table
from infinity_pool.workers.interface import ModelFiles
from infinity_pool.workers.text import saved_tokenizer
from infinity_pool.workers.text.modules import Step, modules_of

_UNLIMITED = 32_768  # tokens; the reference has no limit at all


def read_static_model(files: ModelFiles, folder: Path) -> dict[str, Any]:
    """Write the tokenizer to `folder`; give the limits, the inputs and the width, as `read_text_model` does."""
    limit = saved_tokenizer.save_backend(files.network / "tokenizer.json", folder) or _UNLIMITED
    tokens, width = read_table(files.network).shape
    return {
        "auto_class": NETWORK,
        "special": False,
        "max_length": limit,
        "positions": None,
        "inputs": ["input_ids"],
        "hidden_size": width,
        "vocab_size": tokens,
        "steps": _steps(files.path),
    }


def _steps(path: Path) -> list[Step]:
    """Pool by the mean; only Normalize may follow."""
    steps: list[Step] = [{"kind": "Pooling", "number": 0, "modes": ["mean"], "include_prompt": True}]
    for number, (kind, _) in enumerate(modules_of(path)[1:], start=1):
        if not kind.endswith(".Normalize"):
            raise InvalidInput(f"module {kind!r} of {path} is not served after {NETWORK}", param="model")
        steps.append({"kind": "Normalize", "number": number})
    return steps
