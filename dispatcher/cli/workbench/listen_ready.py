"""What `holdfast listen` says first: where it is, and the command that sends deliveries there."""

import shlex
from ipaddress import ip_address
from pathlib import Path

SECRETS_AT_ONCE = 2
"""How many an endpoint has while one is rotated."""


def url_of(host: str, port: int, path: str) -> str:
    """Return the URL of `path` on this server, as a dispatcher on this machine reaches it."""
    reached = _reachable(host)[0]
    return (
        f"http://[{reached}]:{port}{path}" if ":" in reached else f"http://{reached}:{port}{path}"
    )


def add_command(url: str, host: str, references: list[str]) -> str:
    """Return the command that makes an endpoint of this receiver, to be pasted into a shell."""
    words = [
        "holdfast",
        "endpoint",
        "add",
        "listen",
        "--url",
        url,
        "--allow-cidr",
        _reachable(host)[1],
    ]
    for reference in references[:SECRETS_AT_ONCE]:
        kind, _, name = reference.partition(":")
        # The dispatcher reads it where it runs, which need not be this folder.
        words += ["--secret-ref", f"file:{Path(name).resolve()}" if kind == "file" else reference]
    return shlex.join(words)


def ready_text(url: str, command: str, seed: int | None) -> str:
    """Return what is said when deliveries may come; `seed` where chance decides something."""
    chance = f" Chance is drawn from --seed {seed}." if seed is not None else ""
    return f"listening on {url}; Ctrl-C ends it with a report.{chance}\n  {command}"


def _reachable(host: str) -> tuple[str, str]:
    """Return where a server bound to `host` is reached from this machine, and that network."""
    address = ip_address(host.partition("%")[0])
    if address.is_unspecified:
        address = ip_address("127.0.0.1" if address.version == 4 else "::1")
    return str(address), f"{address}/{address.max_prefixlen}"
