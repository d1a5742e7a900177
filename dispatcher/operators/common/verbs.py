"""Declaration of a verb: one function, from which its command, its route and its pages are made.

A parameter of the function is annotated with `Param`. A parameter whose type is a dataclass stands
for the fields of that dataclass, so that several verbs share a filter. What a function returns is
what `--json` prints; the API shows of it the members of its return type, a `TypedDict`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from datetime import datetime
from enum import Enum
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints
from uuid import UUID

from holdfast.dispatcher.operators.common.session import OperatorSession, Row
from holdfast.dispatcher.operators.common.times import FORMS
from holdfast.sink.contract import key as contract
from holdfast.sink.contract.canonical import rfc3339
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.states import AccessRole

REQUIRED: Any = ...

NUMBER_MAX = 2**63 - 1


class Kind(Enum):
    """What a parameter accepts beyond its type. Each surface has its own parser of each kind."""

    PLAIN = "plain"
    NAME = "name"
    """The name of an endpoint, a stream or a token."""

    TEXT = "text"
    """A name with any character but NUL, compared exactly."""

    ID = "id"
    IDS = "ids"
    KEY = "key"
    KEYS = "keys"
    LIMIT = "limit"
    BATCH = "batch"
    """Spark's batch id, from 0."""

    UUID = "uuid"
    PROPOSAL = "proposal"
    """The id of a proposal; at least its first 8 digits for commands."""

    SHORT_ID = "short id"
    """An id that the store's `find` completes from its first 8 digits, except for the API."""

    CURSOR = "cursor"
    BEFORE_ID = "before id"
    TIME = "time"
    EXACT_TIME = "exact time"
    """A time that no clock decides, unlike `2h`."""

    REASON = "reason"
    RATE = "rate"
    """Entries per second."""

    SETTING = "setting"
    """A setting of the server for the API and the console; an option for commands."""

    LOCAL = "local"
    """An option of the command alone; the API and the console use the verb's default."""

    PLAN = "plan"
    """The id of a plan to be made: the page has it, so that posting it twice makes one plan."""


@dataclass(frozen=True, slots=True)
class Param:
    """How a parameter is described, and what it accepts."""

    help: str = ""
    kind: Kind = Kind.PLAIN
    command_help: str | None = None
    """The help of the command, where it is not `help`."""

    option: str | None = None
    """The option's spelling, if it is not the parameter's name."""

    argument: str | None = None
    """The placeholder of a command's argument; None for an option."""

    command_default: Any = REQUIRED
    """The default of the command, if the API requires a value."""

    limits: tuple[int | None, int | None] | None = None
    """Minimum and maximum, where they are not those of the kind."""

    label: str | None = None
    """Label of the console's filter; None: the console has none."""

    hint: str = ""
    env: str | None = None
    """The environment variable that gives the command's option."""

    needs: str | None = None
    """The member without which it must not be given."""

    excludes: str | None = None
    """The member with which it must not be given."""


class Member(NamedTuple):
    """A parameter of a verb."""

    name: str
    type: Any
    default: Any
    param: Param


class Doc:
    """Description of a member of a result, in the API's description."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Any:
        return {**handler(schema), "description": self._text}


class Rfc3339:
    """A time in UTC with a `Z`, in JSON."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        text = {"type": "function-plain", "function": rfc3339, "when_used": "json"}
        return {**handler(source), "serialization": {**text, "return_schema": {"type": "str"}}}

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Any:
        return {"type": "string", "format": "date-time"}


class AtLeast:
    """A number's minimum."""

    def __init__(self, minimum: int) -> None:
        self._minimum = minimum

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return {**handler(source), "ge": self._minimum}


