"""Places in a text, what is kept of what is reported, and how it is printed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linnet.diagnostics import (
    MAX_ERRORS,
    Diagnostic,
    Diagnostics,
    LinnetError,
    Note,
    SourceFile,
    Span,
    printable,
    render,
    to_json,
)

TEXT = "module m\n\nfn größe(x: f32) -> f32 {\n\treturn x\n}\n"
SOURCE = SourceFile("m.linnet", TEXT)


def at(piece: str, source: SourceFile = SOURCE) -> Span:
    start = source.text.index(piece)
    return Span(source, start, start + len(piece))


# --- places ---------------------------------------------------------------------------------


def test_a_place_counts_characters_from_one() -> None:
    assert SOURCE.position(0) == (1, 1)
    assert SOURCE.position(8) == (1, 9), "the line's end belongs to the line"
    assert SOURCE.position(9) == (2, 1)
    assert at("(x").location == "m.linnet:3:9"
    assert SOURCE.position(len(TEXT)) == (6, 1)


def test_a_line_comes_without_its_end() -> None:
    source = SourceFile("m", "a\r\nb\nc")
    assert [source.line(n) for n in (1, 2, 3)] == ["a", "b", "c"]
    assert SourceFile("m", "").line(1) == ""


@given(st.text(st.sampled_from("ab\n\r é")), st.data())
def test_a_place_leads_back_to_its_offset(text: str, data: st.DataObject) -> None:
    source = SourceFile("m", text)
    offset = data.draw(st.integers(0, len(text)))
    line, column = source.position(offset)
    before = text[:offset]
    assert line == before.count("\n") + 1
    assert column == len(before) - (before.rfind("\n") + 1) + 1


def test_spans_join_and_compare() -> None:
    first, last = at("fn"), at("f32 {")
    assert first.to(last).text == "fn größe(x: f32) -> f32 {"
    assert first == at("fn") and hash(first) == hash(at("fn"))
    assert first != last and first != Span(SourceFile("m.linnet", TEXT), first.start, first.end)


# --- keeping --------------------------------------------------------------------------------


def test_a_place_and_code_are_reported_once() -> None:
    found = Diagnostics()
    for message in ("first", "second"):
        found.error("E1101", message, at("fn"))
    found.error("E1102", "another code", at("fn"))
    found.error("E1101", "another place", at("x"))
    found.error("E1202", "no place", None)
    found.error("E1202", "no place", None)
    assert [d.message for d in found] == [
        "first", "another code", "another place", "no place", "no place",
    ]  # fmt: skip


def test_warnings_show_only_where_there_are_no_errors() -> None:
    found = Diagnostics()
    found.error("W1001", "unused", at("fn"))
    assert not found.has_errors
    assert [d.code for d in found.final()] == ["W1001"]
    found.error("E1101", "wrong", at("x"))
    assert found.has_errors
    assert [d.code for d in found.final()] == ["E1101"]


def test_what_is_shown_is_in_the_order_of_the_source() -> None:
    found = Diagnostics()
    for piece in ("}", "fn", "x"):
        found.error("E1101", piece, at(piece))
    found.error("E5001", "no place", None)
    assert [d.message for d in found.final()] == ["no place", "fn", "x", "}"]


def test_errors_have_an_end() -> None:
    found = Diagnostics()
    for number in range(MAX_ERRORS):
        found.error("W1002", "warnings don't count", Span(SOURCE, number, number))
    for number in range(MAX_ERRORS + 50):
        found.error("E1101", str(number), Span(SOURCE, number, number + 1))
    assert [d.message for d in found.errors] == [str(n) for n in range(MAX_ERRORS)]


# --- printing -------------------------------------------------------------------------------


def test_all_that_a_diagnostic_can_say() -> None:
    far = SourceFile("far.linnet", "\n" * 99 + "let y = x")
    diagnostic = Diagnostic(
        "E2202",
        "a tensor of another shape than required",
        at("größe"),
        "`Tensor[H; f32]` here",
        (Note("required by this", at("y", far)), Note("`H` may be 1")),
        "reshape it",
    )
    assert render([diagnostic]) == (
        "error[E2202]: a tensor of another shape than required\n"
        "   --> m.linnet:3:4\n"
        "    |\n"
        "  3 | fn größe(x: f32) -> f32 {\n"
        "    |    ^^^^^ `Tensor[H; f32]` here\n"
        "    = note: required by this\n"
        "   --> far.linnet:100:5\n"
        "    |\n"
        "100 | let y = x\n"
        "    |     -\n"
        "    = note: `H` may be 1\n"
        "    = help: reshape it"
    )


def test_a_warning_and_a_diagnostic_without_a_place() -> None:
    assert render([Diagnostic("W1001", "unused", None), Diagnostic("E5001", "broken", None)]) == (
        "warning[W1001]: unused\n\nerror[E5001]: broken"
    )


def excerpt(text: str, start: int, end: int) -> list[str]:
    """The source line and the carets, without the gutter."""
    shown = render([Diagnostic("E1101", "x", Span(SourceFile("m", text), start, end))])
    return [line.partition("|")[2].removeprefix(" ") for line in shown.split("\n")[3:]]


@pytest.mark.parametrize(
    ("text", "start", "end", "expected"),
    [
        ("abc", 1, 2, ["abc", " ^"]),
        ("abc", 3, 3, ["abc", "   ^"]),
        ("", 0, 0, ["", "^"]),
        ("abc\n", 4, 4, ["", "^"]),
        ("a\nbc", 0, 4, ["a", "^"]),
        ("abc\ndef", 1, 6, ["abc", " ^^"]),
        ("\tabc", 1, 4, ["    abc", "    ^^^"]),
        ("a\x1b[1m", 1, 2, ["a\\u{1b}[1m", " ^^^^^^"]),
        ("a\u202eb", 2, 3, ["a\\u{202e}b", "         ^"]),
        ("a\u200bb", 2, 3, ["a\\u{200b}b", "         ^"]),
        ("語 = x", 4, 5, ["語 = x", "     ^"]),
        ("e\u0301 = x", 5, 6, ["e\u0301 = x", "    ^"]),
    ],
)
def test_the_caret_stands_under_what_it_means(
    text: str, start: int, end: int, expected: list[str]
) -> None:
    assert excerpt(text, start, end) == expected


def test_a_long_line_is_shown_around_the_mistake() -> None:
    text = "a" * 1000 + "XYZ" + "b" * 1000
    line, carets = excerpt(text, 1000, 1003)
    assert len(line) == 160
    assert line[carets.index("^") : carets.rindex("^") + 1] == "XYZ"
    line, carets = excerpt(text, 0, 2000)
    assert carets == "^" * 160


@given(st.text(st.characters(codec=None)), st.data())
def test_whatever_the_text_it_can_be_printed(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    source = SourceFile("m", text)
    found = [Diagnostic("E1101", printable(text), Span(source, start, end))]
    shown = render(found)
    assert all(c == "\n" or c.isprintable() for c in shown)
    assert shown.count("^") >= 1
    shown.encode("utf-8")
    json.dumps(to_json(found))


def test_json_gives_the_same_as_data() -> None:
    found = Diagnostics()
    found.error("E2202", "wrong", at("größe"), notes=[Note("see", None)], help="fix it")
    found.error("E5001", "broken", None)
    assert to_json(found) == [
        {
            "code": "E2202",
            "severity": "error",
            "message": "wrong",
            "label": None,
            "span": {
                "file": "m.linnet",
                "start": 13,
                "end": 18,
                "line": 3,
                "column": 4,
                "end_line": 3,
                "end_column": 9,
            },
            "notes": [{"message": "see", "span": None}],
            "help": "fix it",
        },
        {
            "code": "E5001",
            "severity": "error",
            "message": "broken",
            "label": None,
            "span": None,
            "notes": [],
            "help": None,
        },
    ]


def test_an_error_carries_its_diagnostics() -> None:
    error = LinnetError([Diagnostic("E5001", "broken", None)])
    assert str(error) == "error[E5001]: broken"
    assert [d.code for d in error.diagnostics] == ["E5001"]
