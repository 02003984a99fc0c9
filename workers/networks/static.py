"""The network of a static model: a table."""

from typing import Any

import torch

from infinity_pool.workers.files.table import read_table
from infinity_pool.workers.interface import ModelFiles


class StaticEmbedding(torch.nn.Module):
    """Looks up tokens: [n, length] to ([n, length, width],)."""

    def __init__(self, table: torch.Tensor) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding.from_pretrained(table)  # type: ignore[no-untyped-call]

    def forward(self, input_ids: Any) -> tuple[Any]:
        """Give each token's vector."""
        return (self.embedding(input_ids),)


def load_static(files: ModelFiles, dtype: torch.dtype) -> torch.nn.Module:
    """Load a static model on the CPU."""
    return StaticEmbedding(torch.from_numpy(read_table(files.network)).to(dtype)).eval()
