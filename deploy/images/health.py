"""`python -m holdfast.deploy.images.health URL`: exit code 0 if the answer is 200.

The health check of the images, which have no `curl` and some of which have no shell.
"""

import sys
from http import HTTPStatus
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

ANSWER_SECONDS = 4.0
"""Below the time limit of the images' health checks, so that the reason is shown."""

REASON_BYTES_MAX = 500


def fault(url: str) -> str | None:
    """Return why `url` does not answer 200, or None if it does."""
    # A proxy of the environment does not lead to a container's own port.
    opener = build_opener(ProxyHandler({}))
    try:
        with opener.open(url, timeout=ANSWER_SECONDS) as answer:
            status: int = answer.status
            return None if status == HTTPStatus.OK else f"{url} answered {status}"
    except HTTPError as error:
        reason = error.read(REASON_BYTES_MAX).decode(errors="replace")
        return f"{url} answered {error.code}: {reason}"
    except (HTTPException, OSError, ValueError) as error:
        return f"{url}: {error}"


def main() -> None:
    """Ask, and say the reason on stderr where the answer is not 200."""
    reason = fault(sys.argv[1])
    if reason is not None:
        sys.stderr.write(f"{reason}\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
