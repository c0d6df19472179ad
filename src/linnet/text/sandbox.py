"""A jinja2 environment for templates from strangers: no way out, no hang, bounded memory.

jinja2's immutable sandbox keeps a template away from all but its variables. It would still let one
loop for hours, or double a text until memory ends. So here every turn of a loop and every call
looks at the clock, and whatever can give more than it is given is measured before it is done.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import GeneratorType
from typing import Any

from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from linnet.text.errors import ChatTemplateError

MAX_SECONDS = 5.0
"""How long a template may run."""
MAX_SIZE = 16 << 20
"""Characters of a value or of all output; an item of a list or dictionary counts as `ITEM`."""
ITEM = 64
MAX_MADE = 256 << 20
"""Characters that a template may make on the way."""
MAX_RANGE = 10_000
"""The longest `range(…)`."""

_GROWING = {
    *("batch", "center", "expandtabs", "format", "indent", "join", "ljust", "replace", "rjust"),
    *("round", "slice", "to_bytes", "tojson", "translate", "wordwrap", "zfill"),
}
"""Filters and methods whose result may be as large as the product of what they are given."""
_SLOW_OR_RANDOM = ("pprint", "random", "urlize")


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Renders one template once, within the limits above. Whitespace is as in Transformers."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,  # Nothing is worked out before it is measured.
            finalize=self.written,
            extensions=[loopcontrols, _Generation],
        )
        self._ends = time.monotonic() + MAX_SECONDS
        self._made = 0
        del self.globals["lipsum"]
        self.globals["range"] = _bounded_range
        for name in _SLOW_OR_RANDOM:
            del self.filters[name]
        self.filters = {name: self.measured(name, f) for name, f in self.filters.items()}

    def render(self, template: str, variables: Mapping[str, Any]) -> str:
        """The text that a template gives; raises what it raises, or `ChatTemplateError`."""
        tree = _Measures().visit(self.parse(template))
        pieces: list[str] = []
        size = 0
        for piece in self.from_string(tree).generate(**variables):
            size += len(piece)
            if size > MAX_SIZE:
                raise ChatTemplateError(f"the chat template gives over {MAX_SIZE} characters")
            pieces.append(piece)
        return "".join(pieces)

    # Called by the compiled template, by jinja2 or where `_Measures` put it.

    def tick(self, characters: int = 0) -> str:
        """A turn of a loop, a call: costs time, and the text written in its body."""
        self._made += characters
        if self._made > MAX_MADE:
            raise ChatTemplateError(f"the chat template makes over {MAX_MADE} characters")
        if time.monotonic() > self._ends:
            raise ChatTemplateError(f"the chat template runs for over {MAX_SECONDS:g} s")
        return ""

    def written(self, value: Any) -> Any:
        """A value about to be written out."""
        self.tick(_size(value))
        return value

    def collected(self, value: Any) -> Any:
        """A list, tuple or dictionary that the template spells out."""
        _size(value)
        return value

    def joined(self, *values: Any) -> str:
        """`a ~ b`."""
        self.tick(_fits(sum(map(_size, values))))
        return "".join(map(str, values))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        self.tick(_fits(_result_size(operator, left, right)))
        return super().call_binop(context, operator, left, right)

    def call(self, context: Any, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        name = getattr(obj, "__name__", "")
        # The sandbox wraps `str.format`.
        owner = getattr(getattr(obj, "__wrapped__", obj), "__self__", None)
        if isinstance(owner, (str, bytes, int)) and name in _GROWING:
            args = tuple(map(_gathered, args))
            self.tick(_product(owner, [*args, *kwargs.values()]))
        result = super().call(context, obj, *args, **kwargs)
        self.tick(len(result) if isinstance(result, str) else 0)
        return result

    def measured(self, name: str, filter: Callable[..., Any]) -> Callable[..., Any]:
        """A filter that is measured as its name asks for."""
        # jinja2 marks filters that take its own context as their first argument.
        own = 1 if hasattr(filter, "jinja_pass_arg") else 0

        @functools.wraps(filter)
        def measured(*args: Any, **kwargs: Any) -> Any:
            args = (*args[:own], *map(_gathered, args[own:]))
            if name in _GROWING:
                self.tick(_product(args[own], [*args[own + 1 :], *kwargs.values()]))
            result = filter(*args, **kwargs)
            self.tick(len(result) if isinstance(result, str) else 0)
            return result

        return measured


class _Measures(NodeTransformer):
    """Puts measuring calls into a parsed template."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        return self._ticking(node)

    visit_Macro = visit_CallBlock = visit_Block = visit_For

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _call("joined", node.nodes, node.lineno)

    def visit_List(self, node: nodes.List) -> nodes.Node:
        self.generic_visit(node)
        return _call("collected", [node], node.lineno)

    visit_Dict = visit_List

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        # A tuple may also be what a loop or `set` assigns to.
        return self.visit_List(node) if node.ctx == "load" else self.generic_visit(node)  # type: ignore[arg-type]

    def _ticking(self, node: Any) -> nodes.Node:
        text = sum(len(data.data) for data in node.find_all(nodes.TemplateData))
        self.generic_visit(node)
        tick = _call("tick", [nodes.Const(text, lineno=node.lineno)], node.lineno)
        node.body.insert(0, nodes.ExprStmt(tick, lineno=node.lineno))
        return node


