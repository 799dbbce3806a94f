"""The numbers of one process of lab-api for Prometheus: labels are words, and none names a client or a patient."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from importlib.metadata import version
from platform import python_version

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from lab_agent.store.api_refusals import RefusalReason

ENDPOINTS = frozenset({"nomenclature", "eta", "questionnaire", "preanalytics", "token", "document"})
_OTHER = "other"
"""Health, the API's own documentation, and what there is not."""
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class RequestOutcome(StrEnum):
    """How a request ended, as a label."""

    OK = "ok"
    UNCHANGED = "unchanged"  # 304: the client has this version
    NO_ACCESS = "no_access"  # 401
    NOT_FOUND = "not_found"  # 404: no such address, contract or document
    TOO_MANY = "too_many"  # 429
    CONTRADICTED = "contradicted"  # 422: the catalogue contradicts the basket
    INVALID = "invalid"  # any other 4xx: not what the interface specifies
    UNAVAILABLE = "unavailable"  # 503: the database, or a pool of labels
    INTERNAL_ERROR = "internal_error"  # any other 5xx

    @classmethod
    def of(cls, status: int) -> RequestOutcome:
        """The outcome that a status is."""
        if (known := _OUTCOMES.get(status)) is not None:
            return known
        if status >= 500:
            return cls.INTERNAL_ERROR
        return cls.INVALID if status >= 400 else cls.OK


_OUTCOMES = {
    304: RequestOutcome.UNCHANGED,
    401: RequestOutcome.NO_ACCESS,
    404: RequestOutcome.NOT_FOUND,
    422: RequestOutcome.CONTRADICTED,
    429: RequestOutcome.TOO_MANY,
    503: RequestOutcome.UNAVAILABLE,
}


class ApiMetrics:
    """The registry of one process, and its metrics; all reasons of refusals are there from the start, as 0."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "lab_api_requests", "Requests by endpoint and outcome", ["endpoint", "outcome"], registry=self.registry
        )
        self._seconds = Histogram(
            "lab_api_request_seconds",
            "Seconds until a response was sent, by endpoint",
            ["endpoint"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._refusals = Counter("lab_api_refusals", "Refused requests by reason", ["reason"], registry=self.registry)
        for reason in RefusalReason:
            self._refusals.labels(reason.value)
        self._ready = Gauge("lab_api_ready", "Whether the database can be read and written", registry=self.registry)
        self._catalogue = Gauge("lab_api_catalogue_info", "The catalogue that is served", ["version"], registry=self.registry)
        self._served_since = Gauge(
            "lab_api_catalogue_served_since_timestamp_seconds", "Since when it is served", registry=self.registry
        )
        build = Gauge("lab_api_build_info", "Version of the program", ["version", "python"], registry=self.registry)
        build.labels(version("lab-agent"), python_version()).set(1)

    def record_request(self, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered; `route` is the name of its route."""
        endpoint = route if route in ENDPOINTS else _OTHER
        self._requests.labels(endpoint, RequestOutcome.of(status).value).inc()
        self._seconds.labels(endpoint).observe(seconds)

    def record_refusal(self, reason: RefusalReason) -> None:
        """Count a refused request."""
        self._refusals.labels(reason.value).inc()

    def update(self, catalogue: str, since: datetime, *, is_ready: bool) -> None:
        """Set what holds now: the version of the catalogue that is served, since when, and whether the database works."""
        self._catalogue.clear()
        self._catalogue.labels(catalogue).set(1)
        self._served_since.set(since.timestamp())
        self._ready.set(is_ready)

    def render(self) -> bytes:
        """Give all metrics in the text format of Prometheus."""
        return generate_latest(self.registry)
