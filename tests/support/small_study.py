"""A small study of one curve, whose entries tests change."""

import copy
from pathlib import Path
from typing import Any

import yaml

from stallpoint.study.study import Study, expand

ROOT = Path(__file__).parents[2]
SCHEMA = yaml.safe_load((ROOT / "workflow/schemas/study.schema.yaml").read_text())
BLOCK = {
    "network": "alexnet",
    "hardware": "cpu",
    "nodes": [1, 2, 4],
    "batch": 8,
    "storage": "disk",
    "scaling": "strong",
}
CONFIG: dict[str, Any] = {
    "study": "small",
    "hardware": {"cpu": {"device": "cpu", "nodes": 4}},
    "storage": {"disk": {"path": "images", "format": "files", "generate": 16}},
    "matrix": [BLOCK],
}


def study(**changes: Any) -> Study:
    return expand({**copy.deepcopy(CONFIG), **changes}, SCHEMA)
