"""Filling in the service's sign-in page as a person would: by what kind of field it is, not by what it happens to be called."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import urljoin


@dataclass(slots=True)
class HtmlForm:
    """The first form of a page: where it goes, and its fields as (type, name, value)."""

    action: str = ""
    method: str = "get"
    fields: list[tuple[str, str, str]] = field(default_factory=list)

    def fill(self, login: str, password: str) -> dict[str, str]:
        """What the browser would send after a person typed login and password and pressed the first button."""
        typed = {"password": password, "text": login, "email": login}
        sent = {name: typed.get(kind, value) for kind, name, value in self.fields if kind != "submit"}
        button = next(((name, value) for kind, name, value in self.fields if kind == "submit"), None)
        return sent if button is None else {**sent, button[0]: button[1]}


def parse_form(page: str, address: str) -> HtmlForm | None:
    """The first form of the page at `address`, its action as an absolute address; None if there is none."""
    reader = _FormParser()
    reader.feed(page)
    if reader.form is None:
        return None
    reader.form.action = urljoin(address, reader.form.action)
    return reader.form


class _FormParser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.form: HtmlForm | None = None
        self._is_inside_form = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form" and self.form is None:
            self.form, self._is_inside_form = HtmlForm(given.get("action", ""), given.get("method", "get").lower()), True
        elif self._is_inside_form and self.form and given.get("name") and tag in {"input", "button"}:
            kind = given.get("type", "submit" if tag == "button" else "text").lower()
            self.form.fields.append((kind, given["name"], given.get("value", "")))

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._is_inside_form = False
