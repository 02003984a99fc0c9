"""Which family a model is of: each says, from the model's own files, whether it is one of its own."""

from pathlib import PurePosixPath

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.workers.files.locate import read_json
from infinity_pool.workers.interface import ModelFiles
from infinity_pool.workers.models.choices import FAMILIES, family_module

_NONE = "dummy"


def family_of(files: ModelFiles, wanted: str) -> str:
    """Name the family that is wanted, or with "auto" the one that serves the model; raises as `detect` does."""
    if wanted == _NONE:
        raise InvalidInput(f"family {_NONE} has no network: it runs on engine {_NONE} alone", param="family")
    return detect(files) if wanted == "auto" else wanted


def detect(files: ModelFiles) -> str:
    """Name the family that serves a model; raises InvalidInput, saying what was found, if none does."""
    claims = {name: family_module(name).serves(files) for name in FAMILIES}
    if any(claims.values()):
        return max(claims, key=lambda name: claims[name])
    raise InvalidInput(
        f"model {files.spec!r} is of no family that is served ({', '.join(FAMILIES)}): it has {_found(files)}",
        param="model",
    )


def _found(files: ModelFiles) -> str:
    config, modules = files.config, read_json(files.path / "modules.json")
    parts = [
        f"architectures {', '.join(config.get('architectures') or ['none'])}",
        f"model_type {config.get('model_type', 'none')}",
    ]
    if modules:
        kinds = [PurePosixPath(str(module.get("type")).replace(".", "/")).name for module in modules]
        parts.append(f"modules {', '.join(kinds)}")
    return "; ".join(parts)
