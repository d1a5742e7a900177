"""Of a built site: an address that leads nowhere, or to another server by itself, is named."""

from pathlib import Path

import pytest

from holdfast.deploy.release import links

PAGE = '<p id="top"><a href="{}">there</a></p>'


def _site(folder: Path, text: str) -> list[str]:
    (folder / "part").mkdir()
    (folder / "index.html").write_text(text)
    (folder / "part" / "index.html").write_text('<h2 id="a%20b">x</h2><h2 id="here">y</h2>')
    return list(links.faults(folder))


@pytest.mark.parametrize("link", ["part/", "part/#here", "/part/", "#top", "https://a.example/x"])
def test_link_that_leads_somewhere_is_none(link: str, tmp_path: Path) -> None:
    assert _site(tmp_path, PAGE.format(link)) == []


@pytest.mark.parametrize("link", ["nowhere/", "part/#nowhere", "#nowhere", "part/x.png"])
def test_link_that_leads_nowhere_is_named(link: str, tmp_path: Path) -> None:
    assert _site(tmp_path, PAGE.format(link)) == [f"index.html: {link} leads nowhere"]


@pytest.mark.parametrize(
    "element",
    [
        '<script src="https://a.example/x.js"></script>',
        '<link rel="stylesheet" href="//a.example/x.css">',
        '<img src="http://a.example/x.png">',
    ],
)
def test_request_to_another_server_is_named(element: str, tmp_path: Path) -> None:
    [fault] = _site(tmp_path, element)
    assert fault.startswith("index.html: asks another server for")
    assert "a.example" in fault


def test_font_of_another_server_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.css").write_text("@font-face { src: url(https://a.example/x.woff2) }")
    assert _site(tmp_path, "") == ["x.css: asks another server"]
