"""Standard error as one process writes it, and as those of one dispatcher share it."""

import os
from collections.abc import Iterator
from select import POLLOUT
from threading import Thread

import pytest

from holdfast.sink.contract.standard_error import StandardError


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    os.close(reader)
    os.close(writer)


def test_room_that_another_process_took_is_not_waited_for(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = pipe

    class Taken:
        def poll(self, _milliseconds: int) -> list[tuple[int, int]]:
            os.set_blocking(writer, False)
            try:
                while os.write(writer, b"x" * 4096):
                    pass
            except BlockingIOError:
                os.set_blocking(writer, True)
            return [(writer, POLLOUT)]

    output = StandardError(writer)
    monkeypatch.setattr(output, "_room", Taken())
    writing = Thread(target=output.write, args=(b"a line\n",), daemon=True)
    writing.start()
    writing.join(5)
    waits = writing.is_alive()
    os.read(reader, 1 << 20)
    writing.join(60)
    assert not waits
    assert output.dropped == 1
    assert os.get_blocking(writer), "the other processes write as before"


def test_line_that_is_written_in_pieces_is_one_line(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    output = StandardError(writer)
    for piece in (b"a ", b"line", b"\n", b"another\n"):
        output.write(piece)  # as `print` does
    assert os.read(reader, 1 << 10) == b"a line\nanother\n"
