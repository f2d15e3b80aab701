"""A table out of tags and boxes."""

from __future__ import annotations

from engine.documents.grid import cells_of, fill

TAGS = [
    *("<table>", "<thead>", "<tr>", "<td", ' colspan="2"', ">", "</td>", "<td></td>", "</tr>", "</thead>", "<tbody>"),
    *("<tr>", "<td", ' rowspan="2"', ">", "</td>", "<td></td>", "<td></td>", "</tr>"),
    *("<tr>", "<td></td>", "<td></td>", "</tr>", "</tbody>", "</table>"),
]


def test_spans_push_what_follows_aside() -> None:
    places = [(cell.row, cell.column, cell.rows, cell.columns, cell.header) for cell in cells_of(TAGS, [])]
    assert places == [
        (0, 0, 1, 2, True),
        (0, 2, 1, 1, True),
        (1, 0, 2, 1, False),
        (1, 1, 1, 1, False),
        (1, 2, 1, 1, False),
        (2, 1, 1, 1, False),
        (2, 2, 1, 1, False),
    ]


def test_without_a_head_the_first_row_is_one() -> None:
    cells = cells_of(["<tr>", "<td></td>", "</tr>", "<tr>", "<td></td>", "</tr>"], [])
    assert [cell.header for cell in cells] == [True, False]


def test_every_word_goes_to_the_nearest_cell_and_none_is_lost() -> None:
    cells = cells_of(["<tr>", "<td></td>", "<td></td>"], [(0, 0, 10, 10), (20, 0, 30, 10)])
    words = [("left", (1, 1, 5, 5)), ("also", (11, 1, 13, 5)), ("right", (26, 1, 29, 5)), ("far", (90, 1, 95, 5))]
    assert fill(cells, words) == ["left also", "right far"]


def test_an_absurd_span_is_bounded() -> None:
    assert cells_of(["<tr>", "<td", ' colspan="999"', ">", "</td>"], [])[0].columns == 200
