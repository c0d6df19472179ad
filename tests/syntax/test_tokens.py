"""Text to tokens: what each text is, and what is wrong with it."""

from __future__ import annotations

import pytest

from linnet.diagnostics import Diagnostics, SourceFile
from linnet.syntax import decode_source, tokenize
from linnet.syntax.tokens import KEYWORDS, MAX_BYTES, RESERVED, Token


def tokens(text: str) -> tuple[list[Token], list[str]]:
    """The tokens but the last, and the codes reported."""
    diagnostics = Diagnostics()
    found = tokenize(SourceFile("text", text), diagnostics)
    assert found[-1].kind == "end"
    return found[:-1], [d.code for d in diagnostics]


def kinds(text: str) -> str:
    found, codes = tokens(text)
    return " ".join([*(t.kind for t in found), *codes])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("42", 42),
        ("1_000", 1000),
        ("007", 7),
        ("0xff", 255),
        ("0xFF_ff", 0xFFFF),
        ("0x_1", 1),
        ("0xe", 14),
        ("0b1010", 10),
        ("0b1010_0101", 0b10100101),
        ("9223372036854775808", 2**63),
        ("1.5", 1.5),
        ("3.141_592", 3.141592),
        ("1e5", 1e5),
        ("1e-5", 1e-5),
        ("1E+5", 1e5),
        ("1_0.0_1e1_0", 10.01e10),
        ("0.0", 0.0),
        ("1e-999", 0.0),
        ('""', ""),
        ('"text"', "text"),
        ('"größe 語 😀"', "größe 語 😀"),
        (r'"a\n\t\r\0\\\"b"', 'a\n\t\r\0\\"b'),
        (r'"\u{1F600}\u{41}"', "😀A"),
        ('"// no comment /*"', "// no comment /*"),
    ],
)
def test_a_literal_and_its_value(text: str, value: object) -> None:
    (token,), codes = tokens(text)
    assert (token.value, codes) == (value, [])
    assert type(token.value) is type(value)
    assert token.kind == {int: "int", float: "float", str: "string"}[type(value)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Ranges, slices and fields are no floats.
        ("0..N", "int .. name"),
        ("0..10", "int .. int"),
        ("1.5..2.5", "float .. float"),
        ("x[0].y", "name [ int ] . name"),
        ("1.x", "int . name"),
        ("0::2", "int :: int"),
        ("0:H", "int : name"),
        ("0xe-5", "int - int"),
        ("1-5", "int - int"),
        ("...x", "... name"),
        ("....", "... ."),
        # The longest mark wins.
        ("a<=b", "name <= name"),
        ("a< =b", "name < = name"),
        ("a=>b", "name => name"),
        ("a==b", "name == name"),
        ("->", "->"),
        ("&&&", "&& &"),
        ("|||", "|| |"),
        ("!x!=y", "! name != name"),
        ("a::b:c", "name :: name : name"),
        ("x?", "name ?"),
        # Names.
        ("Tensor _ _x a1", "name name name name"),
        ("grad yield letter", "name reserved name"),
        ("True None self", "name name keyword"),
        # Comments.
        ("a // b", "name"),
        ("a /* b */ c", "name name"),
        ("a /* b /* c */ d */ e", "name name"),
        ("a /**/ b", "name name"),
        ("a /***/ b", "name name"),
        ("a / / b", "name / / name"),
        ("/// about\na", "doc name"),
        ("//// not about\na", "name"),
        ("/** about */ a", "doc name"),
        ("/* // */ a", "name"),
        ("// /*\na", "name"),
        # White space.
        ("a\tb\r\nc\rd", "name name name name"),
        ("", ""),
        (" \n", ""),
    ],
)
def test_what_a_text_is(text: str, expected: str) -> None:
    assert kinds(text) == expected


@pytest.mark.parametrize("word", sorted(KEYWORDS))
def test_a_keyword(word: str) -> None:
    assert kinds(word) == "keyword"
    assert kinds(word + "s") == kinds(word.upper()) == "name"


