"""Counts how often a key was applied, for receivers whose answers have no outcome."""

import asyncio
import json
import shlex
from contextlib import suppress
from typing import Protocol
from urllib.parse import quote, urlsplit

import httpx

KEY, SUBJECT = "{key}", "{subject}"
SECONDS_MAX = 30.0
ANSWER_BYTES_MAX = 4096


class Probe(Protocol):
    async def applied(self, key: str, subject: str) -> int:
        """Return how often the action of `key` was applied; raises `ProbeFailed`."""
        ...


class ProbeFailed(Exception):
    """The probe returned no count; the message says why."""


class UrlProbe:
    """`GET` of a URL with `{key}`, perhaps `{subject}`; answers 200 `{"applied": n}` or `n`."""

    def __init__(self, template: str) -> None:
        """Raises `ValueError` for a template that is not a URL or has no `{key}`."""
        if urlsplit(template).scheme not in {"http", "https"} or KEY not in template:
            raise ValueError(f"a probe must be an http(s) URL that contains {KEY}")
        self._template = template

    async def applied(self, key: str, subject: str) -> int:
        url = self._template.replace(KEY, quote(key)).replace(SUBJECT, quote(subject, safe=""))
        try:
            async with httpx.AsyncClient(trust_env=False, timeout=SECONDS_MAX) as client:
                answer = await client.get(url)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ProbeFailed(f"the probe did not answer ({type(error).__name__})") from None
        if answer.status_code != 200:
            raise ProbeFailed(f"the probe answered {answer.status_code}")
        return count_of(answer.content)


class CommandProbe:
    """A command with `{key}`, perhaps `{subject}`, in its arguments; prints the same as a URL."""

    def __init__(self, template: str) -> None:
        """Raises `ValueError` for a command that cannot be split or has no `{key}`."""
        self._arguments = shlex.split(template)
        if not any(KEY in argument for argument in self._arguments[1:]):
            raise ValueError(f"a probe command must have {KEY} in its arguments")

    async def applied(self, key: str, subject: str) -> int:
        # No shell, so that a subject cannot inject a command.
        filled = [
            argument.replace(KEY, key).replace(SUBJECT, subject) for argument in self._arguments
        ]
        try:
            process = await asyncio.create_subprocess_exec(
                *filled,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
        except OSError as error:
            raise ProbeFailed(f"the probe cannot be started: {error.strerror}") from None
        try:
            async with asyncio.timeout(SECONDS_MAX):
                printed, _ = await process.communicate()
        except TimeoutError:
            raise ProbeFailed(f"the probe took more than {SECONDS_MAX:.0f} s") from None
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        if process.returncode != 0:
            raise ProbeFailed(f"the probe ended with exit code {process.returncode}")
        return count_of(printed)


def count_of(answer: bytes) -> int:
    """Return n of `{"applied": n}`, or of `n` alone; raises `ProbeFailed`.

    >>> count_of(b'{"applied": 1}'), count_of(b" 2\\n")
    (1, 2)
    """
    try:
        value = json.loads(answer[:ANSWER_BYTES_MAX].decode())
    except (ValueError, RecursionError):
        value = None
    count = value.get("applied") if isinstance(value, dict) else value
    if type(count) is not int or count < 0:
        raise ProbeFailed('the probe returned no count: expected {"applied": n}')
    return count
