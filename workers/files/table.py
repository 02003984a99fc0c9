"""The table of a static model: one vector for each token of the vocabulary."""

from pathlib import Path

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array

NETWORK = "StaticEmbedding"
"""sentence-transformers' name for the module that is such a table; it stands for that of a transformers class."""

_FILE = "model.safetensors"


def read_table(network: Path) -> Array:
    """Give the vector of each token, float32 [tokens, width]; raises InvalidInput if the file has none."""
    from safetensors.numpy import load_file

    try:
        stored = load_file(network / _FILE)
    except FileNotFoundError as error:
        raise InvalidInput(f"no {_FILE} in {network}", param="model") from error
    table = stored.get("embedding.weight", stored.get("embeddings"))
    if table is None:
        raise InvalidInput(f"{network / _FILE} has no embedding.weight and no embeddings", param="model")
    if "embedding.weight" not in stored:
        table = table[stored["mapping"]] if "mapping" in stored else table
        table = table * stored["weights"][:, None] if "weights" in stored else table
    return table.astype("float32")
