"""A stranger's bytes become text that can be stored and shown."""

import html
import json
import subprocess
from collections.abc import Callable
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.dispatcher.shared.text import (
    HIDDEN_CHARACTERS_MIN,
    hide,
    last_word,
    one_line,
    spellings,
    storable,
)
from holdfast.sink.contract.shell import shell_word


@given(st.binary(max_size=6000))
def test_any_body_becomes_bounded_text_that_postgres_takes(raw: bytes) -> None:
    text = storable(raw)
    assert (text is None) == (raw == b"")
    if text is not None:
        assert len(text.encode()) <= 4096
        assert "\x00" not in text
        assert "\x1b" not in text


def test_bodies_are_cut_between_characters() -> None:
    assert storable("é".encode() * 3000) == "é" * 2048


def test_secrets_and_signatures_are_masked() -> None:
    echoed = b'{"secret":"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw","sig":"v1,g0hM9SsE+OTPJTGt/tm="}'
    assert storable(echoed) == '{"secret":"***","sig":"***"}'
    assert storable(b"Authorization: Bearer abcdefghijk.123") == "Authorization: Bearer ***"


VISIBLE = st.characters(min_codepoint=0x21, max_codepoint=0x7E)
VALUES = st.text(VISIBLE, min_size=HIDDEN_CHARACTERS_MIN, max_size=40).filter(
    lambda value: "*" not in value
)


@given(
    st.lists(VALUES, min_size=1, max_size=4),
    st.text(),
    st.sampled_from(["", "Bearer ", "basic ", "whsec_"]),
    st.sampled_from([str, json.dumps, html.escape, lambda value: quote(value, safe="")]),
)
def test_no_value_that_a_receiver_repeats_is_left(
    values: list[str], between: str, before: str, written: Callable[[str], str]
) -> None:
    hidden = spellings(f"{before}{value}" for value in values)
    said = between.replace("*", "").join(written(value) for value in values)
    text = hide(said, hidden)
    assert not any(each in text for each in hidden)
    stored = storable(said.encode(errors="replace"), hidden=hidden)
    assert not any(each in (stored or "") for each in hidden)


@given(VALUES, st.integers(HIDDEN_CHARACTERS_MIN))
def test_value_that_is_cut_off_is_not_left(value: str, length: int) -> None:
    cut = value[: HIDDEN_CHARACTERS_MIN + length % len(value)]
    assert hide(f"= {cut}", spellings([value])) == "= ***"


def test_short_values_and_other_words_are_left() -> None:
    assert spellings(["short", "Bearer short"]) == spellings(["Bearer short"])
    assert hide("a short answer", spellings(["short"])) == "a short answer"
    assert storable(b"an answer", hidden=spellings(["another"])) == "an answer"


@pytest.mark.parametrize("written", ["a/b+c=d", r"a\/b+c=d", "a%2Fb%2Bc%3Dd"])
def test_token_is_hidden_without_its_scheme_and_as_others_write_it(written: str) -> None:
    assert hide(f"no: {written}.", spellings(["Bearer a/b+c=d"])) == "no: ***."


def test_errors_are_one_bounded_line() -> None:
    assert one_line("a\n  b\x1b[31m") == "a b�[31m"
    assert len(one_line("x" * 5000)) == 300
    assert one_line("lone \ud800").encode()


def test_any_name_reaches_a_command_exactly_through_the_shell() -> None:
    names = [
        *("m_1", "", "m  two", " m ", "it's $(x)", "`x` !x \\\\ \\n *", '"', "é\u20ac\U0001f600"),
        *(
            "m\ttab",
            "a\nb\n",
            "\x1b[2J'\\\\!",
            "nbsp\xa0end",
            "\u202e\x9fab",
            "x" * 700,
            "whsec_abcdefgh",
        ),
        *("-x", "--help", "-\t"),
    ]
    words = [shell_word(name) for name in names]
    assert all(word.isprintable() for word in words)
    script = f"printf '%s\\0' {' '.join(words)}"
    done = subprocess.run(["/bin/bash", "-c", script], capture_output=True, check=True)
    assert done.stdout.decode().split("\0")[:-1] == names


def test_last_word_of_a_command_is_no_option() -> None:
    assert (last_word("m_1"), last_word("-x"), last_word("-\t")) == ("m_1", "-- -x", "-- $'-\\x09'")
