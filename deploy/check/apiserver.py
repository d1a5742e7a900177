"""`python -m holdfast.deploy.check.apiserver`: give the overlays to an API server.

The server is a real one without nodes. It starts etcd and kube-apiserver, asks the server for a dry
run of both overlays, applies what it can, creates each pod under the enforced standard
`restricted`, and ends both.
"""

import argparse
import json
import os
import secrets
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.error import URLError
from urllib.request import Request, urlopen

from holdfast.deploy.check.pods import pods
from holdfast.deploy.check.project import OVERLAYS, Document, Project, loaded
from holdfast.deploy.local.ports import free_port

PROGRAMS = Path(".holdfast/kube")

READY_SECONDS = 120.0
POLL_SECONDS = 0.2
KUBECTL_SECONDS = 120
STOP_SECONDS = 30

NAMESPACE = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {
        "name": "holdfast",
        "labels": {"pod-security.kubernetes.io/enforce": "restricted"},
    },
}


class Server:
    """A kube-apiserver with its etcd, in a folder; nothing outlives `stop`."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self._folder = folder
        self._token = secrets.token_hex(16)
        etcd, peer, self._port = (free_port() for _ in range(3))
        (folder / "tokens.csv").write_text(f'{self._token},checker,1,"system:masters"\n')
        key = folder / "accounts.pem"
        generate = ("openssl", "genrsa", "-out", str(key), "2048")
        subprocess.run(generate, check=True, capture_output=True)
        self._started: list[subprocess.Popen[bytes]] = []
        self._start(
            str(programs / "etcd"),
            f"--data-dir={folder / 'etcd'}",
            f"--listen-client-urls=http://127.0.0.1:{etcd}",
            f"--advertise-client-urls=http://127.0.0.1:{etcd}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}",
            "--unsafe-no-fsync",
        )
        self._start(
            str(programs / "kube-apiserver"),
            f"--etcd-servers=http://127.0.0.1:{etcd}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._port}",
            f"--cert-dir={folder / 'certificates'}",
            f"--token-auth-file={folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--endpoint-reconciler-type=none",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--service-account-issuer=https://holdfast.invalid",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--disable-admission-plugins=ServiceAccount",
        )
        self.settings = folder / "kubeconfig"
        self.settings.write_text(json.dumps(self._kubeconfig()))

    def _start(self, *command: str) -> None:
        name = Path(command[0]).name
        with (self._folder / f"{name}.log").open("wb") as log:
            self._started.append(subprocess.Popen(command, stdout=log, stderr=log))

    def _kubeconfig(self) -> dict[str, object]:
        where = {"server": f"https://127.0.0.1:{self._port}", "insecure-skip-tls-verify": True}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "here", "cluster": where}],
            "users": [{"name": "checker", "user": {"token": self._token}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "checker"}}],
            "current-context": "here",
        }

    def wait(self) -> None:
        """Wait until the server is ready. Raises `SystemExit` with the end of its log."""
        until = time.monotonic() + READY_SECONDS
        while time.monotonic() < until and all(each.poll() is None for each in self._started):
            if self._is_ready():
                return
            time.sleep(POLL_SECONDS)
        log = (self._folder / "kube-apiserver.log").read_text()[-2000:]
        raise SystemExit(f"the API server did not become ready:\n{log}")

    def _is_ready(self) -> bool:
        request = Request(
            f"https://127.0.0.1:{self._port}/readyz",
            headers={"Authorization": f"Bearer {self._token}"},
        )
        # Its certificate is its own, made a moment ago.
        context = ssl._create_unverified_context()  # noqa: S323, SLF001 - see above
        try:
            with urlopen(request, timeout=5, context=context) as answer:  # noqa: S310 - as above
                return bool(answer.status == 200)
        except (URLError, OSError):
            return False

    def stop(self) -> None:
        """End both, the API server first."""
        for process in reversed(self._started):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def kubectl(self, *words: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run kubectl; its exit code is the caller's to judge."""
        command = ("kubectl", f"--kubeconfig={self.settings}", *words)
        return subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=KUBECTL_SECONDS,
            env={"PATH": os.environ["PATH"], "HOME": str(self._folder)},
        )


