"""Builds every address at the service (interface: Endpoints) from the templates of `[exchange.paths]`."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from lab_agent.settings.exchange import UrlTemplateSettings
from lab_agent.shared.errors import ForeignLink, ForeignOrigin, InvalidAddress, ServiceUnavailable
from lab_agent.shared.ids import ResourceId
from lab_agent.shared.url_origin import join_url
from lab_agent.shared.values import Identifier

_SEARCH_ESCAPES = str.maketrans({sign: "\\" + sign for sign in "\\$,|"})
_REFERENCE_ESCAPES = str.maketrans({sign: "\\" + sign for sign in "\\$,"})


class UrlTemplates:
    """Addresses relative to the service's base address, percent-encoded. Raises `ForeignOrigin` for an id that is no segment."""

    def __init__(self, templates: UrlTemplateSettings, *, page_size: int | None = None) -> None:
        self._templates = templates
        self._page_query = "" if page_size is None else urlencode({"_count": page_size})

    def order_tasks(self) -> str:
        """New order-level Tasks."""
        return self._with_page_size(self._templates.order_tasks)

    def line_tasks(self, order_task: ResourceId) -> str:
        """Line Tasks of an order."""
        return self._with_page_size(self._templates.line_tasks.format(id=_encode_reference(order_task)))

    def questionnaire_responses(self, procedure_request: ResourceId) -> str:
        """QuestionnaireResponses about a ProcedureRequest."""
        return self._with_page_size(self._templates.questionnaires.format(id=_encode_reference(procedure_request)))

    def by_identifier(self, resource_type: str, identifier: Identifier) -> str:
        """Search by identifier."""
        return self._with_page_size(
            self._templates.by_identifier.format(
                identifier=quote(search_token(identifier), safe=""), Resource=resource_type, resource=resource_type.lower()
            )
        )

    def by_tag(self, resource_type: str, tag: Identifier) -> str:
        """Search by tag, for ids and tags alone."""
        address = self.create(resource_type)
        query = f"_tag={quote(search_token(tag), safe='')}&_elements=id,meta"
        return f"{address}{'&' if '?' in address else '?'}{query}"

    def read(self, resource_type: str, resource_id: ResourceId) -> str:
        """Read one resource."""
        return self._resource_url(self._templates.read, resource_type, resource_id)

    def create(self, resource_type: str) -> str:
        """Create a resource."""
        return self._templates.create.format(Resource=resource_type, resource=resource_type.lower())

    def document(self, document: ResourceId) -> str:
        """A Binary, as partners find it in a report: beside the address at which it was created."""
        return f"{self.create('Binary').partition('?')[0].rstrip('/')}/{_encode_segment(document)}"

    def update(self, resource_type: str, resource_id: ResourceId) -> str:
        """Replace a resource."""
        return self._resource_url(self._templates.update, resource_type, resource_id)

    def _resource_url(self, template: str, resource_type: str, resource_id: ResourceId) -> str:
        return template.format(id=_encode_segment(resource_id), Resource=resource_type, resource=resource_type.lower())

    def _with_page_size(self, address: str) -> str:
        return f"{address}{'&' if '?' in address else '?'}{self._page_query}" if self._page_query else address


def if_none_exist_query(identifier: Identifier) -> str:
    """Value of the header If-None-Exist: a query, percent-encoded as queries are."""
    return f"identifier={quote(search_token(identifier), safe='')}"


def search_token(identifier: Identifier) -> str:
    r"""Return `system|value`; `, $ |` and backslashes in the parts are escaped as FHIR searches require."""
    value = identifier.value.translate(_SEARCH_ESCAPES)
    return value if identifier.system is None else f"{identifier.system.translate(_SEARCH_ESCAPES)}|{value}"


def resolve_next_page(base: str, current: str, link: str) -> str:
    """Absolute address of a `next` link. Relative links are resolved against the service's base address, as in FHIR.

    One that is only a query is about the page it came from. Raises `ForeignLink` if it leads elsewhere, and `ServiceUnavailable`
    if it is no address.
    """
    if not link:
        raise ServiceUnavailable("its `next` link has no address")
    try:
        return _join_next_page(base, current, link)
    except InvalidAddress as exc:
        raise ServiceUnavailable(f"its `next` link cannot be read: {exc}") from exc
    except ForeignOrigin as exc:
        hint = "Set `exchange.base_url` to the address that the service knows itself by, or correct the proxy before it."
        raise ForeignLink(f"the `next` link of a search: {exc}. {hint}") from exc


def _join_next_page(base: str, current: str, link: str) -> str:
    root = "/" + base.split("/", 3)[3]
    if link.startswith("?"):
        return join_url(current, link)
    if link.startswith("/") and not link.startswith(("//", root)):
        return join_url(base, link.lstrip("/"))
    return join_url(base, link)


def _encode_segment(value: str) -> str:
    if not value or value in {".", ".."}:
        raise ForeignOrigin("a resource id cannot be part of an address")
    return quote(value, safe="")


def _encode_reference(value: str) -> str:
    """Encode an id as the end of a search value: a comma would divide it into two."""
    return _encode_segment(value.translate(_REFERENCE_ESCAPES))
