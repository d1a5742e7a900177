"""Declared verbs: what every one of them has, and what their parameters must be together."""

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any
from uuid import UUID

import pytest

from holdfast.dispatcher.operators import registry
from holdfast.dispatcher.operators.common import verbs
from holdfast.dispatcher.operators.common.session import OperatorSession
from holdfast.dispatcher.operators.common.verbs import Kind, Param, Verb
from holdfast.dispatcher.operators.streams.verbs import adopt_checkpoint
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.states import AccessRole
from tests.support.command import holdfast

ROOT = Path(__file__).parents[4]
VERBS = [verb for group in registry.groups() for verb in group.verbs]
NAMES = [f"{verb.group.word} {verb.word}".strip() for verb in VERBS]


@pytest.mark.parametrize("verb", VERBS, ids=NAMES)
def test_verb_is_read_or_takes_a_reason(verb: Verb) -> None:
    kinds = [member.param.kind for member in verb.members]
    assert (Kind.REASON in kinds) == verb.changes
    assert verb.least is not AccessRole.VIEWER or not verb.changes, "a viewer changes nothing"


@pytest.mark.parametrize("verb", VERBS, ids=NAMES)
def test_verb_has_a_surface_and_a_description(verb: Verb) -> None:
    assert verb.help or verb.route or verb.asked
    assert verb.run.__doc__
    assert verb.route is None or verb.result is not None
    described = [m.param.help or m.param.command_help or m.param.kind.name for m in verb.members]
    assert all(described)


@pytest.mark.parametrize("verb", [each for each in VERBS if each.least is not AccessRole.VIEWER])
def test_page_of_the_api_has_the_role_of_each_route(verb: Verb) -> None:
    if verb.route is None:
        return
    page = re.sub(r"\{\w+\}", "{id}", (ROOT / "docs" / "operators" / "api.md").read_text())
    rows = re.findall(rf"^\| {verb.least} \| (.*)$", page, re.MULTILINE)
    last = re.sub(r"\{\w+\}", "{id}", verb.route.path.split("/")[-1])
    words = (verb.group.path, verb.route.method if verb.changes else "GET", last)
    assert any(all(word in row for word in words) for row in rows), words


def _shown(
    store: OperatorSession,
    of: Annotated[str | None, Param(Kind.NAME.value)] = None,
    part: Annotated[str | None, Param("x", needs="of")] = None,
    other: Annotated[bool, Param("y", excludes="of")] = False,
    batch: Annotated[int | None, Param("z", needs="of")] = None,
    query: Annotated[str | None, Param("q", needs="batch")] = None,
) -> None:
    """Nothing."""


GROUP = verbs.Group("thing", help="Things.", store=OperatorSession)
GROUP.verb("show", help="Show.")(_shown)


@pytest.mark.parametrize(
    ("values", "text", "code"),
    [
        ({"part": "p"}, "--part needs --of", "missing_parameter"),
        ({"batch": 0}, "--batch needs --of", "missing_parameter"),
        (
            {"of": "a", "other": True},
            "--of and --other exclude each other",
            "conflicting_parameters",
        ),
    ],
)
def test_parameters_need_and_exclude_each_other(values: Any, text: str, code: str) -> None:
    with pytest.raises(CommandError) as refused:
        GROUP["show"].check(values, lambda member: f"--{member.name}")
    assert (refused.value.exit_code, refused.value.code) == (ExitCode.USAGE, code)
    assert str(refused.value).startswith(text)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"of": "a", "part": "p"},
        {"other": True, "of": None},
        {"of": "a", "batch": 0, "query": "q"},
    ],
)
def test_parameters_that_fit_are_taken(values: Any) -> None:
    GROUP["show"].check(values, lambda member: member.name)


def test_full_last_page_names_no_further_one() -> None:
    rows = [{"id": number} for number in (3, 2, 1)]
    assert verbs.page_of(rows, 3).further is None
    assert verbs.page_of(rows, 2) == verbs.Page(rows[:2], 2)


def test_word_of_an_earlier_version_is_completed() -> None:
    asked = {
        "_HOLDFAST_COMPLETE": "complete_bash",
        "COMP_WORDS": "holdfast dead ",
        "COMP_CWORD": "2",
    }
    command = [str(Path(sys.executable).with_name("holdfast"))]
    done = subprocess.run(command, env=asked, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["list", "show", "export", "dismiss"]


@pytest.mark.parametrize(("alias", "word"), sorted(registry.ALIASES.items()))
def test_word_of_an_earlier_version_is_the_same_group(alias: str, word: str) -> None:
    new, old = (holdfast(each, "--help", process=True, code=ExitCode.OK) for each in (word, alias))
    assert old.stdout.split("Options")[1].split() == new.stdout.split("Options")[1].split()
    root = holdfast("--help", process=True, code=ExitCode.OK).stdout
    assert re.search(rf"^│ {word} ", root, re.MULTILINE)
    assert not re.search(rf"^│ {alias} ", root, re.MULTILINE)


@pytest.mark.parametrize("checkpoint", ["", None])
def test_empty_checkpoint_of_adopt_is_the_one_on_record(
    tmp_path: Path, checkpoint: str | None
) -> None:
    id_ = UUID(int=7)
    (tmp_path / "metadata").write_text(f'{{"id": "{id_}"}}')
    store: Any = SimpleNamespace(adopt=lambda *_, found_in, force: found_in(str(tmp_path)))  # noqa: ARG005 - as the store has it
    found: Any = adopt_checkpoint(
        store, name="s", query_id=id_, checkpoint=checkpoint, reason="moved"
    )
    assert found == id_
