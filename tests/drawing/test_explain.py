"""Queries and engines say and draw what they are."""

from __future__ import annotations

from xml.etree import ElementTree

import pyarrow as pa
import pytest

from headrace import Engine, HeadraceError, query, stream
from headrace.drawing import Diagram, Look
from headrace.engine.explain import graph_diagram
from headrace.operators.table import OPERATORS
from headrace.plan.nodes.core import RStream, Source, Window
from headrace.plan.nodes.windows import Sliding
from headrace.plan.show import LINES, TITLES, in_units, show
from tests.drawing.pictures import BIDS, IMAGES, ITEMS, PICTURES, STREAMS, tops


@pytest.mark.parametrize("name", PICTURES)
def test_the_pictures_of_the_documentation_are_what_the_code_draws(name: str) -> None:
    """`python -m tests.drawing.pictures` draws them anew."""
    assert (IMAGES / name).read_text() == PICTURES[name]() + "\n"


def test_a_query_tells_its_text_its_plan_its_keys_and_what_spark_runs() -> None:
    text = query(
        "SELECT item, count(*) AS n FROM bids [RANGE 1 HOUR] WHERE price > 3 GROUP BY item", {"bids": BIDS}
    )
    found = text.explain()
    assert [each.heading for each in found.sections][:2] == ["query", "plan as written"]
    assert "window [RANGE 1 HOUR]" in found
    assert "bids by item" in found
    assert "the engine runs the rest" in found


def test_one_shard_is_explained() -> None:
    assert (
        "one shard: count(*) is taken of all rows"
        in query("SELECT count(*) FROM a [NOW]", {"a": BIDS}).explain()
    )


def test_what_spark_runs_natively_is_marked() -> None:
    counted = "SELECT item FROM bids [ROWS 3] WHERE price > 3"
    windowed = query("SELECT item FROM bids [NOW] WHERE price > 3", {"bids": BIDS}).explain()
    native = [box.title for box in windowed.diagram.boxes if box.look is Look.NATIVE]
    assert sorted(native) == ["project", "select"]
    above = query(counted, {"bids": BIDS}).explain()
    assert [box.title for box in above.diagram.boxes if box.look is Look.NATIVE] == []


def test_sequence_numbers_stay_ticks() -> None:
    plan = RStream(Window(Source("s", BIDS), Sliding(600, 60)), 60)
    assert "rstream each 60\n  window [RANGE 600 SLIDE 60]" in show(plan, in_units(None))
    assert "rstream each 6 SECONDS\n  window [RANGE 1 MINUTE SLIDE 6 SECONDS]" in show(plan, in_units(10))
    assert in_units(1_000_000)(7) == "7 TICKS"
    assert in_units(1_000_000)(7000) == "7 MILLISECONDS"


QUOTED = "RANGE 60000000, each 3600000000, MIN 1000000"


def test_a_text_in_the_query_is_shown_as_it_was_written() -> None:
    """Durations are written in units; numbers in literals and in names are left alone."""
    text = f"SELECT item, '{QUOTED}' AS `MAX 5000000` FROM bids [RANGE 1 HOUR] WHERE item <> 'SLIDE 7000000'"
    asked = query(text, {"bids": pa.schema([("item", pa.string())])})
    engine = Engine()
    engine.add("q", asked)
    for found in (asked.explain(), engine.explain("q")):
        plans = "\n".join(each.text for each in found.sections if each.heading.startswith("plan"))
        assert QUOTED in plans
        assert "MAX 5000000" in plans
        assert "SLIDE 7000000" in plans
        assert "window [RANGE 1 HOUR]" in plans
        notes = "\n".join(box.note for box in found.diagram.boxes)
        assert QUOTED in notes
        assert "window [RANGE 1 HOUR]" in notes


def drawn(propagation: str = "eqg") -> Diagram:
    engine = Engine(propagation=propagation)
    engine.add("tops", tops())
    return engine.explain("tops").diagram


def test_the_graph_marks_who_may_wait_and_has_the_ets_arcs() -> None:
    diagram = drawn()
    title = {box.id: box.title for box in diagram.boxes}
    waiting = {"".join(filter(str.isalpha, box.title)) for box in diagram.boxes if box.waits}
    assert {"union", "join", "aggregate", "istream"} == waiting
    ets = {(title[arc.origin], title[arc.target]) for arc in diagram.arcs if arc.ets}
    assert ("phone", next(t for t in title.values() if t.startswith("union"))) in ets
    assert any(origin.startswith("union") and target.startswith("join") for origin, target in ets)


def test_punctuations_in_band_have_no_arcs_of_their_own() -> None:
    assert not any(arc.ets for arc in drawn("punctuation").arcs)


def test_only_what_the_query_uses_is_drawn() -> None:
    engine = Engine()
    engine.add("tops", tops())
    engine.add("other", stream("others", ITEMS).where("id > 3").named("other"))
    titles = {box.title for box in engine.explain("other").diagram.boxes}
    assert "others" in titles
    assert "items" not in titles
    assert {"tops", "other", "items", "others"} <= {
        box.title for box in graph_diagram(engine.graph, ["tops", "other"], engine.scheduling.arcs).boxes
    }


def test_a_query_that_is_a_stream_is_drawn() -> None:
    engine = Engine()
    engine.add("all", query("SELECT * FROM items", STREAMS))
    assert [box.title for box in engine.explain("all").diagram.boxes] == ["items", "all"]


def test_notebooks_get_html_of_queries_builders_explanations_and_engines() -> None:
    engine = Engine()
    assert "<svg" in engine._repr_html_()
    engine.add("tops", tops())
    for shown in (tops(), stream("bids", BIDS).where("price > 3"), engine.explain("tops"), engine):
        ElementTree.fromstring(shown._repr_html_())


def test_a_format_or_a_query_that_is_not_there_is_refused() -> None:
    engine = Engine()
    engine.add("tops", tops())
    for wrong in (lambda: engine.explain("tops", format="pdf"), lambda: engine.explain("top")):
        with pytest.raises(HeadraceError):
            wrong()


def test_every_node_has_a_name_that_begins_its_line_or_one_of_its_own() -> None:
    assert set(TITLES) <= set(LINES)
    assert set(OPERATORS) <= set(LINES)
