"""A flow's graph as boxes and arrows."""

from fencepost_server.console._graph import BOX_WIDTH, GAP_X, edge_words, lay_out


def test_boxes_stand_right_of_what_they_read_from() -> None:
    picture = {
        "nodes": [
            {"name": name, "kind": "map", "section": "head"} for name in ("source", "left", "right", "sink")
        ],
        "edges": [[0, 1], [0, 2], [1, 3], [2, 3]],
    }
    graph = lay_out(picture)
    step = BOX_WIDTH + GAP_X
    assert [box.x for box in graph.boxes] == [0, step, step, 2 * step]
    assert graph.boxes[1].y != graph.boxes[2].y
    assert [arrow.edge for arrow in graph.arrows] == ["0-1", "0-2", "1-3", "2-3"]
    assert graph.width == 3 * BOX_WIDTH + 2 * GAP_X


def test_a_flow_without_a_picture_is_empty() -> None:
    assert lay_out({}).boxes == []


def test_an_edge_shows_how_much_flows_and_which_side_waits() -> None:
    quiet = {"per_second": None, "lag": None, "backpressure": None}
    assert edge_words(quiet) == ""
    assert edge_words({"per_second": 1234.4, "lag": 0, "backpressure": 0.0}) == "1,234/s"
    assert edge_words({"per_second": 5.0, "lag": 1200, "backpressure": 0.8}) == "5/s · 1,200 wait · 80% busy"
