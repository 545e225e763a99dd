"""The papers' claims on the papers' own printed numbers: each claim that a number supports holds, and is shown so.

That the studies which come along decide every claim is tests/unit/project/test_reachability.py's to find.
"""

from collections.abc import Sequence
from dataclasses import replace
from html import escape
from pathlib import Path

import pytest
from published_claims import published
from test_claims_language import documented

from stallpoint.base.section import Absence, Section
from stallpoint.questions.claims.claim_files import OWN, claim_files, own_claims, read_claims
from stallpoint.questions.claims.judge import HOLDS, UNCLEAR, UNTESTED, JudgedClaim, judge
from stallpoint.questions.claims.judge import rows as claim_rows
from stallpoint.questions.claims_question import section
from stallpoint.questions.study_tables import StudyTables
from stallpoint.report.html import part
from stallpoint.study.configuration import PAPERS

SHIPPED = sorted(map(str, (Path(__file__).parents[3] / "resources/claims").glob("*.yaml")))
PICTURE = "the figure is a picture, the text gives no number"
WORDS = "the text says it in words, without a number"
WAIVED = {
    # Keuper & Pfreundt (2016)
    "shallow-reaches-communication-first": "4 to 8 nodes are given for both networks together (section II, Fig. 3)",
    "shallow-scales-worse-than-deep": PICTURE,  # Fig. 1
    "faster-compute-units-idle-more": WORDS,
    "binary-tree-moves-the-crossing-little": "a small factor, without a number (section II-A)",
    "fewer-bytes-move-the-stall-by-their-factor": "the factor by which it moves, without the nodes (section II-A)",
    "eight-bits-move-the-stall-by-their-factor": "the factor by which it moves, without the nodes (section II-A)",
    "sixteen-bits-move-the-stall-by-their-factor": "the factor by which it moves, without the nodes (section II-A)",
    "sparse-gradients-move-the-stall": WORDS,
    "factors-move-the-stall": WORDS,
    "lrn-dominates-on-cpus": PICTURE,  # Fig. 5
    "free-communication-is-not-linear": PICTURE,  # Fig. 4
    "free-communication-stalls-beyond-8-nodes": "8 nodes, b < 32, but not the gain there (section III-C, Fig. 4)",
    "fully-connected-poor-below-64": PICTURE,  # Fig. 7
    "other-layers-scale-linearly": PICTURE,  # Fig. 7
    "fully-connected-share-grows": PICTURE,  # Figs. 5 and 6
    "fully-connected-better-on-gpu": "32 times on the GPU, but no number for the CPU (section III-A)",
    "fully-connected-stalls-on-gpu-below-32": "32 times at 256 nodes, but no number at b = 32 (section III-A)",
    "sgemm-has-the-shape-of-free-communication": PICTURE,  # Figs. 4 and 9
    "degenerate-products-are-slow": PICTURE,  # Fig. 9
    "stopping-early-is-as-fast": WORDS,
    "non-scaling-layers-scale-poorly": PICTURE,  # Fig. 8
    "non-scaling-layers-stall-beyond-32": "shares on one node, and no iteration on more than 32 (section III-D)",
    "shared-storage-lets-compute-idle": PICTURE,  # Fig. 13
    "small-files-are-slow-at-random": WORDS,
    # Shi et al. (2018)
    "wfbp-hides-communication": WORDS,
    "communication-after-backward-is-not-hidden": WORDS,
    "wfbp-exposes-less-than-naive": WORDS,
    "hiding-improves-scaling": WORDS,
    "caffe-mpi-scales-best": PICTURE,  # Fig. 3
    "reading-ahead-hides-io": WORDS,
    "reading-ahead-into-the-gpu-needs-memory": WORDS,
    "alexnet-is-io-bound": "Table VI is of the K80 cluster; of the V100 cluster no time of the data is given",
    "googlenet-and-resnet-wait-for-no-data": WORDS,
    "decoding-costs-scaling": PICTURE,  # Fig. 2
    "alexnet-scales-worse-than-linear": PICTURE,  # Fig. 3
    "googlenet-and-resnet-scale-nearly-linearly": PICTURE,  # Fig. 3
    "alexnet-cannot-hide-communication": WORDS,
    "slow-gpus-scale-better": PICTURE,  # Figs. 2 and 3
    "one-node-scales-well": PICTURE,  # Fig. 2; up to 95 %, of whichever framework and network
    "fast-gpus-scale-worse-in-one-node": PICTURE,  # Fig. 2
    "decoding-frameworks-scale-alexnet-worse": PICTURE,  # Fig. 2
    "tensorflow-scales-resnet-worst": PICTURE,  # Fig. 3
    "fast-gpus-compute-ten-times-as-fast": "about 10 times, without the times (section V-C1)",
    # Serebryakov (2017)
    "weak-scaling-is-easier": WORDS,
    "strong-scaling-loses-efficiency": WORDS,
    "weak-scaling-keeps-efficiency": WORDS,
    "large-effective-batches-converge-worse": WORDS,
    # Shallue et al. (2019)
    "small-batches-scale-perfectly": PICTURE,  # Fig. 1
    "beyond-some-batch-nothing-is-gained": PICTURE,  # Fig. 1
    # McCandlish et al. (2018)
    "noise-predicts-the-critical-batch": WORDS,
    "noise-grows-during-training": WORDS,
    "steps-follow-one-law": PICTURE,
    # Fernandez et al. (2025)
    "throughput-per-device-falls": WORDS,
    "node-hours-grow-with-nodes": WORDS,
    # the survey
    "averaging-less-often-costs-accuracy": WORDS,
    "asynchronous-sgd-is-fastest": WORDS,
    "staleness-equals-workers": WORDS,
    "communication-grows-with-workers": WORDS,
    "slowest-worker-decides": WORDS,
    "downpour-survives-failures": WORDS,
    "parameter-server-saturates": WORDS,
    "split-layers-communicate-much": WORDS,
    "ring-almost-doubles-the-speed": "almost doubling, without the number",
}
"""Claims that no number printed in their paper reaches, and why."""


