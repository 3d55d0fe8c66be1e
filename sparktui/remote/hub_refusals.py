"""What the hub's answers mean to a download: refusals by kind, and how long it asks to wait."""

from __future__ import annotations


class Refused(Exception):
    """The hub or the disk said no. `kind` is one of the words that sparktui.remote.hub knows."""

    def __init__(self, kind: str, what: str, *, retry_after: float | None = None) -> None:
        super().__init__(what)
        self.kind = kind
        self.what = what
        self.retry_after = retry_after


def retry_after_seconds(value: str | None) -> float | None:
    """Retry-After as seconds; None when absent or unreadable. Both forms of RFC 9110 §10.2.3."""
    if value is None:
        return None
    text = value.strip()
    if text.isdigit():
        return float(text)
    from datetime import UTC, datetime
    from email.utils import parsedate_to_datetime

    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max((moment - datetime.now(UTC)).total_seconds(), 0.0)


def refusal(status: int, path: str, retry_after: str | None) -> Refused | None:
    """What an HTTP status means to the user; None for a status that another try may cure."""
    if status == 429:
        return Refused("rate_limited", "the hub limits the rate (429)", retry_after=retry_after_seconds(retry_after))
    if status in (401, 403):
        return Refused("unauthorised", f"the hub refuses access to {path} ({status})")
    if status == 404:
        return Refused("not_found", f"the hub does not have {path} (404)")
    if 400 <= status < 500 and status != 408:
        return Refused("other", f"the hub answered {status} for {path}")
    return None
