"""Table VI of Shi et al. 2018: AlexNet on two K80, as it is printed, and the cell that imports it."""

from typing import Any

import yaml
from small_study import ROOT, SCHEMA

from stallpoint.inputs.layer_trace import TracedIteration, from_text
from stallpoint.study.kinds.imported_kinds import ImportedTrainCell
from stallpoint.study.study import expand

TABLE_VI = ROOT / "resources/published/shi-2018-table-vi.txt"


def table_vi() -> TracedIteration:
    (iteration,) = from_text(TABLE_VI.read_text(), str(TABLE_VI))
    return iteration


def table_vi_cell(**changes: Any) -> ImportedTrainCell:
    """The run of the study of Table VI that comes with stallpoint, with its entry changed."""
    study = yaml.safe_load((ROOT / "config/studies/shi-2018-table-vi.yaml").read_text())
    study["hardware"]["k80-2gpu"]["traces"][0] |= {"files": str(TABLE_VI), **changes}
    cell, *_ = expand(study, SCHEMA).cells.values()
    assert isinstance(cell, ImportedTrainCell)
    return cell
