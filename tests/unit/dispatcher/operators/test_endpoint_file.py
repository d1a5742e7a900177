"""The file of `holdfast endpoint apply`: what it may hold, and what applying it changes."""

import re
from pathlib import Path
from typing import Any

import pytest

from holdfast.dispatcher import delivery
from holdfast.dispatcher.cli.endpoints.settings import PARAMETERS
from holdfast.dispatcher.operators.endpoints import file
from holdfast.dispatcher.operators.endpoints.file import (
    Action,
    EndpointFileError,
    Step,
    parse,
    plan,
)
from holdfast.dispatcher.operators.endpoints.settings import (
    DEFAULTS,
    SETTINGS,
    fault_of,
    label_of,
    option_of,
)
from holdfast.dispatcher.outbound.operator_headers import LITERALS
from holdfast.sink.contract.tables.delivery import endpoint
from tests.support.documents.endpoint_settings import PAGE, page

UPKEEP = Path(delivery.__file__).parent / "store" / "sql" / "upkeep.sql"
STATEMENTS = Path(file.__file__).with_name("statements.sql")

HEAD = '[endpoint.payouts]\nurl = "https://payouts.example/"\nsecret_refs = ["env:S"]\n'
LEAST = {**DEFAULTS, "name": "payouts", "url": "https://payouts.example/", "secret_refs": ["env:S"]}


def only(text: str) -> dict[str, Any]:
    [settings] = parse(text).values()
    return settings


def complaint(text: str) -> str:
    with pytest.raises(EndpointFileError) as caught:
        parse(text)
    return str(caught.value)


def test_a_setting_that_is_left_out_has_its_default() -> None:
    assert only(HEAD) == LEAST


@pytest.mark.parametrize(
    ("line", "column", "value"),
    [
        ('types = ["b", "a"]', "types", ["a", "b"]),
        ('allow_cidrs = ["10.0.0.0/8"]', "allow_cidrs", ["10.0.0.0/8"]),
        ('headers = {X-Token = "env:T"}', "headers", {"x-token": "env:T"}),
        ('headers_literal = {X-Tenant = "eu"}', "headers_literal", {"x-tenant": "eu"}),
        ('envelope = "cloudevents"', "envelope", "cloudevents"),
        ('ca_ref = "file:/ca.pem"', "ca_ref", "file:/ca.pem"),
        ("rate_per_second = 50", "rate_per_second", 50),
        ("rate_per_second = 0", "rate_per_second", None),
        ("schedule_seconds = [0, 604800]", "schedule_seconds", [0, 604_800]),
        ('order_policy = "skip"', "order_policy", "skip"),
        ('inquiry_path = "default"', "inquiry_path", "/holdfast/keys/"),
        ('inquiry_path = "/v1/"', "inquiry_path", "/v1/"),
        ("breaker_threshold = 0", "breaker_threshold", 0),
        ("concurrency = 1024", "concurrency", 1024),
    ],
)
def test_a_setting_becomes_its_column(line: str, column: str, value: Any) -> None:
    assert only(HEAD + line) == {**LEAST, column: value}


def test_connect_timeout_is_within_the_total_timeout() -> None:
    assert only(HEAD + "total_timeout_ms = 900")["connect_timeout_ms"] == 900


def test_every_setting_of_an_endpoint_can_stand_in_a_file() -> None:
    assert set(SETTINGS) == {*DEFAULTS, "url", "secret_refs"}
    not_set = {"id", "name", "state", "state_reason", "created_at", "updated_at"}
    columns = {each.name for each in endpoint.columns if not each.name.startswith("starts_")}
    assert set(SETTINGS) - {LITERALS} == columns - not_set


def _section(file: Path, name: str) -> str:
    return file.read_text().split(f"-- name: {name}\n")[1].split("-- name: ")[0]


@pytest.mark.parametrize("names", ["add set_streams", "set set_streams", "take", "show"])
def test_statement_has_every_setting(names: str) -> None:
    text = "".join(_section(STATEMENTS, name) for name in names.split())
    assert [each for each in SETTINGS if each != LITERALS and each not in text] == []


def test_operators_read_what_the_dispatcher_reads_to_send() -> None:
    texts = _section(STATEMENTS, "outbound"), _section(UPKEEP, "endpoint_load")
    operators, dispatcher = (set(re.findall(r"\bp\.(\w+)", text)) for text in texts)
    assert operators == dispatcher


def test_page_of_settings_has_every_row_of_the_table() -> None:
    """After a change that is meant: `make settings`."""
    assert PAGE.read_text() == page()


@pytest.mark.parametrize("scheme", ["HTTPS", "HttpS", "http"])
def test_scheme_in_capitals_is_stored_as_the_table_wants_it(scheme: str) -> None:
    stored = SETTINGS["url"].check(f"{scheme}://Pay.example/Hook?A=B")
    assert stored == f"{scheme.lower()}://Pay.example/Hook?A=B"


def test_fault_names_settings_as_each_surface_does() -> None:
    fault = fault_of({**LEAST, "url": "http://{url}.example/", "client_cert_ref": None})
    assert fault is not None
    assert str(fault) == "url is plain http://, which needs allow_cidrs for its network"
    assert fault.spelled(option_of).startswith("--url is plain http://, which needs --allow-cidr")
    assert fault.spelled(label_of).startswith("URL is plain http://, which needs Private addresses")
    named = fault_of({**LEAST, "headers": {"{url}": "env:S"}})
    assert named is not None
    assert "'{url}'" in named.spelled(option_of), "what an operator wrote stands as it is"


