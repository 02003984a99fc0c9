"""Finds a model's files: a local folder, a folder inside an installed package, or a repository on the hub."""

import importlib.util
import json
from pathlib import Path, PurePosixPath
from typing import Any

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.workers.interface import ModelFiles, Progress
from infinity_pool.workers.settings import ModelSettings

_PACKAGE = "package:"
_CONFIGS = (
    "config.json",
    "0_Transformer/config.json",
    "0_CLIPModel/config.json",
    "document_0_Transformer/config.json",
    "document_0_MLMTransformer/config.json",
)
"""Where the network's own is; sentence-transformers has had it in a folder of the first module."""


def locate(settings: ModelSettings, progress: Progress) -> ModelFiles:
    """
    Find what `--model` names; only a hub id may touch the network.

    Raises InvalidInput that says what was looked for and what was found, and Unavailable if the hub cannot be reached.
    """
    spec = settings.model
    if spec.startswith(_PACKAGE):
        folder = _in_package(spec)
    elif (local := Path(spec).expanduser()).exists() or _looks_local(spec):
        folder = local.absolute()
    else:
        from infinity_pool.workers.files.hub import download  # only here: huggingface_hub is slow to import

        folder = download(settings, progress)
    return ModelFiles(
        path=folder,
        config=_config(folder, spec),
        spec=spec,
        revision=settings.revision or None,
        trust_remote_code=settings.trust_remote_code,
        max_length=settings.max_length or None,
        max_image_pixels=settings.max_image_pixels,
        batch_tokens=int(settings.batch_tokens) if settings.batch_tokens.isdigit() else None,
        quantised=settings.dtype == "int8",
        onnx_file=settings.onnx_file,
        embedding_dtype=settings.embedding_dtype,
        compiled=settings.compile,
    )


def read_json(path: Path) -> Any:
    """Read one of a model's JSON files, None if it has none; raises InvalidInput if it is no JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InvalidInput(f"{path} is not JSON: {error}", param="model") from error


def read_object(path: Path) -> dict[str, Any]:
    """Read one of a model's JSON files, empty if it has none or a null; raises InvalidInput if it is no object."""
    value = read_json(path)
    if value is not None and not isinstance(value, dict):
        raise InvalidInput(f"{path} is not a JSON object", param="model")
    return value or {}


def _looks_local(spec: str) -> bool:
    return spec.startswith((".", "/", "~")) or spec.count("/") > 1


def _in_package(spec: str) -> Path:
    """Find `package:NAME/path` from where NAME is installed, without running its code."""
    name, *rest = PurePosixPath(spec.removeprefix(_PACKAGE)).parts or ("",)
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError) as error:
        raise InvalidInput(f"model {spec!r}: {name!r} is no name of a package: {error}", param="model") from error
    if found is None or not found.submodule_search_locations:
        raise InvalidInput(f"model {spec!r}: no Python package {name!r} is installed", param="model")
    return Path(found.submodule_search_locations[0], *rest).absolute()


def _config(folder: Path, spec: str) -> dict[str, Any]:
    """Read the network's config.json, which every model must have but one whose modules.json says what it is."""
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise InvalidInput(f"model {spec!r}: {folder} {what}; a folder with a config.json is needed", param="model")
    for name in _CONFIGS:
        config = read_json(folder / name)
        if isinstance(config, dict):
            return config
        if config is not None:
            raise InvalidInput(f"model {spec!r}: {name} is not a JSON object", param="model")
    if (folder / "modules.json").exists():
        return {}
    found = ", ".join(sorted(path.name for path in folder.iterdir())[:12]) or "nothing"
    raise InvalidInput(f"model {spec!r}: no config.json in {folder}, only {found}", param="model")
