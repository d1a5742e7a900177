"""Why nothing could be sent to an endpoint with these settings, as far as they tell. Pure."""

import ipaddress
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from dispatcher.outbound.address import is_allowed, refusal
from dispatcher.outbound.headers import LITERALS, headers_fault


def fault_of(settings: Mapping[str, Any]) -> str | None:
    """Return why nothing could be sent with these settings, as far as it can be told from here."""
    headers, literals = settings["headers"], settings[LITERALS]
    if fault := headers_fault([*headers.items(), *literals.items()]):
        return fault
    if twice := headers.keys() & literals.keys():
        return f"header {min(twice)} is named twice, with a reference and with a literal value"
    if (settings["client_cert_ref"] is None) != (settings["client_key_ref"] is None):
        return "--client-cert and --client-key go together"
    return _reach_fault(settings["url"], [str(cidr) for cidr in settings["allow_cidrs"]])


def _reach_fault(url: str, cidrs: list[str]) -> str | None:
    """Return why the dispatcher's address guard would refuse this URL at every attempt."""
    parts = urlsplit(url)
    if parts.scheme == "http" and not cidrs:
        return "--url is plain http://, which needs --allow-cidr for its network"
    try:
        address = ipaddress.ip_address(parts.hostname or "")
    except ValueError:
        return None  # a name: it is resolved and judged at every attempt
    networks = [ipaddress.ip_network(cidr) for cidr in cidrs]
    why = refusal(str(address), networks)
    if why is None and parts.scheme == "http" and not is_allowed(str(address), networks):
        why = f"{address} is in no --allow-cidr, which plain http:// needs"
    return f"every delivery to --url would be refused: {why}" if why else None
