from pathlib import Path

import pytest

from infinity_pool.workers.files.licence import licence_of


@pytest.mark.parametrize(
    ("files", "licence"),
    [
        ({"README.md": "---\nlanguage: en\nlicense: apache-2.0\n---\nlicense: none"}, "apache-2.0"),
        ({"README.md": "---\nlicense: other\nlicense_name: 'its own'\n---"}, "its own"),
        ({"README.md": "no front matter\nlicense: mit", "LICENSE": ""}, "see its LICENSE file"),
        ({}, "not named"),
    ],
)
def test_licence(tmp_path: Path, files: dict[str, str], licence: str) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)

    assert licence_of(tmp_path) == licence
