"""The documents of a report, those that are values of its observations included, their addresses and their media types. Pure.

Addresses are as a DiagnosticReport may carry them (interface: Result documents), media types as HTTP and FHIR can.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import urlsplit

from lab_agent.lis.lab_messages import Document, LabReport, ReportedObservation

URL_HINT = "give an http or https address, or one relative to the service's"
_URL_SCHEMES = frozenset({"http", "https"})


def is_openable_url(url: str) -> bool:
    """Whether a clinic could open it: http or https with a host, or relative to the service's base address."""
    if not url or not url.isprintable() or {" ", "\\"} & set(url):
        return False
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    if parts.scheme or parts.netloc:
        return parts.scheme in _URL_SCHEMES and bool(parts.hostname) and port != 0
    return ":" not in parts.path.partition("/")[0]


DocumentChange = Callable[[Document], Document]


def documents_of(report: LabReport) -> tuple[Document, ...]:
    """Give the report's own documents, then those of its observations."""
    return tuple(document for _, document in documents_with_paths(report))


def documents_with_paths(report: LabReport) -> tuple[tuple[str, Document], ...]:
    """Give the documents of a report in the order of `documents_of`, each with its field path, such as `documents[0]`."""
    own = [(f"documents[{index}]", document) for index, document in enumerate(report.documents)]
    attached = [
        (f"observations[{index}].value_attachment", observation.value_attachment)
        for index, observation in enumerate(report.observations)
        if observation.value_attachment is not None
    ]
    return (*own, *attached)


def map_documents(report: LabReport, change: DocumentChange) -> LabReport:
    """Give the report with each of its documents changed, in the order of `documents_of`."""
    return replace(
        report,
        documents=tuple(map(change, report.documents)),
        observations=tuple(_map_attachment(observation, change) for observation in report.observations),
    )


def _map_attachment(observation: ReportedObservation, change: DocumentChange) -> ReportedObservation:
    attachment = observation.value_attachment
    return observation if attachment is None else replace(observation, value_attachment=change(attachment))


MAX_MEDIA_TYPE_LENGTH = 255
MEDIA_TYPE_HINT = "write a type and a subtype, such as application/pdf or text/plain; charset=utf-8, in plain ASCII"
OCTET_STREAM = "application/octet-stream"
"""What is true of any document whose bytes show nothing that is known here."""

_TOKEN_CHARS = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # noqa: S105 - a token of RFC 7230
_QUOTED_STRING = r'"(?:[ !#-\[\]-~]|\\[ -~])*"'
_MEDIA_TYPE = re.compile(rf"{_TOKEN_CHARS}/{_TOKEN_CHARS}(?: ?; ?{_TOKEN_CHARS}=(?:{_TOKEN_CHARS}|{_QUOTED_STRING}))*", re.ASCII)


def is_media_type(text: str) -> bool:
    """Whether it is a media type (RFC 9110, section 8.3.1) and a FHIR code: printable ASCII, no two blanks side by side."""
    return len(text) <= MAX_MEDIA_TYPE_LENGTH and "  " not in text and _MEDIA_TYPE.fullmatch(text) is not None