Time = Annotated[datetime, Rfc3339()]
KeyText = Annotated[str, Doc("The key as receivers get it: hf_...")]
Count = Annotated[int, AtLeast(0)]
Seconds = Annotated[float, Doc("In seconds.")]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows for a terminal: `leave_out` names the columns that a narrow one does without first."""

    rows: Sequence[Row]
    columns: Sequence[str]
    title: str
    leave_out: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """Names with values for a terminal; names are padded to `width` characters."""

    values: Row
    width: int


class Aside(str):
    """A line for a person that is not part of the output: standard error."""

    __slots__ = ()


Text = Iterable[str | Table | Facts]
"""What a terminal shows, block by block."""


@dataclass(frozen=True, slots=True)
class Bodies:
    """Members that contain a merchant's data or a receiver's response.

    The API leaves them out unless they are requested, and records each read in the audit trail.
    Without `hide` every read shows them.
    """

    hide: Callable[[Row], Row] | None = None
    action: str = ""
    """The action in the audit trail; empty: they are not shown on request."""

    read: Callable[[Row], tuple[str, Row]] = lambda _: ("", {})
    """What was read, for the audit trail: its target and its details."""

    for_operators: bool = False
    """Operators always see them, and that is not recorded."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page of rows."""

    rows: Sequence[Row]
    further: Any = None
    """The cursor of the next page; None on the last, and where a list has one page."""

    about: Row = field(default_factory=dict)
    """What the rows have in common, as members beside them."""


def page_of(rows: Sequence[Row], limit: int, cursor: str = "id", about: Row | None = None) -> Page:
    """Return a page of rows that were read with a limit of one more than its own."""
    kept = rows[:limit]
    return Page(kept, kept[-1][cursor] if len(rows) > limit else None, about or {})


class Route(NamedTuple):
    """A verb's route: its summary, and its path below its group's."""

    summary: str
    path: str = ""
    status: int = 200
    method: str = "POST"
    """Of a change; a read is a GET."""


class Model(NamedTuple):
    """Name and description of a model that the API describes: of a page, or of a body."""

    name: str
    doc: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What the console asks before a change."""

    title: str
    button: str
    back: str
    says: Sequence[str]
    """What will happen: sentences with numbers."""

    action: str = ""
    """The URL that the form is posted to."""

    kept: Sequence[tuple[str, str]] = ()
    """Hidden fields."""

    warns: Sequence[str] = ()
    agreed: tuple[str, str] | None = None
    """Name and text of a box that must be ticked."""

    option: tuple[str, str] | None = None
    """Name and text of a box that may be ticked."""

    rate: bool = False
    until: str | None = None
    """Text of the field `until`, a time that may be left out."""

    reason: bool = True
    danger: bool = False
    count: int = 0
    """Must be typed if it is large."""

    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    """The affected rows, one text for each of `columns`."""


class Done(NamedTuple):
    """What the console says after a change, and the page that says it."""

    text: str
    page: str
    tone: str = "good"


@dataclass(frozen=True, slots=True)
class Asked:
    """How the console asks for a verb, and reports it.

    `question` takes the store and the members that the page's URL has.
    """

    path: str
    question: Callable[..., Question]
    done: Callable[[Any, Row], Done]
    """From the result and the members to what is reported."""

    do: str | None = None
    """The value of `do` on the page `selected` that asks for several verbs; None: its own page."""


class Preview(NamedTuple):
    """What a command would do: as JSON and as text."""

    row: Row
    text: Text
    question: str | None
    """To be confirmed, by a person or by `--yes`; None: nothing is asked."""

    shown: Row
    """The values that name what was shown, so that the change is of that and of nothing newer."""


class Screen(NamedTuple):
    """A page of the console: of a list, whose template has the columns, or of one row."""

    path: str
    template: str
    name: str = "row"
    """The name that the template has for the row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """A verb. `text` returns what a terminal shows of its result and the values of its members."""

    run: Callable[..., Any]
    group: "Group"
    word: str
    """The last word of the command."""

    help: str = ""
    """Help of the command; empty: the command line does not have it."""

    text: Callable[..., Text] = lambda *_: ()

    route: Route | None = None
    """None: the API does not have it."""

    least: AccessRole = AccessRole.VIEWER
    """The least role that may use it in the API and in the console."""

    result: Any = None
    """What the API shows of the result, a `TypedDict`; for a list, of each row."""

    changes: bool = False
    body: Model | None = None
    """The model of a change's parameters; None: the reason alone."""

    asks: Callable[..., Preview] | None = None
    """What a command shows before it changes anything, and alone with `--dry-run`; None: nothing.

    It takes what the verb takes.
    """

    bodies: Bodies | None = None
    ends: Callable[[Any], ExitCode] = lambda _: ExitCode.OK
    """The exit code of the command, by its result."""

    screen: Screen | None = None
    """The console's page of a read."""

    asked: Asked | None = None
    """The console's pages of a change."""

    @property
    def members(self) -> list[Member]:
        """The parameters, with those of dataclasses in their place."""
        return [each for _, part in _parts(self.run) for each in part]

    def check(self, values: Row, spell: Callable[[Member], str]) -> None:
        """Raise `CommandError` (usage) for values that need or exclude each other.

        `spell` writes a member's name as the surface does.
        """
        by_name = {each.name: each for each in self.members}
        given = {n: m for n, m in by_name.items() if _is_given(values.get(n), m.default)}
        for member in given.values():
            needed, excluded = member.param.needs, member.param.excludes
            if needed is not None and needed not in given:
                raise CommandError(
                    f"{spell(member)} needs {spell(by_name[needed])}. Nothing was changed.",
                    ExitCode.USAGE,
                    code="missing_parameter",
                )
            if excluded is not None and excluded in given:
                raise CommandError(
                    f"{spell(by_name[excluded])} and {spell(member)} exclude each other. Nothing"
                    " was changed.",
                    ExitCode.USAGE,
                    code="conflicting_parameters",
                )

    def call(
        self, store: OperatorSession, values: Row, run: Callable[..., Any] | None = None
    ) -> Any:
        """Run the verb, or another function, with a value for each of its members."""
        given = {}
        for parameter, part in _parts(self.run):
            of = {each.name: values.get(each.name, each.default) for each in part}
            kind = _composite(parameter)
            given[parameter.name] = of[parameter.name] if kind is None else kind(**of)
        return (run or self.run)(store, **given)


