"""The page of the stack's dashboards, and what its job reads."""

from pathlib import Path

import httpx
import pytest

from deploy.local.stack.input import chosen
from deploy.local.stack.pages import _alert, serving
from deploy.local.stack.settings import Input
from tests.support.runbook_world import free_port


@pytest.mark.parametrize("path", ["/", "/job.svg"])
def test_page_says_that_prometheus_does_not_answer(path: str) -> None:
    port = free_port()
    with serving(port, f"http://127.0.0.1:{free_port()}"):
        answer = httpx.get(f"http://127.0.0.1:{port}{path}")
    assert answer.status_code == httpx.codes.BAD_GATEWAY
    assert answer.headers["content-type"].startswith("text/plain")


@pytest.mark.parametrize("path", ["/missing.svg", "/job.svg/", "/prometheus.yml"])
def test_page_has_no_other_paths(path: str) -> None:
    port = free_port()
    with serving(port, f"http://127.0.0.1:{free_port()}"):
        answer = httpx.get(f"http://127.0.0.1:{port}{path}", follow_redirects=False)
    assert answer.status_code == httpx.codes.NOT_FOUND


def test_text_of_an_alert_is_escaped() -> None:
    alert = {
        "state": "firing",
        "labels": {"alertname": "HoldfastEntryDead"},
        "annotations": {"summary": "<script>x</script>", "run": "holdfast dead list"},
    }
    row = _alert(alert)
    assert "<script>" not in row
    assert 'class="firing"' in row


def test_events_are_files_where_no_jars_are_staged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert chosen(Input.AUTO) is Input.FILES
    assert chosen(Input.TOPIC) is Input.TOPIC
