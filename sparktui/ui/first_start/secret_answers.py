"""The API key and the Hugging Face token: what of them is written, and what an earlier start had that is gone."""

from __future__ import annotations

from collections.abc import Mapping

from sparktui.ui.first_start.draft import Draft, KeyChoice


def secret_values(draft: Draft, random_key: str, typed: Mapping[str, str]) -> dict[str, str]:
    """API_KEY as it was chosen and HF_TOKEN; '' where none is to be written."""
    key = {KeyChoice.RANDOM: random_key, KeyChoice.OWN: typed.get("API_KEY", ""), KeyChoice.NONE: ""}[draft.key]
    return {"API_KEY": key, "HF_TOKEN": typed.get("HF_TOKEN", "").strip()}


def why_no_key(draft: Draft, values: Mapping[str, str]) -> str:
    """Why an own key that was chosen would leave the API open; empty where it is one. Imports pydantic."""
    from sparktui.settings.fields import NO_KEY

    key = values.get("API_KEY", "").strip()
    if draft.key is not KeyChoice.OWN or key.lower() not in NO_KEY:
        return ""
    # Only the choice that says so in words may open the API to the network.
    return f"API_KEY: {'what is typed means no key' if key else 'no key is typed'}; type one or choose another answer"


def given_secrets(kept: Draft, draft: Draft, typed: Mapping[str, str], *, key_shown: bool) -> frozenset[str]:
    """Names of the secrets that a person has typed or could copy, in this start or, by `kept`, in an earlier one."""
    given = kept.given if draft.key is kept.key else kept.given - {"API_KEY"}
    if typed.get("HF_TOKEN", "").strip():
        given |= {"HF_TOKEN"}
    own = draft.key is KeyChoice.OWN and typed.get("API_KEY", "").strip()
    return given | {"API_KEY"} if own or (draft.key is KeyChoice.RANDOM and key_shown) else given


def gone_secrets(kept: Draft, draft: Draft, typed: Mapping[str, str]) -> str:
    """One sentence: which secrets of an earlier start must be typed or copied again. Empty where none is missing."""
    gone = {name for name in kept.given if not typed.get(name, "").strip()}
    asked = []
    if "API_KEY" in gone and draft.key is kept.key:
        if draft.key is KeyChoice.RANDOM:
            asked.append("copy the API key below, which is a new one")
        elif draft.key is KeyChoice.OWN:
            asked.append("type your API key again")
    if "HF_TOKEN" in gone:
        asked.append("type the Hugging Face token again")
    return f"Secrets are not kept in the draft: {', and '.join(asked)}." if asked else ""
