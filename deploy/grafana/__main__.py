"""`python -m holdfast.deploy.grafana [FOLDER]`: write the dashboards, here by default."""

import sys
from pathlib import Path

from holdfast.deploy.grafana.catalogue import DASHBOARDS
from holdfast.deploy.grafana.render import rendered


def main() -> None:
    """Write a file for each dashboard and print its path."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    for dashboard in DASHBOARDS:
        path = folder / f"{dashboard.name}.json"
        path.write_text(rendered(dashboard))
        print(path)  # noqa: T201 - what was written


if __name__ == "__main__":
    main()
