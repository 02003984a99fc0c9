"""sentence-transformers' Router: folders in which queries and documents have modules of their own."""

from pathlib import Path

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.workers.files.locate import read_object
from infinity_pool.workers.text.modules import modules_of
from infinity_pool.workers.text.options import INPUT_TYPES

Modules = list[tuple[str, str]]
"""The type and the subfolder of each."""


def routes_of(path: Path) -> dict[str, Modules]:
    """Give the modules of each route, where a folder has a Router and nothing else; else nothing."""
    modules = modules_of(path)
    if [kind.rpartition(".")[2] for kind, _ in modules] != ["Router"]:
        return {}
    place = Path(modules[0][1])
    config = read_object(path / place / "router_config.json")
    structure, types = config.get("structure") or {}, config.get("types") or {}
    routes = {
        str(route): [(str(types.get(name)), (place / name).as_posix()) for name in names]
        for route, names in structure.items()
    }
    if any(not (path / own).resolve().is_relative_to(path.resolve()) for route in routes.values() for _, own in route):
        raise InvalidInput(f"router_config.json in {path} leads out of it", param="model")
    return routes


def check_routes(path: Path) -> None:
    """Refuse routes that are chosen by more than whether an item is a query or a document, which is the default."""
    config = read_object(path / modules_of(path)[0][1] / "router_config.json").get("parameters") or {}
    default = config.get("default_route")
    if config.get("route_mappings") or default not in (None, "document") or set(routes_of(path)) != {*INPUT_TYPES}:
        raise InvalidInput(f"the Router in {path} is no choice of query and document, the default", param="model")
