"""The families and engines there are: one file each, and the file's name is the option's value."""

import importlib
import pkgutil
from types import ModuleType
from typing import cast

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.workers import engines, families
from infinity_pool.workers.files.cache import reading
from infinity_pool.workers.interface import EngineModule, Family, FamilyModule, ModelFiles

FAMILIES = tuple(sorted(module.name for module in pkgutil.iter_modules(families.__path__)))
ENGINES = tuple(sorted(module.name for module in pkgutil.iter_modules(engines.__path__)))


def family_module(name: str) -> FamilyModule:
    """Import workers/families/<name>.py."""
    return cast(FamilyModule, _import(families, name, FAMILIES, "family"))


def engine_module(name: str) -> EngineModule:
    """Import workers/engines/<name>.py; raises InvalidInput if there is none, or its library is not installed."""
    return cast(EngineModule, _import(engines, name, ENGINES, "engine"))


def make_family(name: str, files: ModelFiles) -> Family:
    """Make a family; light, since every preprocessing process does it; raises Damaged if its files cannot be used."""
    module = family_module(name)
    with reading(files.described):
        return module.make(files)


def _import(package: ModuleType, name: str, known: tuple[str, ...], kind: str) -> ModuleType:
    if name not in known:
        raise InvalidInput(f"no {kind} {name!r}; there are {', '.join(known)}", param=kind)
    try:
        return importlib.import_module(f"{package.__name__}.{name}")
    except ModuleNotFoundError as error:
        raise InvalidInput(f"{kind} {name!r} needs {error.name!r}, which is not installed", param=kind) from error
