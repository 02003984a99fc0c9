"""The README's table of families has each, and what it claims of engines is what they said."""

from infinity_pool.workers.models.choices import ENGINES, FAMILIES
from tests.quality.families import BLOCK, MODELS, README


def test_every_family_is_in_the_table() -> None:
    (block,) = BLOCK.findall(README.read_text())
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()]

    assert [row[0].strip("`") for row in rows] == sorted(set(FAMILIES) - {"dummy"}) == sorted(MODELS)
    assert {column.split()[0] for column in head[1:]} == set(ENGINES) - {"dummy", "neuron", "tpu"}
    for row in rows:
        assert float(row[head.index("torch float32")]) == 1
        if (onnx := row[head.index("onnx float32")]) != "no":
            assert float(onnx) > 0.99999
