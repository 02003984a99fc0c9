"""Each family takes the options that its table in the docs has, and refuses all others by name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers as real_transformers

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.workers.interface import Family
from infinity_pool.workers.models.choices import FAMILIES, make_family
from tests.tiny_late_interaction import save_bge_m3, save_pylate
from tests.tiny_models import pooling, save_modules, save_network, save_scorer
from tests.tiny_towers import save_clap, save_clip
from tests.tiny_vision_language import save_vision_language
from tests.workers.conftest import prepare_here
from tests.workers.families.test_causal_reranker import save_causal_reranker
from tests.workers.families.test_colpali import KINDS
from tests.workers.families.test_splade import save_masked_lm

transformers: Any = real_transformers

DOCS = Path(__file__).parents[3] / "docs" / "models.md"
VALUES: dict[str, Any] = {
    "dimensions": 4,
    "embedding_dtype": "float16",
    "input_type": "document",
    "instruction": "find it",
    "normalize": True,
    "pooling": "cls",
    "prompt": "a text: ",
    "prompt_name": "document",
    "raw_scores": True,
    "top_k": 4,
    "truncate_prompt_tokens": -1,
    "truncation_side": "left",
}
SAVES: dict[str, Callable[[Path], Any]] = {
    "sentence_transformer": lambda folder: save_modules(save_network("bert", folder), pooling("mean")),
    "splade": lambda folder: save_masked_lm("bert", folder),
    "bge_m3": save_bge_m3,
    "colbert": save_pylate,
    "clip": save_clip,
    "clap": save_clap,
    "colpali": lambda folder: KINDS[next(iter(KINDS))](folder),
    "vision_language": lambda folder: save_vision_language(folder, "qwen2_vl"),
    "cross_encoder": lambda folder: save_scorer("bert", folder),
    "classifier": lambda folder: save_scorer("bert", folder, labels=3),
    "causal_reranker": save_causal_reranker,
}


def table() -> dict[str, set[str]]:
    """Read what each family takes: a row an option, a column a family."""
    lines = DOCS.read_text().partition("<!-- options by family -->")[2].partition("\n\n")[0].strip().splitlines()
    cells = [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]
    families = cells[0][1:]
    return {name: {row[0] for row in cells[2:] if row[1 + place]} for place, name in enumerate(families)}


@pytest.fixture(scope="module", params=SAVES)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Family]:
    folder = tmp_path_factory.mktemp(request.param)
    where = SAVES[request.param](folder)
    files = prepare_here(where if isinstance(where, Path) else folder, family=request.param).files
    return request.param, make_family(request.param, files)


def test_every_family_and_every_option_is_in_the_table() -> None:
    assert table().keys() == SAVES.keys() == set(FAMILIES) - {"dummy"}
    assert set.union(*table().values()) == VALUES.keys()


@pytest.mark.parametrize("option", VALUES)
def test_an_option_is_taken_or_refused(option: str, family: tuple[str, Family]) -> None:
    name, made = family

    for task in made.tasks:
        try:
            made.head(task, {option: VALUES[option]})
        except InvalidInput as error:
            refused = error.param
        else:
            refused = None
        taken = option in table()[name]
        if not taken:
            assert refused == option
        elif len(made.tasks) == 1:
            assert refused is None
