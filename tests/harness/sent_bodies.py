"""Every body that an agent of a test sends to the service, held against STU3."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from lab_agent.shared import exact_json
from lab_agent.shared.http_client import HttpClient


@contextmanager
def checked_bodies() -> Iterator[None]:
    """Fails at the end if an agent in this process has sent a resource that is not valid STU3, whatever became of it."""
    violations: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HttpClient, "send", _checking(HttpClient.send, violations))
        yield
    assert violations == []


def record_writes(patch: pytest.MonkeyPatch) -> list[str]:
    """What agents in this process write below `fhir/` from now on, each as its method and the type of the resource."""
    writes: list[str] = []
    send = HttpClient.send

    async def recording(self: HttpClient, method: str, target: str, **more: Any) -> Any:
        _, below, path = target.lower().partition("fhir/")
        if method != "GET" and below:
            writes.append(f"{method} {path.partition('/')[0]}")
        return await send(self, method, target, **more)

    patch.setattr(HttpClient, "send", recording)
    return writes


def find_body_violations(method: str, content: bytes) -> list[str]:
    """What is not valid STU3 in the body of a request, if it is a resource that laboratories write."""
    if method not in {"POST", "PUT"} or not content.startswith(b"{"):
        return []
    from tests.harness.stu3_schema import find_stu3_violations, is_checked  # noqa: PLC0415 - its models take a second to import

    body = exact_json.loads(content)
    return find_stu3_violations(body) if is_checked(body.get("resourceType")) else []


def _checking(send: Callable[..., Any], violations: list[str]) -> Callable[..., Any]:
    async def checked(self: HttpClient, method: str, target: str, **more: Any) -> Any:
        violations.extend(f"{method}: {found}" for found in find_body_violations(method, more.get("content", b"")))
        return await send(self, method, target, **more)

    return checked
