"""The example of docs/families.md is a family: with one file more, a model is served another way."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from infinity_pool.workers import families
from infinity_pool.workers.models import choices
from infinity_pool.workers.models.loading import load_model
from infinity_pool.workers.settings import ModelSettings

from ...docker.conftest import ROOT
from ..conftest import MINILM, embed, ignore_progress

TEXTS = ["hello", "a text that is longer than the one before", "two words"]


@pytest.fixture
def first_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Put the example where families are looked for."""
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "families.md").read_text(), re.DOTALL)
    (tmp_path / "first_token.py").write_text(code)
    monkeypatch.setattr(families, "__path__", [*families.__path__, str(tmp_path)])
    monkeypatch.setattr(choices, "FAMILIES", (*choices.FAMILIES, "first_token"))
    monkeypatch.setattr("infinity_pool.workers.models.loading.FAMILIES", choices.FAMILIES)
    return "first_token"


@pytest.mark.usefixtures("made_here")
@pytest.mark.parametrize("engine", ["torch", "onnx"])
def test_the_example_gives_the_first_token(first_token: str, engine: str, tmp_path: Path) -> None:
    settings = ModelSettings(model=MINILM, family=first_token, engine=engine, cache_dir=str(tmp_path / "cache"))

    loaded = load_model(settings, "cpu", ignore_progress)

    tokenizer = AutoTokenizer.from_pretrained(loaded.files.path)
    network = AutoModel.from_pretrained(loaded.files.path).eval()
    with torch.inference_mode():
        expected = [network(**tokenizer(text, return_tensors="pt"))[0][0, 0].numpy() for text in TEXTS]
    np.testing.assert_allclose(embed(loaded.family, loaded.engine, TEXTS), expected, atol=1e-5)