@contextmanager
def running(programs: Path) -> Iterator[Server]:
    """Yield a server that is ready."""
    with TemporaryDirectory(prefix="holdfast-kube-") as folder:
        server = Server(programs, Path(folder))
        try:
            server.wait()
            yield server
        finally:
            server.stop()


def faults(server: Server, project: Project, crds: Sequence[Path]) -> Iterator[str]:
    """Yield what the server refuses; an overlay that it took is applied and deleted again."""
    for path in crds:
        yield from _refused(path.name, server.kubectl("create", "-f", str(path)))
    for path in crds:
        names = [f"crd/{each['metadata']['name']}" for each in loaded(path.read_text())]
        ready = ("wait", "--for=condition=established", "--timeout=60s", *names)
        yield from _refused(path.name, server.kubectl(*ready))
    if server.kubectl("get", "namespace", "holdfast").returncode:
        created = server.kubectl("create", "-f", "-", stdin=json.dumps(NAMESPACE))
        yield from _refused("the namespace", created)
    known = server.kubectl("api-resources", "--no-headers").stdout
    kinds = {line.split()[-1] for line in known.splitlines()}
    for name in OVERLAYS:
        documents = project.overlay(name)
        for kind in sorted({each.kind for each in documents} - kinds):
            sys.stdout.write(f"overlay {name}: the server has no {kind}: pass its --crd\n")
        yield from _overlay(server, name, [each for each in documents if each.kind in kinds])


def _overlay(server: Server, name: str, documents: list[Document]) -> Iterator[str]:
    contents = _as_list([each.content for each in documents])
    apply = ("apply", "--server-side", "--validate=strict")
    tried = server.kubectl(*apply, "--dry-run=server", "-f", "-", stdin=contents)
    refused = list(_refused(f"overlay {name}", tried))
    yield from refused
    if not refused:
        yield from _refused(f"overlay {name}", server.kubectl(*apply, "-f", "-", stdin=contents))
        again = server.kubectl("diff", "--server-side", "-f", "-", stdin=contents)
        if again.returncode:
            yield f"overlay {name}: what was applied differs: {again.stdout}{again.stderr}"
    for pod in pods(documents):
        if not pod.part:
            content = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "tried", "namespace": "holdfast", "labels": pod.labels},
                "spec": pod.spec | {"volumes": _without_claims(pod.spec, documents)},
            }
            create = ("create", "--dry-run=server", "--validate=strict", "-f", "-")
            yield from _refused(str(pod), server.kubectl(*create, stdin=json.dumps(content)))
    server.kubectl("delete", "--wait=false", "-f", "-", stdin=contents)


def _without_claims(spec: dict[str, object], documents: list[Document]) -> list[object]:
    """Return the volumes of a pod, with one for each claim that a StatefulSet would make."""
    volumes = spec.get("volumes")
    named = list(volumes) if isinstance(volumes, list) else []
    made = {
        claim["metadata"]["name"]
        for each in documents
        for claim in each.spec.get("volumeClaimTemplates", ())
    }
    return [*named, *({"name": name, "emptyDir": {}} for name in sorted(made))]


def _as_list(contents: list[dict[str, object]]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": contents})


def _refused(where: str, done: subprocess.CompletedProcess[str]) -> Iterator[str]:
    if done.returncode:
        yield f"{where}: {done.stderr.strip() or done.stdout.strip()}"
    elif "Warning" in done.stderr:
        yield f"{where}: {done.stderr.strip()}"


def main() -> None:
    """Check; exit code 1 if the server refuses something."""
    parser = argparse.ArgumentParser(description="Give the overlays to a real API server.")
    parser.add_argument("--programs", type=Path, default=PROGRAMS, help="etcd and kube-apiserver")
    parser.add_argument("--crd", type=Path, action="append", default=[], help="a definition")
    options = parser.parse_args()
    with running(options.programs) as server:
        version = json.loads(server.kubectl("version", "--output=json").stdout)
        sys.stdout.write(f"API server {version['serverVersion']['gitVersion']}\n")
        all_faults = list(faults(server, Project(), options.crd))
    for fault in all_faults:
        sys.stdout.write(f"{fault}\n")
    sys.exit(1 if all_faults else 0)


if __name__ == "__main__":
    main()
