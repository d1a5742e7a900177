"""What is decided about a cluster before any process starts."""

import json
import os
import sys
from pathlib import Path

import pytest

from holdfast.deploy.local import binaries, cluster, process, sockets
from holdfast.deploy.local.account import Account, account_for
from holdfast.deploy.local.postgres import EmbeddedPostgres
from holdfast.sink.contract.exits import CommandError

MYSELF = Account(os.geteuid(), os.getegid(), switch=False)


def cluster_of(major: str, directory: Path) -> Path:
    """Lay out the files by which a cluster of `major` is known."""
    data = directory / "data"
    data.mkdir(parents=True)
    (data / "PG_VERSION").write_text(f"{major}\n")
    state = {"major": 18, "data": "data", "made": True}
    (directory / "cluster.json").write_text(json.dumps(state))
    return data


def test_cluster_of_a_major_that_is_not_shipped_is_refused_untouched(tmp_path: Path) -> None:
    data = cluster_of("14", tmp_path)
    with pytest.raises(CommandError, match=r"needs Postgres 14, .*16 and 18.*HOLDFAST_DSN"):
        EmbeddedPostgres(tmp_path).start()
    assert [path.name for path in data.iterdir()] == ["PG_VERSION"]


def test_data_directory_has_the_last_word_about_its_major(tmp_path: Path) -> None:
    data = cluster_of("16", tmp_path)
    known = cluster.load(tmp_path)
    assert known == cluster.Cluster(tmp_path, data, 16)
    assert known.made


def test_lost_data_are_never_replaced_by_an_empty_cluster(tmp_path: Path) -> None:
    data = cluster_of("18", tmp_path)
    (data / "PG_VERSION").unlink()
    data.rmdir()
    with pytest.raises(CommandError, match=r"is missing.*or remove"):
        EmbeddedPostgres(tmp_path).start()
    assert not data.exists()


def test_lost_password_is_said_in_one_line(tmp_path: Path) -> None:
    cluster_of("18", tmp_path)
    known = cluster.load(tmp_path)
    assert known
    with pytest.raises(CommandError, match=r"cannot be read from .*credentials\.json"):
        _ = known.password


def test_damaged_state_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text("{")
    with pytest.raises(CommandError, match=r"cannot be read.*nothing was changed"):
        cluster.load(tmp_path)


def test_directory_may_be_moved_as_a_whole(tmp_path: Path) -> None:
    cluster_of("18", tmp_path / "here")
    (tmp_path / "here").rename(tmp_path / "there")
    moved = cluster.load(tmp_path / "there")
    assert moved
    assert moved.data == tmp_path / "there" / "data"
    assert moved.made


def test_missing_wheel_names_the_alternative(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, binaries.PACKAGE, None)  # as if it were not installed
    with pytest.raises(CommandError, match=r"not installed.*HOLDFAST_DSN") as caught:
        EmbeddedPostgres(tmp_path / "local").start()
    assert "\n" not in str(caught.value)


def test_directory_that_cannot_be_written_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CommandError, match=r"cannot be used.*--directory"):
        EmbeddedPostgres(tmp_path / "file" / "local").start()


def test_pid_of_a_living_stranger_is_not_the_server(tmp_path: Path) -> None:
    (tmp_path / "postmaster.pid").write_text(
        f"{os.getpid()}\n{tmp_path}\n0\n5432\n/tmp\n\n\nready\n"
    )
    assert process.find(tmp_path) is None


def test_socket_folder_is_the_first_that_is_short_enough(tmp_path: Path) -> None:
    short = tmp_path / "s"
    short.mkdir()
    long = tmp_path / ("l" * 100)
    long.mkdir()
    folder = sockets.make_socket_folder(tmp_path / "data", MYSELF, [long, short])
    assert folder.parent == short
    assert folder == sockets.make_socket_folder(tmp_path / "data", MYSELF, [short])
    assert folder != sockets.make_socket_folder(tmp_path / "other", MYSELF, [short])
    assert len(os.fsencode(sockets.socket_path(folder))) <= sockets.LENGTH_MAX


def test_socket_path_beyond_the_limit_is_said_with_its_length(tmp_path: Path) -> None:
    long = tmp_path / ("ü" * 60)
    long.mkdir()
    length = len(os.fsencode(long)) + len("/holdfast-0123456789ab/.s.PGSQL.5432")
    with pytest.raises(CommandError, match=rf"{length} bytes, the limit is 10\d.*TMPDIR"):
        sockets.make_socket_folder(tmp_path / "data", MYSELF, [long])


def test_socket_folder_that_is_a_link_is_not_trusted(tmp_path: Path) -> None:
    folder = sockets.make_socket_folder(tmp_path / "data", MYSELF, [tmp_path])
    folder.rmdir()
    folder.symlink_to(tmp_path)
    with pytest.raises(CommandError, match=r"belongs to another account"):
        sockets.make_socket_folder(tmp_path / "data", MYSELF, [tmp_path])


def test_nobody_is_asked_to_run_postgres_as_root() -> None:
    assert account_for(None).uid != 0
