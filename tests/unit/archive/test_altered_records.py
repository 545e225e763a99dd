"""Archives that somebody altered are refused where they come in: some here, more in the night."""

import pytest
from altered_records import CHANGES, altered
from nightly import first_by_day


@pytest.mark.parametrize("trials", first_by_day([len(CHANGES), 300]))
def test_no_altered_archive_is_accepted(trials: int) -> None:
    found = altered(trials, seed=1)
    assert [line for tally in found for line in tally.red] == []
    assert sum(tally.clear for tally in found) == trials