@dataclass(frozen=True, slots=True, kw_only=True)
class List(Verb):
    """A list: the function takes `limit` and `before` or `after`, and returns a `Page`."""

    rows: str
    """The name of the rows in JSON."""

    page: Any = None
    """The model of a page in the API, or the name of one that has the rows and the cursor."""

    empty: str
    """The error of the command for an empty list."""

    about: Mapping[str, Any] = field(default_factory=dict)
    """Types of the members beside the rows."""

    option: str = "before"
    note: Callable[[Page, Row], str | None] = lambda *_: None
    """What a command prints before a page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Export(Verb):
    """An export to a file of JSON lines; the function returns a context of a count and rows."""

    empty: str
    """The error of the command where no row matches."""


Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(slots=True)
class Group:
    """Verbs about one noun, that run on one store."""

    word: str
    """The first word of their commands."""

    help: str
    store: type[OperatorSession]
    path: str = ""
    """The path of its routes, and their tag in the API's description."""

    tag: str = ""
    noun: str = ""
    """The noun in sentences: `dead letter`."""

    screen: str = ""
    """The console's page of the list; below it, `selected` asks what to do with selected rows."""

    verbs: list[Verb] = field(default_factory=list)

    def verb(
        self, word: str, *, of: type[Verb] = Verb, **more: Any
    ) -> Callable[[Function], Function]:
        """Declare a function of the store and of annotated parameters as a verb."""

        def declare(run: Function) -> Function:
            self.verbs.append(of(run=run, group=self, word=word, **more))
            return run

        return declare

    def what(self, rows: Sequence[Row]) -> str:
        """Return what these rows are, in a sentence."""
        one = f"{self.noun} {rows[0]['id']}" if len(rows) == 1 else None
        return one or f"{len(rows)} {self.noun}s"

    def page(self, ids: Iterable[int]) -> str:
        """Return the console's page of one row, or of the list."""
        given = list(ids)
        return f"{self.screen}/{given[0]}" if len(given) == 1 else self.screen

    @property
    def is_command(self) -> bool:
        """Whether the group is a single command, whose verb has no word of its own."""
        return [each.word for each in self.verbs] == [""]

    def __getitem__(self, word: str) -> Verb:
        """Return the verb of this word."""
        return next(each for each in self.verbs if each.word == word)


def some(count: int) -> str:
    """Return a number with the verb of a sentence about the past."""
    return f"{count:,} {'was' if count == 1 else 'were'}"


