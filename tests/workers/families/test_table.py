"""The table of families in docs/models.md has each, and what it claims of engines is what they said."""

from infinity_pool.workers.models.choices import ENGINES, FAMILIES
from tests.quality.families import BLOCK, MODELS, PAGE


def test_every_family_is_in_the_table() -> None:
    (block,) = BLOCK.findall(PAGE.read_text())
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()]

    measured = [row for row in rows if row[1].startswith("tested on ")]
    assert {row[1].partition(" on ")[0] for row in rows} == {"tested", "untested"}
    names = [row[0].strip("`") for row in measured if row[1] == "tested on cpu"]
    assert names == sorted(set(FAMILIES) - {"dummy"}) == sorted(MODELS)
    assert {column.split()[0] for column in head[2:]} == set(ENGINES) - {"dummy", "neuron", "tpu"}
    for row in measured:
        assert float(row[head.index("torch float32")]) == 1
        if (onnx := row[head.index("onnx float32")]) != "no":
            assert float(onnx) > 0.99999
