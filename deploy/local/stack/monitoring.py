"""Prometheus and Alertmanager of the stack, where their programs are found."""

import json
import shutil
from importlib.resources import as_file, files
from pathlib import Path

from holdfast.deploy.local.demo.processes import Child, Processes
from holdfast.deploy.local.stack.settings import StackSettings

SCRAPE = "5s"

STAGED = Path(".holdfast/prometheus/usr/bin")
"""Where `make prometheus` unpacks Debian's package. Debian's Alertmanager has to be installed: it
reads a template below /usr/share."""


def start(processes: Processes, folder: Path, settings: StackSettings) -> dict[str, Child]:
    """Start what is there, by name; none where the programs are missing. Clears the folder."""
    found: dict[str, Child] = {}
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if program := shutil.which("prometheus") or shutil.which("prometheus", path=STAGED.absolute()):
        words = [program, f"--config.file={_prometheus(folder, settings)}"]
        words += [f"--storage.tsdb.path={folder / 'prometheus'}"]
        words += [f"--web.listen-address=127.0.0.1:{settings.prometheus_port}"]
        found["prometheus"] = processes.start_program("prometheus", words)
    if program := shutil.which("alertmanager") or shutil.which("prometheus-alertmanager"):
        words = [program, f"--config.file={_copied(folder, 'compose', 'alertmanager.yml')}"]
        words += [f"--storage.path={folder / 'alertmanager'}", "--cluster.listen-address="]
        words += [f"--web.listen-address=127.0.0.1:{settings.alertmanager_port}"]
        found["alertmanager"] = processes.start_program("alertmanager", words)
    return found


def _prometheus(folder: Path, settings: StackSettings) -> Path:
    """Write the configuration; JSON is YAML too."""
    alertmanager = f"127.0.0.1:{settings.alertmanager_port}"
    config = {
        "global": {"scrape_interval": SCRAPE, "evaluation_interval": SCRAPE},
        "rule_files": [str(_copied(folder, "prometheus", "holdfast.yml"))],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]},
        "scrape_configs": [
            {"job_name": "holdfast", "static_configs": [{"targets": list(settings.scraped)}]}
        ],
    }
    path = folder / "prometheus.yml"
    path.write_text(json.dumps(config, indent=2), encoding="utf-8")
    return path


def _copied(folder: Path, *names: str) -> Path:
    """Copy a file of `deploy`, which may be in an archive."""
    with as_file(files("holdfast.deploy").joinpath(*names)) as source:
        return Path(shutil.copy(source, folder / names[-1]))
