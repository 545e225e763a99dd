"""What would help: changes of training or of the cluster by their predicted gain, and the cells that would confirm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from stallpoint.base.section import Absence, Section, TableRow, TextTable, about
from stallpoint.base.statistics import SAME_WITHIN, Estimate
from stallpoint.models.answers.fits import Fits
from stallpoint.models.answers.remedies import TRAINS_OTHERWISE, RemedyVerdict
from stallpoint.questions.answers import answers
from stallpoint.questions.study_tables import CurveRows, StudyTables
from stallpoint.questions.study_words import at_count, count, series, trained
from stallpoint.text import interval, listed, number

TEXT = (
    "Predicted throughput over that predicted for training as it is, on the most workers that were measured. Helps: "
    f"the whole interval lies above a gain of {100 * SAME_WITHIN:.0f} %, as equal studies differ by about as much; "
    f"undecided: it holds {100 * SAME_WITHIN:.0f} %. At most: what the remedy avoids is taken to cost nothing "
    "afterwards. To confirm a remedy, add the lines of its cell to the study."
)
MAX_REMEDIES = 3
"""Number of remedies named."""
NO_DIFFERENCE = 1.0
"""Gain in % below which only the width of an interval around 0 is stated."""
FITS_IN_WORDS = {
    Fits.YES: "fits", Fits.NO: "does not fit", Fits.UNDECIDED: "may not fit", Fits.UNKNOWN: "unknown",
}  # fmt: skip


def section(study: StudyTables) -> Section:
    """Return a table for each curve with remedies, open for curves that are answers."""
    found = Section("remedies", "Remedies", "What would help", TEXT)
    answering = [one.curve for one in answers(study.curves)]
    others = [curve for curve in study.curves if not any(curve is one for one in answering)]
    grids = [*(_grid(curve) for curve in answering), *(_grid(curve, folded=True) for curve in others)]
    shown = tuple(grid for grid in grids if grid.rows)
    if not shown:
        nothing = "No remedy is predicted to help."
        return Section(found.name, found.title, found.group, nothing, absence=Absence.NONE_FOUND)
    return Section(found.name, found.title, found.group, TEXT, grids=shown)


def remedies(curve: CurveRows) -> list[TableRow]:
    """Return the remedies that help, may help, or would help if they fitted, in the order in which to try them."""
    rows = sorted(curve.of("remedies"), key=lambda row: int(row["rank_in_curve"]))
    return [row for row in rows if row["verdict"] not in (RemedyVerdict.NO_GAIN, RemedyVerdict.UNKNOWN)]


def _grid(curve: CurveRows, *, folded: bool = False) -> TextTable:
    rows = remedies(curve)
    sure = [row for row in rows if row["verdict"] == RemedyVerdict.HELPS][:MAX_REMEDIES]
    first = f"{named_in_words(sure[0])}, {gained_in_words(sure[0])}" if sure else "nothing is sure to help"
    counts = Counter(row["verdict"] for row in rows if row not in sure)
    more = f" ({listed([f'{many} {verdict}' for verdict, many in counts.items()])} beside)" if counts else ""
    where = f", {at_count(curve, int(rows[0]['ranks']))}" if rows else ""
    made = TextTable.of({
        "what would help": "remedy", "throughput": gained_in_words, "memory of a worker": _memory_in_words,
        "it also means": lambda row: row["also"] or "–", "verdict": "verdict",
        "node-hours to confirm": lambda row: number(row["node_hours"], 2) if row["cell"] else "–",
    }, rows, f"{trained(curve)}, {series(curve)}{where}: {first}{more}", file="models/remedies.parquet")  # fmt: skip
    return TextTable(**{**vars(made), "about": (about(curve),) * len(rows), "code": "\n".join(_cells(rows)),
                   "folded": folded})  # fmt: skip


def _cells(rows: list[TableRow]) -> Iterator[str]:
    """Yield the cells that would confirm remedies, as lines of a study."""
    cells = [row for row in rows if row["cell"]]
    if cells:
        yield "include:"
    for row in cells:
        yield f"  # {row['remedy']}"
        yield str(row["cell"]).removeprefix("include:\n").rstrip()


def helps_in_words(curve: CurveRows, limit: int = MAX_REMEDIES) -> str:
    """Return at most `limit` remedies in words, one of each kind of change."""
    if curve["withheld"]:
        return ""
    first_of_kind: dict[str, TableRow] = {}
    for row in remedies(curve):
        if row["verdict"] != RemedyVerdict.TOO_LARGE:
            first_of_kind.setdefault(row["changes"], row)
    helps = list(first_of_kind.values())
    sure = [f"{named_in_words(row)}: {gained_in_words(row)}" for row in helps if row["verdict"] == RemedyVerdict.HELPS]
    open_ = [named_in_words(row) for row in helps if row["verdict"] == RemedyVerdict.UNDECIDED]
    named = sure[:limit] or ([f"undecided whether {' or '.join(open_[:limit])}"] if open_ else [])
    return f"{'; '.join(named)} (predicted, {count(int(helps[0]['ranks']), 'worker')})" if named else ""


def named_in_words(remedy: TableRow) -> str:
    """Return ``4 × the mini-batch (a target may take more samples)``, with a remark if a remedy changes training."""
    also = str(remedy["also"])
    return f"{remedy['remedy']} ({also})" if also.startswith(TRAINS_OTHERWISE) else str(remedy["remedy"])


def gained_in_words(remedy: TableRow) -> str:
    """Return the gain in throughput: ``+60 % (55–65)``, ``at most ...``, or ``no difference within ± 15 %``."""
    gain = remedy.estimate("gain")
    if gain is None:
        return "not known"
    more = Estimate(*(100 * (end - 1) for end in gain))
    if more.low <= 0 <= more.high and abs(more.value) < NO_DIFFERENCE:
        width = max(-more.low, more.high)
        return f"no difference within ± {number(max(1.0, width), 2)} %"
    sign = "+" if more.value > 0 else ""
    return f"{'at most ' if remedy['upper_bound'] else ''}{sign}{interval(more, 1.0, ' %')}"


def _memory_in_words(remedy: TableRow) -> str:
    fits, memory = FITS_IN_WORDS[remedy["fits"]], remedy.estimate("memory")
    return f"{interval(memory, 2**-30, ' GiB')}, {fits}" if memory else fits