@pytest.mark.parametrize("word", sorted(RESERVED))
def test_a_reserved_word(word: str) -> None:
    assert kinds(word) == "reserved"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # One mistake is one message, and one token at most.
        ("a $ b", "name error name E1001"),
        ("a $$$ b", "name error name E1001"),
        ("größe", "name error E1001"),
        ("语言", "error E1001"),
        ("a # the rest", "name error E1001"),
        ("'text' b", "error name E1001"),
        ("“text” b", "error name E1001"),
        ("it's", "name error name E1001"),
        ("a \\ b", "name error name E1001"),
        ("a \x00\x01\x02 b", "name error name E1001"),
        ("a\u00a0b", "name error name E1001"),
        ("a\fb", "name error name E1001"),
        ("\ufeffa", "error name E1001"),
        ("$ $", "error error E1001 E1001"),
        ("a /* b", "name error E1002"),
        ("a /* /* b */", "name error E1002"),
        ("/** about", "error E1002"),
        ("a */", "name * /"),
        ('"text', "string error E1003"),
        ('"text\na', "string error name E1003"),
        ('"text\\\na', "string error name E1003"),
        ('"text\\"', "string error E1003"),
        ('"', "string error E1003"),
        (r'"\q"', "string E1003"),
        (r'"\q\p"', "string E1003 E1003"),
        (r'"\u{}"', "string E1003"),
        (r'"\u{110000}"', "string E1003"),
        (r'"\u{d800}"', "string E1003"),
        (r'"\x41"', "string E1003"),
        ("0x", "int E1005"),
        ("0x_", "int E1005"),
        ("0xfg", "int E1005"),
        ("0X1", "int E1005"),
        ("0b", "int E1005"),
        ("0b12", "int E1005"),
        ("12abc", "int E1005"),
        ("1.", "float E1005"),
        ("1.5.3", "float E1005"),
        ("1e", "float E1005"),
        ("1e+", "float + E1005"),
        ("1.5e", "float E1005"),
        ("1.5f32", "float E1005"),
        ("1e999", "float E1005"),
        ("9" * 101, "int E1005"),
    ],
)
def test_what_is_wrong_with_a_text(text: str, expected: str) -> None:
    assert kinds(text) == expected


def test_documentation_keeps_its_text() -> None:
    found, _ = tokens("///  two spaces \n/** a\n  * b\n  * c */\n///x\n")
    assert [t.value for t in found] == [" two spaces", "a\nb\nc", "x"]


def test_spans_cut_the_source_into_its_tokens() -> None:
    text = 'module m /* ö */ fn f() { return "ö" + 1.5 } // 語'
    found, _ = tokens(text)
    assert [t.span.text for t in found] == [t.text for t in found]
    assert found[-1].span.start == text.index("}")


# --- bytes ----------------------------------------------------------------------------------


def decoded(data: bytes) -> tuple[SourceFile | None, list[str]]:
    diagnostics = Diagnostics()
    source = decode_source(data, "file", diagnostics)
    if source is not None:
        tokenize(source, diagnostics)
    return source, [
        f"{d.code}@{d.span.source.position(d.span.start)}" if d.span else d.code
        for d in diagnostics
    ]


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"a\nb", []),
        ("größe".encode("latin-1"), ["E1001@(1, 3)"]),
        (b"a\n  \xff\xfe\xfd b\xff c", ["E1001@(2, 3)"]),
        (b"\xef\xbb\xbfa b", []),
        (b"\xef\xbb\xbf\xc3\xa9\xff", ["E1001@(1, 2)", "E1001@(1, 1)"]),
        (b"// \xff", ["E1001@(1, 4)"]),
        (b'"\xc3"', ["E1001@(1, 2)"]),
        ("語".encode()[:2], ["E1001@(1, 1)"]),
        (b"\xed\xa0\x80", ["E1001@(1, 1)"]),
        (b"", []),
    ],
)
def test_bytes_that_are_no_utf8_are_reported_once(data: bytes, found: list[str]) -> None:
    assert decoded(data)[1] == found


def test_a_source_has_a_largest_size() -> None:
    source, codes = decoded(b" " * MAX_BYTES)
    assert source is not None and codes == []
    source, codes = decoded(b" " * (MAX_BYTES + 1))
    assert source is None and codes == ["E1001"]
