"""The community's validator of RO-Crates, without a network: what it would fetch is laid into its cache."""

from pathlib import Path

import requests
from requests.adapters import HTTPAdapter
from requests_cache import CachedSession
from rocrate_validator.models import Severity, ValidationResult, ValidationSettings
from rocrate_validator.services import validate
from urllib3 import HTTPResponse

CONTEXT = "https://w3id.org/ro/crate/1.1/context"
CONTEXT_FILE = Path(__file__).parent / "data/ro-crate-1.1-context.json"
"""What CONTEXT leads to (CC0), as the package rocrate 0.13 from PyPI has it."""


def _fill(cache: Path) -> None:
    session = CachedSession(str(cache), backend="sqlite", expire_after=-1)
    request = requests.Request("GET", CONTEXT).prepare()
    headers = {"Content-Type": "application/ld+json"}
    raw = HTTPResponse(CONTEXT_FILE.open("rb"), headers, status=200, request_url=CONTEXT, preload_content=False)
    response = HTTPAdapter().build_response(request, raw)
    session.cache.save_response(response, session.cache.create_key(request))
    session.close()


def problems(crate: Path, cache: Path, severity: Severity = Severity.REQUIRED) -> list[str]:
    """What the validator finds wrong with the crate (a zip or a folder) by the profile Provenance Run Crate 0.5."""
    _fill(cache)
    settings = ValidationSettings(
        rocrate_uri=str(crate),
        profile_identifier="provenance-run-crate-0.5",
        requirement_severity=severity,
        offline=True,
        cache_path=cache,
    )
    result: ValidationResult = validate(settings)
    return [f"{issue.check.identifier} {issue.message} {issue.violatingEntity}" for issue in result.get_issues()]
