"""Modules run on whatever array an engine has, also one engine after the other."""

from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from tests.tiny_models import WIDTH, pooling, save_modules, save_network
from tests.workers.conftest import load_here


def test_engines_that_are_compared_share_the_weights(tmp_path: Path) -> None:
    dense = {"in_features": WIDTH, "out_features": 8, "activation_function": "torch.nn.modules.activation.Tanh"}
    folder = save_modules(save_network("bert", tmp_path), pooling("mean"), ("Dense", dense))
    save_file({"linear.weight": torch.randn(8, WIDTH)}, folder / "2_Dense" / "model.safetensors")
    family, _ = load_here(folder)
    batch = family.collate([family.prepare(family.head("embed", {}), ["a text", "another"], {})])
    output = np.random.default_rng(0).standard_normal((*batch["input_ids"].shape, WIDTH), np.float32)
    tensors = {name: torch.from_numpy(array) for name, array in batch.items()}

    on_torch = family.reduce(torch.from_numpy(output), tensors)

    np.testing.assert_allclose(family.reduce(output, batch), on_torch.numpy(), atol=1e-6)
