"""What MkDocs calls for each page: diagrams are drawn by the site's own program, or by none.

The theme fetches a program from another server for a page that has a diagram and no program.
"""

from pathlib import Path
from typing import Any

PROGRAM = "mermaid.min.js"

DIAGRAM = '<pre class="mermaid">'


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Return the page with what draws its diagrams; their text stays where nothing does."""
    if DIAGRAM not in output:
        return output
    if not (Path(config.docs_dir) / PROGRAM).exists():
        return output.replace(DIAGRAM, "<pre>")
    script = f'<script src="{"../" * page.url.count("/")}{PROGRAM}"></script>'
    return output.replace("</head>", f"{script}</head>", 1)
