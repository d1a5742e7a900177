"""The verification snippets for other languages, each run against the published vectors.

A language whose runtime is not on this machine is left out and says so. A program in its language
(`tests/contract/snippets`) reads a line for each request, four base64 fields with tabs between:
the clock, the secrets, the header fields, the body. It prints `genuine <id>` or the reason.
"""

import base64
import json
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
RECEIVER = ROOT / "dispatcher" / "receiver"
SNIPPETS = RECEIVER / "snippets"
PROGRAMS = Path(__file__).parent / "snippets"
VECTORS = json.loads((RECEIVER / "vectors.json").read_text(encoding="utf-8"))
SECRETS = [VECTORS["secrets"]["current"], VECTORS["secrets"]["previous"]]
BODY_REASONS = {"bad_body", "key_mismatch"}
"""What the application finds in a body that is genuine: no affair of a signature."""
NOT_READ = "idempotency-key twice"
GO_FOLDERS = "/usr/local/go/bin"
SECONDS_MAX = 240


def _program(name: str, snippet: str) -> str:
    """The installed program `name`; skips the test where there is none."""
    path = shutil.which(name) or shutil.which(name, path=GO_FOLDERS)
    if path is None:
        pytest.skip(f"{name} is not installed: {snippet} was not run")
    return path


def _node(folder: Path) -> list[str]:
    del folder
    return [
        _program("node", "verify.mjs"),
        str(PROGRAMS / "run.mjs"),
        str(SNIPPETS / "typescript/verify.mjs"),
    ]


def _go(folder: Path) -> list[str]:
    go = _program("go", "verify.go")
    shutil.copytree(SNIPPETS / "go/webhook", folder / "webhook")
    shutil.copy(PROGRAMS / "main.go", folder)
    (folder / "go.mod").write_text("module example\n\ngo 1.21\n")
    _built([go, "build", "-o", "judge", "."], folder)
    return [str(folder / "judge")]


def _java(folder: Path) -> list[str]:
    compiler, java = _program("javac", "Verify.java"), _program("java", "Verify.java")
    sources = [str(SNIPPETS / "java/Verify.java"), str(PROGRAMS / "Run.java")]
    _built([compiler, "-Xlint:all", "-Werror", "-d", str(folder), *sources], folder)
    return [java, "-cp", str(folder), "Run"]


def _php(folder: Path) -> list[str]:
    del folder
    return [
        _program("php", "verify.php"),
        str(PROGRAMS / "run.php"),
        str(SNIPPETS / "php/verify.php"),
    ]


def _built(command: list[str], folder: Path) -> None:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


LANGUAGES: dict[str, Callable[[Path], list[str]]] = {
    "node": _node,
    "go": _go,
    "java": _java,
    "php": _php,
}


def _cases() -> list[tuple[str, dict[str, Any], str]]:
    """Name, request, and what a snippet has to say about it."""
    cases = [(vector["name"], vector, f"genuine {_id(vector)}") for vector in VECTORS["accepted"]]
    for vector in VECTORS["refused"]:
        about_body = vector["reason"] in BODY_REASONS or vector["name"] == NOT_READ
        verdict = f"genuine {_id(vector)}" if about_body else vector["reason"]
        cases.append((vector["name"], vector, verdict))
    good = VECTORS["accepted"][0]
    headers = [
        [name, f"{value} v1,é" if name.lower() == "webhook-signature" else value]
        for name, value in good["headers"]
    ]
    cases.append(("signature beyond ASCII", {**good, "headers": headers}, "bad_header"))
    for vector in VECTORS["signatures"]:
        headers = [["webhook-id", vector["id"]], ["webhook-timestamp", str(vector["timestamp"])]]
        headers.append(["webhook-signature", vector["signature"]])
        request = {"headers": headers, "body": vector["body"], "secrets": [vector["secret"]]}
        request["now"] = vector["timestamp"]
        cases.append((vector["name"], request, f"genuine {vector['id']}"))
    return cases


def _id(vector: dict[str, Any]) -> str:
    (found,) = (value for name, value in vector["headers"] if name.lower() == "webhook-id")
    return str(found)


def _line(vector: dict[str, Any]) -> str:
    fields = (
        str(vector.get("now", VECTORS["now"])),
        "\n".join(vector.get("secrets", SECRETS)),
        "\n".join(f"{name}: {value}" for name, value in vector["headers"]),
        vector["body"],
    )
    return "\t".join(base64.b64encode(field.encode()).decode() for field in fields)


@cache
def _verdicts(language: str) -> dict[str, tuple[str, str]]:
    """What was expected and what the snippet said, by the name of the vector."""
    cases = _cases()
    with TemporaryDirectory(prefix="hfsnippet") as folder:
        command = LANGUAGES[language](Path(folder))
        done = subprocess.run(
            command,
            input="".join(f"{_line(request)}\n" for _, request, _ in cases),
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, "")
    output = done.stdout.splitlines()
    return {
        name: (expected, verdict)
        for (name, _, expected), verdict in zip(cases, output, strict=True)
    }


@pytest.mark.parametrize("language", LANGUAGES)
def test_snippet_agrees_with_every_published_vector(language: str) -> None:
    verdicts = _verdicts(language)
    assert len(verdicts) >= 90
    wrong = {name: pair for name, pair in verdicts.items() if pair[0] != pair[1]}
    assert wrong == {}