def _call(method: str, arguments: list[Any], lineno: int) -> nodes.Expr:
    called = nodes.EnvironmentAttribute(method, lineno=lineno)
    return nodes.Call(called, arguments, [], None, None, lineno=lineno)


class _Generation(Extension):
    """`{% generation %}…{% endgeneration %}` marks what an assistant said, for training: the text
    is what stands between."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


# --- sizes ----------------------------------------------------------------------------------


def _size(value: Any) -> int:
    """Characters of a value written out, about; raises beyond `MAX_SIZE`."""
    size = 0
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, (str, bytes)):
            size += len(item)
        elif isinstance(item, Mapping):
            size += ITEM * len(item)
            waiting += item.keys()
            waiting += item.values()
        elif isinstance(item, (list, tuple)):
            size += ITEM * len(item)
            waiting += item
        elif isinstance(item, int):
            size += item.bit_length() // 3 + 1
        elif isinstance(item, Namespace):
            raise ChatTemplateError("the chat template writes a namespace out")
        else:
            size += 1
        _fits(size)
    return size


def _fits(size: int) -> int:
    if size > MAX_SIZE:
        raise ChatTemplateError(f"the chat template makes a value of over {MAX_SIZE} characters")
    return size


def _product(first: Any, others: Iterable[Any]) -> int:
    """The size of what a growing filter or method may give."""
    widths = [abs(other) if isinstance(other, int) else _size(other) for other in others]
    if isinstance(first, str):
        widths += _widths(first)
    return _fits((_size(first) + 1) * (max(widths, default=0) + 1))


def _widths(text: str) -> Iterator[int]:
    """The numbers in a text, which a format's widths are among."""
    if "%" in text or "{" in text:
        for digits in re.findall(r"\d+", text):
            yield int(digits) if len(digits) < 9 else MAX_SIZE


def _result_size(operator: str, left: Any, right: Any) -> int:
    if operator == "%" and isinstance(left, (str, bytes)):
        return _product(left, right if isinstance(right, tuple) else [right])
    numbers = isinstance(left, (int, float)) and isinstance(right, (int, float))
    if operator == "**" and numbers:
        return _size(left) * int(min(abs(right), MAX_SIZE))
    if operator == "*" and not numbers:
        pair = (left, right) if isinstance(right, int) else (right, left)
        return _size(pair[0]) * abs(pair[1]) if isinstance(pair[1], int) else 0
    return _size(left) + _size(right)


def _gathered(value: Any) -> Any:
    """A filter's argument with what is still to come made a list, within its size."""
    if not isinstance(value, GeneratorType):
        return value
    items: list[Any] = []
    size = 0
    for item in value:
        size = _fits(size + _size(item) + ITEM)
        items.append(item)
    return items


def _bounded_range(*bounds: int) -> range:
    counted = range(*bounds)
    if len(counted) > MAX_RANGE:
        raise ChatTemplateError(f"the chat template counts beyond {MAX_RANGE}")
    return counted
