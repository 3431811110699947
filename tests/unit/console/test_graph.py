"""A flow's graph as boxes and arrows."""

from typing import Any

from fencepost_server.console._graph import (
    BOX_HEIGHT,
    CHARACTER_WIDTH,
    GAP_X,
    PADDING,
    PAGE_WIDTH,
    WIDTH_MAX,
    draw,
    edge_words,
    lay_out,
)


def test_boxes_stand_right_of_what_they_read_from() -> None:
    picture = {
        "nodes": [
            {"name": name, "kind": "map", "section": "head"} for name in ("source", "left", "right", "sink")
        ],
        "edges": [[0, 1], [0, 2], [1, 3], [2, 3]],
    }
    graph = lay_out(picture)
    lefts = [box.x for box in graph.boxes]
    assert lefts == [0, lefts[1], lefts[1], lefts[3]]
    assert lefts[1] == graph.boxes[0].width + GAP_X
    assert graph.boxes[1].y != graph.boxes[2].y
    assert [arrow.edge for arrow in graph.arrows] == ["0-1", "0-2", "1-3", "2-3"]
    assert graph.width == lefts[3] + graph.boxes[3].width


def test_a_flow_without_a_picture_is_empty() -> None:
    assert lay_out({}).boxes == []


def test_an_edge_shows_how_much_flows_and_which_side_waits() -> None:
    quiet = {"per_second": None, "lag": None, "backpressure": None}
    assert edge_words(quiet) == ""
    assert edge_words({"per_second": 1234.4, "lag": 0, "backpressure": 0.0}) == "1,234/s"
    assert edge_words({"per_second": 5.0, "lag": 1200, "backpressure": 0.8}) == "5/s · 1,200 wait · 80% busy"


CHAIN = {
    "nodes": [
        {"name": name, "kind": kind, "section": "head"}
        for name, kind in (("in", "source"), ("a", "map"), ("b", "filter"), ("c", "map"), ("out", "sink"))
    ],
    "edges": [[0, 1], [1, 2], [2, 3], [3, 4]],
}


def test_a_chain_of_inner_steps_is_one_box_and_its_edges_keep_their_numbers() -> None:
    graph = lay_out(CHAIN)
    assert [box.names for box in graph.boxes] == [["in"], ["a", "b", "c"], ["out"]]
    assert (graph.boxes[1].name, graph.boxes[1].kind) == ("a … c", "3 steps · head")
    assert [arrow.edge for arrow in graph.arrows] == ["0-1", "3-4"]
    assert graph.folded == 2
    assert len(lay_out(CHAIN, fold=False).boxes) == 5


def test_a_step_that_branches_is_not_folded() -> None:
    branching = {"nodes": CHAIN["nodes"], "edges": [[0, 1], [1, 2], [1, 3], [2, 4], [3, 4]]}
    assert [box.names for box in lay_out(branching).boxes] == [["in"], ["a"], ["b"], ["c"], ["out"]]


def test_a_box_that_holds_a_failing_step_is_marked_and_every_name_fits_its_box() -> None:
    graph = lay_out(CHAIN, failing={"b"})
    assert [box.is_failing for box in graph.boxes] == [False, True, False]
    long = {"nodes": [{"name": "n" * 99, "kind": "map"}], "edges": []}
    (box,) = lay_out(long).boxes
    assert box.width == WIDTH_MAX
    assert len(box.name) * CHARACTER_WIDTH + PADDING <= box.width
    assert box.name.endswith("…")


def test_a_graph_that_goes_down_has_a_row_for_each_step_and_no_boxes_that_meet() -> None:
    branching = {"nodes": CHAIN["nodes"], "edges": [[0, 1], [1, 2], [1, 3], [2, 4], [3, 4]]}
    graph = lay_out(branching, down=True)
    rows = [box.y for box in graph.boxes]
    assert rows == sorted(rows)
    assert rows[2] == rows[3]
    left, right = graph.boxes[2:4]
    assert left.x + left.width < right.x
    assert all(box.x >= 0 and box.x + box.width <= graph.width for box in graph.boxes)
    assert graph.height == rows[-1] + BOX_HEIGHT
    assert all(arrow.is_down for arrow in graph.arrows)


def test_a_graph_that_is_wider_than_the_page_goes_down() -> None:
    def graph_of(count: int) -> dict[str, Any]:
        nodes = [{"name": f"key_by-{number}", "kind": "key_by"} for number in range(count)]
        return {"nodes": nodes, "edges": [[number, number + 1] for number in range(count - 1)]}

    short, narrow = draw(graph_of(3))
    assert short.width > narrow.width
    assert not short.arrows[0].is_down
    [long] = draw(graph_of(20))
    assert long.arrows[0].is_down
    assert long.width <= WIDTH_MAX < PAGE_WIDTH


def test_steps_of_several_keyed_stages_show_theirs() -> None:
    nodes = [
        {"name": name, "kind": kind, "section": section, **stage}
        for name, kind, section, stage in (
            ("in", "source", "head", {}),
            ("by user", "key_by", "border", {"stage": 1}),
            ("counts", "window", "body", {"stage": 1}),
            ("by country", "key_by", "border", {"stage": 2}),
            ("sums", "window", "body", {"stage": 2}),
        )
    ]

    graph = lay_out({"nodes": nodes, "edges": [[n, n + 1] for n in range(4)]})

    assert [box.kind for box in graph.boxes] == [
        "source · head",
        "key_by · border 1",
        "window · body 1",
        "key_by · border 2",
        "window · body 2",
    ]
