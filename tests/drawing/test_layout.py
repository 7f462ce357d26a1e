"""Whatever the graph: boxes apart, arcs upwards and past the boxes, valid files without anything foreign."""

from __future__ import annotations

import re
from itertools import combinations
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.drawing import Arc, Box, Diagram, Explanation, Look, Section
from headrace.drawing.diagram import mermaid
from headrace.drawing.layout import HEIGHT, Layout, Placed, laid_out, spread, width_of
from headrace.drawing.svg import svg
from headrace.errors import HeadraceError

WORDS = st.text("abc <>&\"'#;[]{}|`\n→é\x00\ud800", max_size=60)


@st.composite
def diagrams(draw: st.DrawFn) -> Diagram:
    count = draw(st.integers(1, 12))
    looks = st.sampled_from(list(Look))
    boxes = [Box(f"b{i}", draw(WORDS), draw(WORDS), draw(looks), draw(st.booleans())) for i in range(count)]
    pairs = [(f"b{i}", f"b{j}") for i in range(count) for j in range(i + 1, count)]
    chosen = draw(st.lists(st.sampled_from(pairs), max_size=20)) if pairs else []
    return Diagram(tuple(boxes), tuple(Arc(a, b, draw(st.booleans()), draw(WORDS)) for a, b in chosen))


@given(diagrams())
def test_boxes_do_not_touch_and_stand_within_the_frame(diagram: Diagram) -> None:
    layout = laid_out(diagram)
    assert len(layout.boxes) == len(diagram.boxes)
    for one, other in combinations(layout.boxes, 2):
        beside = one.x + one.width < other.x or other.x + other.width < one.x
        assert beside or abs(one.y - other.y) >= HEIGHT + 1
    for box in layout.boxes:
        assert box.x >= -1e-6
        assert box.x + box.width <= layout.width + 1e-6
        assert 0 <= box.y <= layout.height - HEIGHT


def _end(layout: Layout, id: str) -> Placed:
    return next(each for each in layout.boxes if each.box.id == id)


@given(diagrams())
def test_arcs_go_up_from_box_to_box_and_through_no_other(diagram: Diagram) -> None:
    layout = laid_out(diagram)
    for routed in layout.arcs:
        heights = [y for _, y in routed.points]
        assert heights == sorted(heights, reverse=True)
        start, end = _end(layout, routed.arc.origin), _end(layout, routed.arc.target)
        assert start.x <= routed.points[0][0] <= start.x + start.width
        assert end.x <= routed.points[-1][0] <= end.x + end.width
        for (x, y), (_, to_y) in zip(routed.points[1:-1:2], routed.points[2::2], strict=True):
            for box in layout.boxes:
                level = to_y < box.y + HEIGHT and box.y < y
                assert not (level and box.x <= x <= box.x + box.width)


@given(diagrams())
def test_a_drawing_is_svg_without_scripts_and_foreign_things(diagram: Diagram) -> None:
    text = svg(diagram)
    root = ElementTree.fromstring(text)
    assert root.tag.endswith("svg")
    assert {each.tag.rpartition("}")[2] for each in root.iter()} <= {
        "svg",
        "g",
        "rect",
        "path",
        "text",
        "title",
    }
    assert not {
        name for each in root.iter() for name in each.attrib if name.startswith("on") or "href" in name
    }
    assert "url(" not in text
    titles = [each for each in root.iter() if each.tag.endswith("title")]
    assert len(titles) == len(diagram.boxes) + len(diagram.arcs)


@given(diagrams())
def test_mermaid_has_a_line_per_box_and_arc_and_its_texts_stay_in_their_quotes(diagram: Diagram) -> None:
    first, *lines = mermaid(diagram).split("\n")
    assert first == "flowchart BT"
    boxes, arcs = lines[: len(diagram.boxes)], lines[len(diagram.boxes) :][: len(diagram.arcs)]
    for line in boxes:
        assert re.fullmatch(r'    n\d+(\(\[|\[\(|\[)"([^"]*)"(\]\)|\)\]|\])', line)
    for line in arcs:
        assert re.fullmatch(r"    n\d+ (-->|-\. heartbeats \.->) n\d+", line)


@given(st.lists(st.floats(-500, 500), min_size=1, max_size=12), st.data())
def test_places_keep_their_order_and_distance(wished: list[float], data: st.DataObject) -> None:
    apart = data.draw(st.lists(st.floats(1, 50), min_size=len(wished) - 1, max_size=len(wished) - 1))
    found = spread(wished, apart)
    assert all(b - a >= least - 1e-6 for a, b, least in zip(found, found[1:], apart, strict=False))


def test_what_is_far_enough_apart_is_where_it_was_wished() -> None:
    assert spread([0.0, 50.0, 90.0], [10.0, 10.0]) == [0.0, 50.0, 90.0]
    assert spread([0.0, 0.0], [10.0]) == [-5.0, 5.0]


def test_long_lines_are_cut_in_the_box_and_whole_in_the_tooltip() -> None:
    long = "x" * 300
    box = Box("b", "select", long)
    assert width_of(box) < 300
    drawn = svg(Diagram((box,), ()))
    assert f"<title>select {long}</title>" in drawn
    assert f">{'x' * 35}…</text>" in drawn


def test_an_explanation_is_its_text_and_draws_itself_elsewhere() -> None:
    diagram = Diagram((Box("a", "a"), Box("b", "b")), (Arc("a", "b", ets=True),))
    found = Explanation(diagram, (Section("plan", "a < b"), Section("arcs", "a -> b")))
    assert found == "plan\na < b\n\narcs\na -> b"
    assert found.as_format("mermaid").startswith("flowchart")
    assert found.as_format("svg").startswith("<svg")
    html = found._repr_html_()
    assert "<svg" in html
    assert "a &lt; b" in html


def test_a_format_that_is_none_is_refused() -> None:
    with pytest.raises(HeadraceError) as caught:
        Explanation(Diagram((), ()), (), "pdf")
    assert caught.value.code == "HR-F024"
    assert "mermaid" in caught.value.hint


def test_nothing_can_be_drawn_too() -> None:
    drawn = ElementTree.fromstring(svg(Diagram((), ())))
    assert drawn.tag.endswith("svg")
    assert not drawn.findall(".//{*}rect[@class='box']")
