"""`python -m holdfast.deploy.check`: every fault on a line, exit code 1 if there is one."""

import argparse
import shutil
import sys
from collections.abc import Iterator

import yaml

from holdfast.deploy.check import compose, dockerfile, linter, manifests, monitoring, schemas
from holdfast.deploy.check.project import OVERLAYS, BuildError, Document, Project, documents
from holdfast.deploy.release import version


def faults(project: Project) -> Iterator[str]:
    """Yield every fault of the files below `deploy/`, each once."""
    seen: set[str] = set()
    for fault in _all(project):
        if fault not in seen:
            seen.add(fault)
            yield fault


def _all(project: Project) -> Iterator[str]:
    read: list[Document] = []
    for path in project.files():
        try:
            read += [each for each in documents(project, path) if "kind" in each.content]
        except yaml.YAMLError as error:
            yield f"{project.shown(path)}: {error}"
    # Patches are parts of manifests: they are checked as what they make.
    base = [each for each in read if "/overlays/" not in each.place]
    yield from schemas.faults(base)
    yield from _versions(read)
    if shutil.which("kubectl"):
        for name in OVERLAYS:
            try:
                built = project.overlay(name)
            except BuildError as error:
                yield f"overlay {name}: {error}"
                continue
            yield from schemas.faults(built)
            yield from manifests.faults(project, built)
            yield from monitoring.faults(project, built)
            yield from linter.faults(built)
    yield from monitoring.of_the_file(project)
    yield from dockerfile.faults(project)
    yield from compose.faults(project)


def _versions(read: list[Document]) -> Iterator[str]:
    """Yield images of another version than the one of the package."""
    ours = version.current()
    for document in read:
        for name in _images(document.content):
            if name.startswith("holdfast-") and not name.endswith(f":{ours}"):
                yield f"{document}: the image {name} is not of version {ours}"


def _images(content: object) -> Iterator[str]:
    if isinstance(content, dict):
        for key, value in content.items():
            if str(key).endswith("image") and isinstance(value, str):
                yield value
            else:
                yield from _images(value)
    elif isinstance(content, list):
        for each in content:
            yield from _images(each)


def main() -> None:
    """Check, or write the rules of the Prometheus operator."""
    parser = argparse.ArgumentParser(description="Check the files below deploy/.")
    parser.add_argument("--write-rules", action="store_true", help="write the PrometheusRule")
    project = Project()
    if parser.parse_args().write_rules:
        target = project.kubernetes / "components" / "monitoring" / "rules.yaml"
        target.write_text(monitoring.resource(project))
        return
    all_faults = list(faults(project))
    for fault in all_faults:
        sys.stdout.write(f"{fault}\n")
    for program, what in (
        ("kubectl", "overlays were not built"),
        ("promtool", "PromQL was not read"),
    ):
        if shutil.which(program) is None:
            sys.stdout.write(f"there is no {program} on PATH: {what}\n")
    if linter.program() is None:
        sys.stdout.write("there is no kube-score: `make deploy-lint` builds it (needs go)\n")
    sys.exit(1 if all_faults else 0)


if __name__ == "__main__":
    main()
