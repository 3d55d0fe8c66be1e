"""Which one commit a prefix names, and what it holds. Runs in the hub's child process; blocking."""

from __future__ import annotations

from typing import Any

from sparktui.readings.checkpoint_listing import HubFile, Listing, is_safe_path
from sparktui.remote.hub_refusals import Refused, refusal


def list_revision(request: dict[str, Any]) -> Listing:
    """The one full commit that `asked` names, and its files with sizes."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError
    from huggingface_hub.hf_api import RepoFile

    api = HfApi(endpoint=request.get("endpoint") or None, token=request.get("token") or None)
    repo, asked = str(request["repo"]), str(request["asked"]).lower()
    try:
        api.model_info(repo, timeout=20)
        revision = _full_revision(api, repo, asked)
        files = []
        for entry in api.list_repo_tree(repo, recursive=True, revision=revision):
            if isinstance(entry, RepoFile):
                if not is_safe_path(entry.path):
                    raise Refused("other", f"the hub lists a file name that cannot be written safely: {entry.path!r}")
                sha256 = entry.lfs.sha256 if entry.lfs else None
                blob = None if entry.lfs else entry.blob_id
                files.append(HubFile(entry.path, entry.size, sha256, blob, getattr(entry, "xet_hash", None)))
    except RevisionNotFoundError as error:
        raise Refused("not_found", f"{repo} has no revision {asked}") from error
    except RepositoryNotFoundError as error:
        status = error.response.status_code
        kind = "unauthorised" if status in (401, 403) else "not_found"
        raise Refused(kind, f"the hub does not show {repo} ({status})") from error
    except HfHubHTTPError as error:
        response = error.response
        refused = refusal(response.status_code, repo, response.headers.get("Retry-After"))
        raise refused or Refused("unreachable", f"the hub answered {response.status_code} for {repo}") from error
    if not files:
        raise Refused("other", f"{repo} at {revision} lists no files")
    return Listing(repo, asked, revision, tuple(sorted(files, key=lambda each: each.path)))


def _full_revision(api: Any, repo: str, asked: str) -> str:
    """The hub's download routes take full hashes only, so a prefix is looked up among the commits of every branch."""
    if len(asked) == 40:
        return str(api.model_info(repo, revision=asked, timeout=20).sha)
    refs = api.list_repo_refs(repo)
    found: set[str] = set()
    for ref in [*refs.branches, *refs.tags]:
        if ref.target_commit.startswith(asked):
            found.add(ref.target_commit)
    for ref in refs.branches:
        found.update(
            each.commit_id
            for each in api.list_repo_commits(repo, revision=ref.name)
            if each.commit_id.startswith(asked)
        )
    if not found:
        raise Refused("not_found", f"{repo} has no commit that begins with {asked}")
    if len(found) > 1:
        raise Refused("ambiguous", f"{asked} names {len(found)} commits of {repo}: {', '.join(sorted(found))}")
    return found.pop()
