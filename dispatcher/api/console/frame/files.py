"""The files that pages load."""

from typing import Any

from starlette.responses import Response
from starlette.staticfiles import StaticFiles

from dispatcher.api.console.frame.templates_setup import STATIC

KEEP = "public, max-age=31536000, immutable"


class Files(StaticFiles):
    """Static files; one that is asked for by its hash may be kept."""

    def __init__(self) -> None:
        super().__init__(directory=STATIC)

    async def get_response(self, path: str, scope: Any) -> Response:
        """Answer with a file."""
        answer = await super().get_response(path, scope)
        if scope["query_string"].startswith(b"v="):
            answer.headers["Cache-Control"] = KEEP
        return answer
