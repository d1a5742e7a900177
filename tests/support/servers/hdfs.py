"""A real HDFS: a NameNode and a DataNode, each in a process of its own, from one pinned jar.

The jar is of the Hadoop version that pyspark ships, whose jars it needs; `make hdfs-jar` stages it.
"""

import hashlib
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

import pytest

from holdfast.deploy.local.java import find_java
from holdfast.deploy.local.ports import free_port
from tests.support.waiting import eventually

JAR = Path(".holdfast/hdfs/hadoop-client-minicluster-3.5.0.jar")
SHA256 = "06772d24529e59939915979b3edba204d367750ef7dc5120411f35221dd4818c"

SECONDS = 120
"""How long a process may take to start, on a busy machine."""

_OPTIONS = ("-Xmx192m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xss512k")
_NODES = "org.apache.hadoop.hdfs.server"
_NAME_NODE = f"{_NODES}.namenode.NameNode"
_DATA_NODE = f"{_NODES}.datanode.DataNode"

_PROPERTY = "<property><name>{}</name><value>{}</value></property>"


@cache
def why_not() -> str | None:
    """Why there is no HDFS here; None where it can be started."""
    if not JAR.is_file():
        return f"no HDFS: {JAR} is not there; `make hdfs-jar` downloads it with Maven"
    if hashlib.sha256(JAR.read_bytes()).hexdigest() != SHA256:
        return f"no HDFS: {JAR} has another SHA-256 than the pinned one; remove it"
    return None


@dataclass
class Hdfs:
    """One cluster; its ports and data outlive a stop of its NameNode. Paths begin with `/`."""

    folder: Path
    port: int
    web_port: int
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def uri(self) -> str:
        return f"hdfs://127.0.0.1:{self.port}"

    def stop(self) -> None:
        """Kill the NameNode: from here on nobody can open a file."""
        self._end(_NAME_NODE)

    def start(self) -> None:
        """Start the NameNode, on what it has; returns when files can be written."""
        self._start(_NAME_NODE)
        eventually(self._ready, SECONDS)

    def put(self, path: str, content: bytes, modified: int | None = None) -> None:
        """Put a file with all its content in its place; `modified` in seconds since 1970."""
        part = f"{path.rpartition('/')[0]}/.{path.rpartition('/')[2]}.part"
        place = self._ask("PUT", part, "CREATE", overwrite="true", noredirect="true")
        request = Request(place["Location"], content, method="PUT")  # noqa: S310 - of the NameNode
        urlopen(request, timeout=SECONDS).close()  # noqa: S310 - as above
        if modified is not None:
            self._ask("PUT", part, "SETTIMES", modificationtime=str(modified * 1000))
        self.delete(path)
        self.rename(part, path)

    def read(self, path: str) -> bytes:
        place = self._ask("GET", path, "OPEN", noredirect="true")
        with urlopen(place["Location"], timeout=SECONDS) as answer:  # noqa: S310 - of the NameNode
            return bytes(answer.read())

    def names(self, folder: str) -> list[str]:
        """The names in a folder; none where there is no such folder."""
        try:
            answer = self._ask("GET", folder, "LISTSTATUS")
        except HTTPError as error:
            if error.code == 404:
                return []
            raise
        return [each["pathSuffix"] for each in answer["FileStatuses"]["FileStatus"]]

    def copy(self, folder: str, to: Path) -> None:
        """Copy a folder with everything in it to the local disk."""
        to.mkdir()
        for each in self._ask("GET", folder, "LISTSTATUS")["FileStatuses"]["FileStatus"]:
            name = each["pathSuffix"]
            if each["type"] == "DIRECTORY":
                self.copy(f"{folder}/{name}", to / name)
            else:
                (to / name).write_bytes(self.read(f"{folder}/{name}"))

    def rename(self, path: str, to: str) -> None:
        assert self._ask("PUT", path, "RENAME", destination=to)["boolean"], (path, to)

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with everything in it."""
        self._ask("DELETE", path, "DELETE", recursive="true")

    def close(self) -> None:
        for name in list(self._processes):
            self._end(name)

    def begin(self) -> None:
        """Make an empty file system and start both."""
        settings = {
            "fs.defaultFS": self.uri,
            "dfs.namenode.name.dir": self.folder / "name",
            "dfs.datanode.data.dir": self.folder / "data",
            "dfs.replication": 1,
            "dfs.namenode.safemode.extension": 0,
            "dfs.namenode.http-address": f"127.0.0.1:{self.web_port}",
            "dfs.datanode.address": "127.0.0.1:0",
            "dfs.datanode.http.address": "127.0.0.1:0",
            "dfs.datanode.ipc.address": "127.0.0.1:0",
            "dfs.datanode.hostname": "127.0.0.1",
            "dfs.namenode.datanode.registration.ip-hostname-check": "false",
            "dfs.heartbeat.interval": 1,
        }
        properties = "".join(_PROPERTY.format(*each) for each in settings.items())
        for name in ("core-site.xml", "hdfs-site.xml"):
            (self.folder / name).write_text(f"<configuration>{properties}</configuration>")
        # It waits for the NameNode.
        self._start(_DATA_NODE)
        self._start(_NAME_NODE, "-format", "-nonInteractive")
        code = self._processes[_NAME_NODE].wait(SECONDS)
        assert code == 0, (self.folder / "NameNode.txt").read_text()
        self.start()

    def _ready(self) -> bool:
        code = self._processes[_NAME_NODE].poll()
        assert code is None, (self.folder / "NameNode.txt").read_text()
        query = "Hadoop:service=NameNode,name=FSNamesystemState"
        with suppress(OSError, LookupError, ValueError):
            data = _json(f"http://127.0.0.1:{self.web_port}/jmx?{urlencode({'qry': query})}")
            state = data["beans"][0]
            return bool(state["NumLiveDataNodes"] == 1 and state["FSState"] == "Operational")
        return False

    def _start(self, main: str, *words: str) -> None:
        spec = find_spec("pyspark")
        assert spec
        assert spec.origin
        jars = Path(spec.origin).parent / "jars"
        where = os.pathsep.join([str(self.folder), str(JAR.absolute()), f"{jars}/*"])
        java = find_java() / "bin" / "java"
        with (self.folder / f"{main.rpartition('.')[2]}.txt").open("ab") as log:
            self._processes[main] = subprocess.Popen(
                [str(java), *_OPTIONS, "-cp", where, main, *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _end(self, main: str) -> None:
        process = self._processes.pop(main)
        process.kill()
        process.wait()

    def _ask(self, method: str, path: str, operation: str, **query: str) -> dict[str, Any]:
        asked = urlencode({"op": operation, "user.name": "root", **query})
        address = f"http://127.0.0.1:{self.web_port}/webhdfs/v1{quote(path)}?{asked}"
        return _json(address, method)


def _json(address: str, method: str = "GET") -> dict[str, Any]:
    request = Request(address, method=method)  # noqa: S310 - made here
    with urlopen(request, timeout=SECONDS) as answer:  # noqa: S310 - as above
        text = answer.read()
    data: dict[str, Any] = json.loads(text) if text else {}
    return data


@contextmanager
def hdfs(folder: Path) -> Iterator[Hdfs]:
    """Start a cluster, or skip what needs it; both processes have ended afterwards."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    cluster = Hdfs(folder, free_port(), free_port())
    try:
        cluster.begin()
        yield cluster
    finally:
        cluster.close()
