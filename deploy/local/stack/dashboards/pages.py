"""Every panel of every dashboard on one page, drawn from the stack's own Prometheus.

It stands where Grafana would: no package index has Grafana.
"""

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from holdfast.deploy.local.stack.dashboards.panels import dashboards
from holdfast.deploy.local.stack.dashboards.prometheus import Source, drawn

REFRESH_SECONDS = 15
SHOWN_SECONDS = 900.0
SHOWN_SECONDS_MIN = 60.0

_PAGE = """\
<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Holdfast: dashboards</title>
<meta http-equiv="refresh" content="{refresh}">
<style>
body{{font:14px sans-serif;margin:0 auto;max-width:1010px;color:#111}}
nav{{position:sticky;top:0;background:#fff;border-bottom:1px solid #bbb;padding:10px 6px}}
nav a{{display:inline-block;margin-right:18px}}
h1{{font-size:18px;margin:24px 6px 4px}} p{{margin:4px 6px}}
table{{border-collapse:collapse;margin:6px}} td{{border-top:1px solid #ddd;padding:4px 10px 4px 0}}
.panels{{overflow-x:auto}} img{{width:100%;min-width:640px}} td{{overflow-wrap:anywhere}}
.firing{{color:#d62728;font-weight:bold}}
</style></head><body>
<nav>{links} <a href="{prometheus}">Prometheus</a> every {refresh} s</nav>
<h1>Alerts</h1>{alerts}
{dashboards}
</body></html>
"""


@contextmanager
def serving(port: int, prometheus: str) -> Iterator[None]:
    """Serve the page on 127.0.0.1 until the block ends; raises `OSError` for a taken port."""
    pages = _Pages(Source(prometheus), time.time())

    class Handler(BaseHTTPRequestHandler):
        timeout = 60

        def do_GET(self) -> None:
            kind, body, status = pages.answer(self.path)
            self.send_response(status)
            self.send_header("content-type", f"{kind}; charset=utf-8")
            self.send_header("content-length", str(len(body)))
            self.send_header("cache-control", "no-store")
            self.send_header(
                "content-security-policy",
                "default-src 'none'; style-src 'unsafe-inline'; img-src 'self'",
            )
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: object) -> None:
            """Stay silent."""

    server = _Server(("127.0.0.1", port), Handler)
    # A browser keeps its connection open; the end of the stack does not wait for it.
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, name="dashboards")
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a browser that left; other errors are printed."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Pages:
    """What each path answers. `started` is when Prometheus began, in seconds since the epoch."""

    def __init__(self, source: Source, started: float) -> None:
        self._source = source
        self._started = started
        self._dashboards = {f"/{each.name}.svg": each for each in dashboards()}

    def answer(self, path: str) -> tuple[str, bytes, HTTPStatus]:
        """Return type, body and status."""
        try:
            if path == "/":
                return "text/html", self._page().encode(), HTTPStatus.OK
            if dashboard := self._dashboards.get(path):
                now = time.time()
                shown = min(SHOWN_SECONDS, max(now - self._started, SHOWN_SECONDS_MIN))
                ends = (f"{shown / 60:.0f} min ago", "now")
                text = drawn(self._source, dashboard, now - shown, now, ends)
                return "image/svg+xml", text.encode(), HTTPStatus.OK
        except OSError as error:
            said = f"Prometheus does not answer ({error}). Its log is in the stack's folder.\n"
            return "text/plain", said.encode(), HTTPStatus.BAD_GATEWAY
        return "text/plain", b"There is no such page.\n", HTTPStatus.NOT_FOUND

    def _page(self) -> str:
        alerts = [_alert(each) for each in self._source.alerts()]
        shown = "".join(
            f'<h1 id="{each.name}">{escape(each.title)}</h1><p>{escape(each.description)}</p>'
            f'<div class="panels"><img src="/{each.name}.svg"'
            f' alt="The panels of {escape(each.title)}"></div>\n'
            for each in dashboards()
        )
        return _PAGE.format(
            refresh=REFRESH_SECONDS,
            links=" ".join(f'<a href="#{each.name}">{each.name}</a>' for each in dashboards()),
            prometheus=escape(self._source.url),
            alerts=f"<table>{''.join(alerts)}</table>" if alerts else "<p>No alert fires.</p>",
            dashboards=shown,
        )


def _alert(alert: Mapping[str, Any]) -> str:
    """Return the row of an alert; all text of it is escaped."""
    notes = alert["annotations"]
    state = "firing" if alert["state"] == "firing" else "pending"
    cells = (alert["labels"]["alertname"], notes["summary"], notes["run"])
    return (
        f'<tr><td class="{state}">{state}</td>'
        + "".join(f"<td>{escape(str(each))}</td>" for each in cells)
        + "</tr>"
    )
