"""The pictures of panels: units, the limit of an alert, and gaps in a line."""

import math
import xml.etree.ElementTree as ET

from holdfast.deploy.local.stack.dashboards.drawing import Curve, Drawing, page, readable
from holdfast.deploy.local.stack.dashboards.panels import dashboards

PANELS = [panel for each in dashboards() for panel in each.panels]
LATE = next(each for each in PANELS if each.alert == "HoldfastDecisionsLate")


def test_values_are_shown_with_the_unit_that_fits_them() -> None:
    assert [readable(each, "s") for each in (0, 0.012, 5, 90, 5400)] == [
        *("0", "12 ms", "5 s", "1.5 min", "1.5 h")
    ]
    assert [readable(each, "bytes") for each in (12, 131_000)] == ["12 B", "131 kB"]
    assert [readable(each, "reqps") for each in (0, 7.216)] == ["0 /s", "7.22 /s"]


def test_line_breaks_at_missing_values_and_keeps_ends_of_flat_parts() -> None:
    points = [(0, 400), (1, 400), (2, 400), (3, math.nan), (4, 100), (5, 200)]
    drawn = page([("row", [Drawing(LATE, [Curve("a & b", points)])])], 5)
    tree = ET.fromstring(drawn)  # noqa: S314 - our own
    lines = [each.attrib for each in tree.iter() if each.tag.endswith("polyline")]
    assert [len(each["points"].split()) for each in lines] == [2, 2, 2]
    assert lines[-1]["class"] == "l", "the limit of the alert"
    texts = {each.text for each in tree.iter() if each.tag.endswith("text")}
    assert {LATE.title, "a & b", "alert > 5 min"} <= texts


def test_limit_that_is_far_above_is_named_and_not_drawn() -> None:
    drawn = page([("row", [Drawing(LATE, [Curve("payouts", [(0, 1), (1, 2)])])])], 5)
    assert 'class="l"' not in drawn
    assert "alert &gt; 5 min" in drawn
