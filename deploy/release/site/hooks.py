r"""What MkDocs calls for each page: code in tables, and diagrams, as the repository shows them.

A `\|` inside code in a table is `|` in the repository's own view; MkDocs keeps the backslash. The
theme fetches a program from another server for a page that has a diagram and no program.
"""

import re
from pathlib import Path
from typing import Any

PROGRAM = "mermaid.min.js"

DIAGRAM = '<pre class="mermaid">'

_ROW = re.compile(r"^\|.*$", re.MULTILINE)
_CODE = re.compile(r"`[^`\n]+`")


def on_page_markdown(markdown: str, **_: Any) -> str:
    r"""Return the page without the backslashes that keep `|` inside a cell.

    >>> on_page_markdown(r"| `list\|show` | a |")
    '| `list|show` | a |'
    """
    return _ROW.sub(
        lambda row: _CODE.sub(lambda code: code[0].replace("\\|", "|"), row[0]), markdown
    )


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Return the page with what draws its diagrams; their text stays where nothing does."""
    if DIAGRAM not in output:
        return output
    if not (Path(config.docs_dir) / PROGRAM).exists():
        return output.replace(DIAGRAM, "<pre>")
    script = f'<script src="{"../" * page.url.count("/")}{PROGRAM}"></script>'
    return output.replace("</head>", f"{script}</head>", 1)