@pytest.fixture(scope="module")
def judged() -> dict[str, JudgedClaim]:
    claims = read_claims(claim_files([PAPERS], SHIPPED))
    return {
        one.claim.id: one
        for paper, tables in published().items()
        for one in judge([claim for claim in claims if claim.paper == paper], tables)
    }


def test_every_paper_has_its_own_numbers(judged: dict[str, JudgedClaim]) -> None:
    assert set(judged) == {claim.id for claim in read_claims(claim_files([PAPERS], SHIPPED))}


def test_each_claim_holds_for_the_numbers_of_its_own_paper(judged: dict[str, JudgedClaim]) -> None:
    waiting = {claim.id for claim in read_claims(claim_files([PAPERS], SHIPPED)) if claim.missing}
    found = {name: one.verdict for name, one in judged.items() if name not in WAIVED and name not in waiting}
    assert found == dict.fromkeys(found, HOLDS)
    assert len(found) == len(judged) - len(WAIVED) - len(waiting)


def test_no_number_decides_a_claim_that_is_waived(judged: dict[str, JudgedClaim]) -> None:
    undecided = dict.fromkeys(WAIVED, UNTESTED) | {"shallow-reaches-communication-first": UNCLEAR}
    assert {name: judged[name].verdict for name in WAIVED} == undecided


def test_their_iterations_on_cpus_are_not_what_the_claim_is_about(judged: dict[str, JudgedClaim]) -> None:
    """Table I: AlexNet takes 2 s on their CPU, GoogLeNet 1.3 s."""
    units = {entry.number.labels["hardware"] for entry in judged["alexnet-iterations-are-short"].combinations}
    assert units == {"k80", "titanx"}


def test_data_take_as_much_as_they_say_of_what_gradients_take(judged: dict[str, JudgedClaim]) -> None:
    (entry,) = judged["data-traffic-negligible-beside-gradients"].combinations
    assert entry.number.value == pytest.approx(15e12 / (450_000 * 250e6 * 2))


# --- what is shown of them --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def everything(judged: dict[str, JudgedClaim]) -> list[JudgedClaim]:
    """Those, and a claim of the study's own that holds for the numbers of Keuper & Pfreundt."""
    return [*judged.values(), *judge(own_claims(documented()), published()["Keuper & Pfreundt (2016)"])]


def said(claims: Sequence[JudgedClaim]) -> Section:
    return section(StudyTables({}, claims=claims))


def test_every_claim_that_was_tested_stands_in_the_table_of_its_paper(everything: list[JudgedClaim]) -> None:
    made = said(everything)
    tested = [one for one in everything if one.verdict != UNTESTED]
    rows = {row[0]: dict(zip(one.head, row, strict=True)) for one in made.grids for row in one.rows}
    html = part(made).html
    assert sum(len(of.rows) for of in made.grids) == len(tested)
    for one in tested:
        row = next(row for sentence, row in rows.items() if sentence.startswith(one.claim.sentence))
        assert row["chart"] == one.claim.chart
        assert not one.claim.chart or f'<a href="#{one.claim.chart}">' in html
        assert escape(one.claim.sentence) in html


def test_claims_of_papers_and_of_the_study_are_counted_apart(everything: list[JudgedClaim]) -> None:
    papers, this_study, _ = said(everything).findings
    assert (papers.subject, this_study.subject) == ("claims of papers", "claims of this study")
    assert "not tested" not in papers.words + this_study.words
    assert said([one for one in everything if one.claim.paper == OWN]).findings == (this_study,)
    (one,) = said([next(one for one in everything if one.verdict == HOLDS)]).findings
    assert one.words == "1 holds"


def test_claims_that_were_not_tested_are_one_number_at_the_end(everything: list[JudgedClaim]) -> None:
    untested = [one for one in everything if one.verdict == UNTESTED]
    last = said(everything).findings[-1]
    assert (last.subject, last.words.split(";")[0]) == ("not tested", f"{len(untested)} of {len(everything)} claims")
    assert not said(untested).grids
    lacking = {row["claim"] for row in claim_rows(untested) if row["missing"]}
    assert lacking == {one.claim.id for one in untested}, "the file says what each lacks"


def test_text_of_a_claim_cannot_break_the_page(judged: dict[str, JudgedClaim]) -> None:
    one = judged["lrn-negligible"]
    evil = replace(one, claim=replace(one.claim, sentence="a | b <script>", paper="A & B <i>"))
    html = part(said([evil])).html
    assert "<script>" not in html
    assert "<i>" not in html


def test_without_claims_nothing_is_said_of_them() -> None:
    assert said([]).absence == Absence.NONE_FOUND
