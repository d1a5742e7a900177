"""Words of the documents at a commit, the working tree by default.

`python -m tests.support.documents.words [COMMIT]` counts pages that people write, those that are
made from the code, and the changelog.
"""

import subprocess
import sys
from collections import Counter

from tests.support.documents.pages import ROOT

MADE = {f"docs/reference/{name}.md" for name in ("endpoint-settings", "errors", "python")}
"""Pages that are made from the code."""


def _git(*arguments: str) -> str:
    return subprocess.check_output(("git", *arguments), cwd=ROOT, text=True)  # noqa: S607 - its own


def _kind(name: str) -> str:
    return "changelog" if name == "CHANGELOG.md" else "made" if name in MADE else "written"


def words(commit: str | None = None) -> Counter[str]:
    """Return the number of words by kind of page."""
    names = _git("ls-tree", "-r", "--name-only", commit) if commit else _git("ls-files", "*.md")
    counts: Counter[str] = Counter()
    for name in names.splitlines():
        if name.endswith(".md"):
            text = _git("show", f"{commit}:{name}") if commit else (ROOT / name).read_text()
            counts[_kind(name)] += len(text.split())
    return counts


if __name__ == "__main__":
    for kind, count in words(*sys.argv[1:2]).items():
        sys.stdout.write(f"{kind:10} {count:7,}\n")
