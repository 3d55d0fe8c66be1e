"""Images on a node: look, compare, resolve a tag to its digest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sparktui.errors import StepFailed
from sparktui.readings.image_identity import ImageIdentity, image_identity
from sparktui.remote.link import NodeLink

if TYPE_CHECKING:
    import docker

CALL_SECONDS = 30.0
REGISTRY_SECONDS = 60.0


async def look(link: NodeLink, reference: str) -> ImageIdentity | None:
    """The image of that name on the node; None when it is not there."""

    def work(client: docker.DockerClient) -> dict[str, Any] | None:
        from docker.errors import ImageNotFound

        try:
            plain: dict[str, Any] = client.api.inspect_image(reference)
        except ImageNotFound:
            return None
        return plain

    engine = await link.docker()
    plain = await engine.call(work, deadline_seconds=CALL_SECONDS)
    return None if plain is None else image_identity(plain)


async def machine_architecture(link: NodeLink) -> str:
    """The node's architecture in an image's own word (amd64, arm64); empty when its Engine does not say."""
    engine = await link.docker()
    return await engine.call(lambda client: str(client.version().get("Arch") or ""), deadline_seconds=CALL_SECONDS)


async def longest_shared_layers(link: NodeLink, layers: Sequence[str]) -> int:
    """How many of `layers`, from the bottom, some image on the node has: what need not be sent."""

    def work(client: docker.DockerClient) -> int:
        from docker.errors import ImageNotFound

        best = 0
        for each in client.api.images():
            try:
                have = (client.api.inspect_image(each["Id"]).get("RootFS") or {}).get("Layers") or []
            except ImageNotFound:
                continue
            shared = 0
            for mine, theirs in zip(layers, have, strict=False):
                if mine != theirs:
                    break
                shared += 1
            best = max(best, shared)
        return best

    engine = await link.docker()
    return await engine.call(work, deadline_seconds=CALL_SECONDS)


async def resolve_digest(link: NodeLink, reference: str) -> str:
    """Ask the registry, through the node's Engine, which digest a tag names now.

    Source: Docker Engine API, `GET /distribution/{name}/json`.

    Raises:
        StepFailed: the registry does not know it or cannot be reached.
    """

    def work(client: docker.DockerClient) -> str:
        answer: dict[str, Any] = client.api.inspect_distribution(reference)
        return str((answer.get("Descriptor") or {}).get("digest") or "")

    from docker.errors import APIError

    engine = await link.docker()
    try:
        digest = await engine.call(work, deadline_seconds=REGISTRY_SECONDS)
    except APIError as error:
        raise StepFailed(
            f"the registry gave no digest for {reference}: {error.explanation}",
            fix="check BASE_IMAGE and this node's way to the registry",
            node=link.node.name,
        ) from error
    if not digest.startswith("sha256:"):
        raise StepFailed(f"the registry named no digest for {reference}", fix="check BASE_IMAGE", node=link.node.name)
    return digest