def test_every_setting_has_an_option() -> None:
    assert set(SETTINGS) == {setting.column for setting in PARAMETERS.values()}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "names no endpoint"),
        ("endpoint = 3", "names no endpoint"),
        ("[endpoint]\npayouts = 3", "is not a table"),
        ("[endpoints.payouts]", "[endpoint.NAME]"),
        ("[endpoint.payouts", "not valid TOML"),
        ("[endpoint.Payouts]", "not a valid endpoint name"),
        ("[endpoint.payouts]", "has no url and no secret_refs"),
        (HEAD + "concurency = 1", "did you mean concurrency?"),
        (HEAD + "total_timeout = 1", "did you mean total_timeout_ms?"),
        (HEAD + 'secret_ref = "env:S"', "did you mean secret_refs?"),
        (HEAD + "zzz = 1", "there are url, types"),
        (HEAD + 'state = "paused"', "endpoint pause"),
        (HEAD + "from_beginning = true", "--from-beginning"),
        ("[endpoint.payouts.eu]\nurl = 3", "quoted"),
        (HEAD + "concurrency = 0", "1 to 1024"),
        (HEAD + "concurrency = true", "1 to 1024"),
        (HEAD + "concurrency = 1.5", "1 to 1024"),
        (HEAD + "schedule_seconds = []", "1 to 32"),
        (HEAD + "schedule_seconds = [-1]", "0 to 604800"),
        (HEAD + "budget_seconds = 59", "60 to 2592000"),
        (HEAD + 'ca_ref = "file:/a\\u0000"', "characters that print"),
        (HEAD + 'types = "payout_hold.block"', "list of texts"),
        (HEAD + 'types = ["a b"]', "list of types"),
        (HEAD + 'allow_cidrs = ["10.0.0.1/8"]', "behind the mask"),
        (HEAD + 'headers = {x-a = "1", X-A = "2"}', "twice"),
        (HEAD + 'allow_cidrs = ["fe80::1%eth0/128"]', "zone"),
        (HEAD + 'types = ["a.b", "c.d", "a.b"]', "a.b twice"),
        (HEAD.replace('"env:S"', '"env:S", "env:S"'), "two different"),
        (HEAD + "headers = {x-a = 1}", "must be a text"),
        (HEAD + 'headers = {x-jwt = "hunter2"}', "headers_literal"),
        (HEAD + 'headers = {x-jwt = "***"}', "headers_literal"),
        (HEAD + 'headers_literal = {x-jwt = "***"}', "masks a stored literal"),
        (HEAD + 'headers_literal = {x-jwt = "env:T"}', "stands in headers"),
        (HEAD + 'envelope = "xml"', "standard or cloudevents"),
        (HEAD + 'inquiry_path = "keys?"', "must be default or a path"),
        (HEAD.replace("https", "ftp"), "must be http:// or https://"),
    ],
)
def test_invalid_endpoint_setting_is_refused(text: str, words: str) -> None:
    assert words in complaint(text)


@pytest.mark.parametrize(
    "text",
    [
        HEAD.replace("env:S", "whsec_hunter2"),
        HEAD + 'secret = "whsec_hunter2"',
        HEAD + 'client_key_ref = "-----BEGIN hunter2"',
        HEAD.replace("payouts.example", "user:hunter2@payouts.example"),
        HEAD.replace("payouts.example", "payouts.example:hunter2"),
        HEAD + 'envelope = "hunter2"',
    ],
)
def test_a_secret_in_a_file_is_refused_and_not_repeated(text: str) -> None:
    assert "hunter2" not in complaint(text)


WANTED = {**DEFAULTS, "name": "payouts", "url": "https://a.example/", "secret_refs": ["env:S"]}


def one(wanted: dict[str, Any], row: dict[str, Any] | None = None, **state: Any) -> Step:
    result = {} if row is None else {"payouts": {**row, "state": "active", "leased_lanes": 0}}
    for each in result.values():
        each.update(state)
    [step] = plan({"payouts": wanted}, result)
    return step


def test_missing_endpoint_is_added() -> None:
    step = one(WANTED)
    assert (step.action, step.before, step.blocked) == (Action.ADD, {}, None)
    assert {**step.after, "name": "payouts"} == WANTED


def test_one_that_is_like_this_already_is_left_as_it_is() -> None:
    assert one(WANTED, WANTED).action is Action.NOTHING


def test_change_has_both_values_of_what_differs_only() -> None:
    step = one({**WANTED, "rate_per_second": 5}, WANTED)
    assert (step.action, step.before, step.after) == (
        Action.CHANGE,
        {"rate_per_second": None},
        {"rate_per_second": 5},
    )


def test_the_same_networks_in_another_form_are_no_difference() -> None:
    row = {**WANTED, "allow_cidrs": ["::ffff:10.0.0.0/104", "10.0.0.0/8"]}
    assert one({**WANTED, "allow_cidrs": ["10.0.0.0/8", "::ffff:a00:0/104"]}, row).action is (
        Action.NOTHING
    )


@pytest.mark.parametrize(
    ("state", "leased", "words"),
    [("active", 0, "endpoint pause payouts"), ("paused", 2, "2 subjects"), ("paused", 0, None)],
)
def test_other_types_wait_until_nothing_is_sent(state: str, leased: int, words: str | None) -> None:
    step = one({**WANTED, "types": ["a"]}, WANTED, state=state, leased_lanes=leased)
    assert step.blocked is None if words is None else words in str(step.blocked)
