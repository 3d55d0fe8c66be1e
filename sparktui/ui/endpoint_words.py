"""The endpoint in the top line's few words."""

from __future__ import annotations

from textual.content import Content

from sparktui.telemetry.sample import EndpointState, Serving


def endpoint_words(serving: Serving) -> Content:
    """Green is said only of an endpoint all of whose ranks are known to run."""
    if serving.state is EndpointState.READY and serving.rank_unknown:
        return Content.styled("endpoint answers, a rank is unknown", "$warning")
    style = {EndpointState.READY: "$success", EndpointState.HANGS: "$error bold"}.get(serving.state, "")
    return Content.styled(f"endpoint {serving.state}", style)