def _is_given(value: Any, default: Any) -> bool:
    # The number 0 is a value, although it equals False.
    return value is not None and value is not False and value != default


def signed(
    function: Callable[..., Any], parameters: Mapping[str, tuple[Any, Any]], returns: Any = None
) -> Callable[..., Any]:
    """Give a function that takes keywords these parameters, by name: their type and default.

    Frameworks read them from the signature. Parameters that the function has by name stay.
    """
    own = signature(function).parameters.values()
    made = [each for each in own if each.kind is not Parameter.VAR_KEYWORD]
    for name, (kind, default) in parameters.items():
        given = Parameter.empty if default is REQUIRED else default
        made.append(Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind, default=given))
    function.__signature__ = Signature(made, return_annotation=returns)  # type: ignore[attr-defined]
    function.__annotations__ = {each.name: each.annotation for each in made}
    return function


def _parts(run: Callable[..., Any]) -> Iterator[tuple[Parameter, list[Member]]]:
    hints = get_type_hints(run, include_extras=True)
    for parameter in list(signature(run).parameters.values())[1:]:
        kind = _composite(typed := parameter.replace(annotation=hints[parameter.name]))
        if kind is None:
            default = REQUIRED if parameter.default is Parameter.empty else parameter.default
            yield typed, [_member(parameter.name, typed.annotation, default)]
        else:
            inner = get_type_hints(kind, include_extras=True)
            yield (
                typed,
                [
                    _member(f.name, inner[f.name], REQUIRED if f.default is MISSING else f.default)
                    for f in fields(kind)
                ],
            )


def _composite(parameter: Parameter) -> Any:
    return parameter.annotation if is_dataclass(parameter.annotation) else None


def _member(name: str, annotation: Any, default: Any) -> Member:
    if get_origin(annotation) is not Annotated:
        return Member(name, annotation, default, Param())
    kind, *metadata = get_args(annotation)
    [param] = [each for each in metadata if isinstance(each, Param)]
    return Member(name, kind, default, param)


OfEndpoint = Annotated[str | None, Param("Only this endpoint.", Kind.NAME, label="Endpoint")]
OfSubject = Annotated[
    str | None, Param("Only this subject.", Kind.TEXT, label="Subject", hint="m_482")
]
Limit = Annotated[int, Param("Maximum number of rows.", Kind.LIMIT)]
BeforeId = Annotated[int | None, Param("Only rows with an id below this one.", Kind.BEFORE_ID)]
Number = Annotated[int, Param(kind=Kind.ID, argument="ID")]
Ids = Annotated[list[int], Param("Ids, as `list` shows them.", Kind.IDS, argument="ID...")]
WHY = "Why; kept in the audit trail."
Reason = Annotated[str, Param(WHY, Kind.REASON)]
Rate = Annotated[int | None, Param(kind=Kind.RATE)]
PlanId = Annotated[UUID, Param(kind=Kind.PLAN)]
Open = Annotated[
    bool,
    Param(
        "Only unresolved ones; false: all.",
        command_help="Only unresolved ones, or all.",
        option="--open/--all",
    ),
]
Resolved = Annotated[bool, Param("Only resolved ones.")]
OfStream = Annotated[str | None, Param("Only this stream.", Kind.NAME, label="Stream")]
Since = Annotated[
    datetime | None,
    Param(command_help=f"Only from this time on, in UTC: {FORMS}.", kind=Kind.TIME, label="Since"),
]
Until = Annotated[
    datetime | None,
    Param(
        command_help="Only before this time; same formats as --since.",
        kind=Kind.TIME,
        label="Before",
    ),
]
Before = Annotated[
    str | None,
    Param("Only older rows: the cursor printed under the previous page.", Kind.CURSOR),
]
Key = Annotated[
    contract.Key, Param("The key as receivers get it: hf_...", Kind.KEY, argument="KEY")
]
QueryId = Annotated[
    UUID | None,
    Param("The checkpoint's query id. Default: the one the stream has adopted.", Kind.UUID),
]
Keys = Annotated[list[str], Param("Keys as receivers get them: hf_...", Kind.KEYS)]
Dsn = Annotated[str | None, Param(kind=Kind.SETTING)]
ReissueLimit = Annotated[int, Param(kind=Kind.SETTING)]
