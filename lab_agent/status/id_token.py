"""The check of an ID token: signature, issuer, audience, times and nonce (OpenID Connect Core 1.0, 3.1.3.7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from joserfc import jws, jwt
from joserfc.errors import ClaimError, JoseError
from joserfc.jwk import Key, import_key

from lab_agent.status.oidc_faults import OidcError, OidcFault

_LEEWAY_SECONDS = 60
"""By how much the provider's clock may differ from ours."""
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512")
"""Signatures with a public key alone: with another one, whoever knows the key could sign as well."""


def parse_keys(found: Mapping[str, Any]) -> Sequence[Key]:
    """Read a JWK set; keys of kinds that are unknown here, and those for encryption, are left out."""
    keys: list[Key] = []
    listed = found.get("keys")
    for each in listed if isinstance(listed, list) else []:
        if isinstance(each, dict) and each.get("kty") in {"RSA", "EC"} and each.get("use", "sig") == "sig":
            try:
                keys.append(import_key(each))
            except (JoseError, ValueError):
                continue  # the signature shows whether it was needed
    return keys


def verify(token: str, keys: Sequence[Key], *, issuer: str, client_id: str, nonce: str, now: datetime) -> Mapping[str, Any]:
    """Give the claims of an ID token for us. Raises `OidcError`, with the claim that is wrong, or `signature`, or `form`."""
    claims = _check_signature(token, keys)
    registry = jwt.JWTClaimsRegistry(
        now=int(now.timestamp()),
        leeway=_LEEWAY_SECONDS,
        iss={"essential": True, "value": issuer},
        aud={"essential": True, "value": client_id},
        sub={"essential": True},
        exp={"essential": True},
        iat={"essential": True},
        nonce={"essential": True, "value": nonce},
    )
    try:
        registry.validate(claims)
    except ClaimError as exc:
        raise OidcError(OidcFault.TOKEN_INVALID, exc.claim) from exc
    audience = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
    if claims.get("azp", client_id if len(audience) == 1 else None) != client_id:
        raise OidcError(OidcFault.TOKEN_INVALID, "azp")
    return claims


def _check_signature(token: str, keys: Sequence[Key]) -> dict[str, Any]:
    """Give the claims of a token that one of these keys has signed."""
    try:
        kid = jws.extract_compact(token.encode()).headers().get("kid")
    except (JoseError, ValueError) as exc:
        raise OidcError(OidcFault.TOKEN_INVALID, "form") from exc
    for key in keys:
        if kid is None or key.kid is None or key.kid == kid:
            try:
                return jwt.decode(token, key, algorithms=_ALGORITHMS).claims
            except (JoseError, ValueError):
                continue  # another key may have signed it
    raise OidcError(OidcFault.TOKEN_INVALID, "signature")
