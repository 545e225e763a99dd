"""What would help? Changes of training or cluster, by predicted gain, and cells that would confirm the gain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from stallpoint.base.section import Absence, Section, TableRow, TextTable, about
from stallpoint.base.statistics import SAME_WITHIN, Estimate
from stallpoint.models.answers.fits import Fits
from stallpoint.models.answers.remedies import TRAINS_OTHERWISE, RemedyVerdict
from stallpoint.questions.answers import answers
from stallpoint.questions.study_tables import CurveRows, StudyTables
from stallpoint.questions.study_words import at_count, count, series, training
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
    """Return the section: a table for each curve that has remedies, unfolded if the curve is an answer."""
    found = Section("remedies", "Remedies", "What would help", TEXT)
    answer_curves = [one.curve for one in answers(study.curves)]
    other_curves = [curve for curve in study.curves if not any(curve is one for one in answer_curves)]
    grids = [*(_grid(curve) for curve in answer_curves), *(_grid(curve, folded=True) for curve in other_curves)]
    shown = tuple(grid for grid in grids if grid.rows)
    if not shown:
        reason = "No remedy is predicted to help."
        return Section(found.name, found.title, found.group, reason, absence=Absence.NONE_FOUND)
    return Section(found.name, found.title, found.group, TEXT, grids=shown)


def remedies(curve: CurveRows) -> list[TableRow]:
    """Return the remedies that help, may help, or would help but exceed memory, in the order of trying them."""
    rows = sorted(curve.of("remedies"), key=lambda row: int(row["rank_in_curve"]))
    return [row for row in rows if row["verdict"] not in (RemedyVerdict.NO_GAIN, RemedyVerdict.UNKNOWN)]


def _grid(curve: CurveRows, *, folded: bool = False) -> TextTable:
    rows = remedies(curve)
    gains = [row for row in rows if row["verdict"] == RemedyVerdict.HELPS][:MAX_REMEDIES]
    first = f"{name_in_words(gains[0])}, {gain_of_remedy(gains[0])}" if gains else "nothing is sure to help"
    counts = Counter(row["verdict"] for row in rows if row not in gains)
    rest = f" ({listed([f'{many} {verdict}' for verdict, many in counts.items()])} beside)" if counts else ""
    where = f", {at_count(curve, int(rows[0]['ranks']))}" if rows else ""
    table = TextTable.of({
        "what would help": "remedy", "throughput": gain_of_remedy, "memory of a worker": _memory_in_words,
        "it also means": lambda row: row["also"] or "–", "verdict": "verdict",
        "node-hours to confirm": lambda row: number(row["node_hours"], 2) if row["cell"] else "–",
    }, rows, f"{training(curve)}, {series(curve)}{where}: {first}{rest}", file="models/remedies.parquet")  # fmt: skip
    return TextTable(**{**vars(table), "about": (about(curve),) * len(rows), "code": "\n".join(_cells(rows)),
                   "folded": folded})  # fmt: skip


def _cells(rows: list[TableRow]) -> Iterator[str]:
    """Yield the lines of a study with the cells that would confirm the remedies."""
    cells = [row for row in rows if row["cell"]]
    if cells:
        yield "include:"
    for row in cells:
        yield f"  # {row['remedy']}"
        yield str(row["cell"]).removeprefix("include:\n").rstrip()


def remedies_in_words(curve: CurveRows, limit: int = MAX_REMEDIES) -> str:
    """Return in words at most `limit` remedies, each of another kind of change."""
    if curve["withheld"]:
        return ""
    first_remedies: dict[str, TableRow] = {}
    for row in remedies(curve):
        if row["verdict"] != RemedyVerdict.TOO_LARGE:
            first_remedies.setdefault(row["changes"], row)
    found = list(first_remedies.values())
    gains = [f"{name_in_words(row)}: {gain_of_remedy(row)}" for row in found if row["verdict"] == RemedyVerdict.HELPS]
    options = [name_in_words(row) for row in found if row["verdict"] == RemedyVerdict.UNDECIDED]
    named = gains[:limit] or ([f"undecided whether {' or '.join(options[:limit])}"] if options else [])
    return f"{'; '.join(named)} (predicted, {count(int(found[0]['ranks']), 'worker')})" if named else ""


def name_in_words(remedy: TableRow) -> str:
    """Return a remedy's name, ``4 × the mini-batch``. If it changes training, a remark follows in parentheses."""
    remark = str(remedy["also"])
    return f"{remedy['remedy']} ({remark})" if remark.startswith(TRAINS_OTHERWISE) else str(remedy["remedy"])


def gain_of_remedy(remedy: TableRow) -> str:
    """Return the gain in throughput: ``+60 % (55–65)``, ``at most ...``, or ``no difference within ± 15 %``."""
    gain = remedy.estimate("gain")
    if gain is None:
        return "not known"
    change = Estimate(*(100 * (end - 1) for end in gain))
    if change.low <= 0 <= change.high and abs(change.value) < NO_DIFFERENCE:
        width = max(-change.low, change.high)
        return f"no difference within ± {number(max(1.0, width), 2)} %"
    sign = "+" if change.value > 0 else ""
    return f"{'at most ' if remedy['upper_bound'] else ''}{sign}{interval(change, 1.0, ' %')}"


def _memory_in_words(remedy: TableRow) -> str:
    fits, memory = FITS_IN_WORDS[remedy["fits"]], remedy.estimate("memory")
    return f"{interval(memory, 2**-30, ' GiB')}, {fits}" if memory else fits
