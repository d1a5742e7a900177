"""A stranger's bytes become text that can be stored and shown."""

import subprocess

from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.text import last_word, one_line, shell_word, storable


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
