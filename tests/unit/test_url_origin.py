import string

import httpx
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from yarl import URL

from lab_agent.shared.errors import ForeignOrigin
from lab_agent.shared.url_origin import Origin, is_loopback, join_url, origin_of

BASE = "https://service.example:8443/api/"
PIN = Origin("https", "service.example", 8443)

_hosts = st.sampled_from(
    ["service.example", "SERVICE.example", "evil.example", "service.example.evil.example", "[::1]", "127.0.0.1"]
)
_signs = st.text(alphabet=string.printable + "éß。\u2028\\@:/?#%", max_size=12)


@st.composite
def _targets(draw: st.DrawFn) -> str:
    scheme = draw(st.sampled_from(["https:", "http:", "HTTPS:", "ftp:", "javascript:", "", "//", " https:"]))
    slashes = draw(st.sampled_from(["//", "/", "", "///", "\\\\", "/\\"]))
    user = draw(st.sampled_from(["", "service.example@", "u:p@", "service.example:8443@"]))
    port = draw(st.sampled_from(["", ":8443", ":443", ":08443", ":x", ":99999", ":"]))
    return scheme + slashes + user + draw(_hosts) + port + draw(_signs)


@given(st.one_of(_targets(), _signs))
@example("//evil.example/fhir/task")
@example("https://service.example:8443@evil.example/")
@example("https://service.example:8443\\@evil.example/")
@example("https:evil.example")
@example("//service.example[")
@example("/\\evil.example")
@example("https://service.example:8443/api/../../x")
def test_joined_url_keeps_origin_for_every_parser(target: str) -> None:
    """Whatever is joined is of our origin for every parser on the way, or is rejected."""
    try:
        address = join_url(BASE, target)
    except ForeignOrigin:
        return
    sent = httpx.URL(address)
    assert (sent.scheme, sent.host, sent.port, sent.userinfo) == (*PIN, b"")
    on_the_wire = URL(str(sent))
    assert (on_the_wire.scheme, on_the_wire.host, on_the_wire.port, on_the_wire.user) == (*PIN, None)


@given(st.text(alphabet=string.ascii_letters + string.digits + "-._~", min_size=1, max_size=20))
def test_own_url_accepted(segment: str) -> None:
    assume(segment not in {".", ".."})
    assert join_url(BASE, f"fhir/{segment}?x=1") == f"{BASE}fhir/{segment}?x=1"
    assert join_url(BASE, f"https://Service.example:8443/{segment}") == f"https://Service.example:8443/{segment}"


def test_other_scheme_host_or_port_rejected() -> None:
    for foreign in (
        *("http://service.example:8443/x", "https://service.example/x", "https://other.example:8443/x"),
        *("//other.example:8443/x", "https://user@service.example:8443/x", "https://service.example:8443 /x"),
        *("https://service.example:84430/x", "ftp://service.example:8443/x"),
    ):
        with pytest.raises(ForeignOrigin):
            join_url(BASE, foreign)


def test_own_address_is_taken_in_its_forms() -> None:
    assert origin_of("https://a.example") == origin_of("https://A.example:443/")
    assert join_url("https://a.example/", "https://a.example:443/x#y") == "https://a.example:443/x"
    assert join_url(BASE, "fhir/x?name=é#z") == f"{BASE}fhir/x?name=%C3%A9"
    here = ("http://127.0.0.1:1/", "http://localhost", "http://[::1]:80/", "https://a.example")
    assert [is_loopback(each) for each in here] == [True, True, True, False]
