"""Symbolic dimensions: a normal form of integer polynomials, and proofs about them.

A `Dim` is a sum of integer multiples of products of *atoms*. An atom is a variable (a generic), a
floor division that does not come out even, or a `min` or `max`. Remainders leave no atom of their
own: `a % b` is `a - b * (a / b)`, so that a fact about one is a fact about the other. Two dims
that are equal as polynomials are `==`.

`Facts` holds what a scope knows (`where` clauses, index ranges, dimensions being at least 0) and
proves comparisons from it. Equations become rewrite rules, tried on a difference until nothing
changes; an inequality `p >= 0` is proven by writing `p` as a sum of things known to be
non-negative, searched for by cancelling one negative term after the other with a known fact. Both
are incomplete, as they must be (the theory is undecidable); what they prove is true.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache


class DimError(ValueError):
    """A dimension that has no value: a division by zero, or a variable that is not bound."""


class DimTooLarge(DimError):
    """A dimension of more terms and factors than any model has; reasoning about it would take
    for ever."""


MAX_FACTORS = 256
"""How many factors all terms of a dim may have together."""
MAX_BITS = 512
MAX_TEXT = 1500
"""How long a division, `min` or `max` may be when written out."""

# --- the normal form ------------------------------------------------------------------------


def _bounded(text: str) -> str:
    if len(text) > MAX_TEXT:
        raise DimTooLarge("a dimension too large to reason about")
    return text


class Quotient:
    """`numerator / denominator`, rounded down, where it is no polynomial."""

    __slots__ = ("_hash", "_text", "denominator", "numerator")
    __match_args__ = ("numerator", "denominator")

    def __init__(self, numerator: Dim, denominator: Dim):
        self.numerator, self.denominator = numerator, denominator
        self._hash = hash((numerator, denominator))
        self._text = _bounded(f"{_factor(numerator, '/')} / {_factor(denominator, '*/')}")

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Quotient)
            and self.numerator == other.numerator
            and self.denominator == other.denominator
        )

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        return self._text

    def remainder(self) -> str:
        """What the division leaves, as in source."""
        return f"{_factor(self.numerator, '/')} % {_factor(self.denominator, '*/')}"


class Extreme:
    """`min(…)` or `max(…)` of two or more dims, flattened, each once, in a fixed order."""

    __slots__ = ("_hash", "_text", "items", "op")
    __match_args__ = ("op", "items")

    def __init__(self, op: str, items: tuple[Dim, ...]):
        self.op, self.items = op, items
        self._hash = hash((op, items))
        self._text = _bounded(f"{op}({', '.join(map(str, items))})")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Extreme) and self.op == other.op and self.items == other.items

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        return self._text


Atom = str | Quotient | Extreme
Monomial = tuple[Atom, ...]
"""A product of atoms, sorted, a power as a repetition; empty for the constant term."""


@cache
def _order(monomial: Monomial) -> tuple[int, tuple[str, ...]]:
    return (-len(monomial), tuple(map(str, monomial)))


class Dim:
    """An integer known at compile time, in normal form; immutable."""

    __slots__ = ("_hash", "terms")

    terms: tuple[tuple[Monomial, int], ...]

    def __init__(self, terms: Mapping[Monomial, int]):
        kept = [(m, c) for m, c in terms.items() if c]
        if len(kept) > 1:
            if sum(len(m) for m, _ in kept) > MAX_FACTORS:
                raise DimTooLarge("a dimension too large to reason about")
            kept.sort(key=lambda term: _order(term[0]))
        for monomial, coefficient in kept:
            if len(monomial) > MAX_FACTORS or coefficient.bit_length() > MAX_BITS:
                raise DimTooLarge("a dimension too large to reason about")
        self.terms = tuple(kept)
        self._hash = hash(self.terms)

    @staticmethod
    def const(value: int) -> Dim:
        return Dim({(): value})

    @staticmethod
    def var(name: str) -> Dim:
        return Dim({(name,): 1})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dim) and self.terms == other.terms

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"Dim({self})"

    # Arithmetic.

    def __add__(self, other: Dim | int) -> Dim:
        terms = dict(self.terms)
        for monomial, coefficient in _dim(other).terms:
            terms[monomial] = terms.get(monomial, 0) + coefficient
        return Dim(terms)

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return Dim({m: -c for m, c in self.terms})

    def __sub__(self, other: Dim | int) -> Dim:
        return self + -_dim(other)

    def __rsub__(self, other: int) -> Dim:
        return _dim(other) - self

    def __mul__(self, other: Dim | int) -> Dim:
        terms: dict[Monomial, int] = {}
        for m1, c1 in self.terms:
            for m2, c2 in _dim(other).terms:
                product = _product(m1, m2)
                terms[product] = terms.get(product, 0) + c1 * c2
        return Dim(terms)

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim | int) -> Dim:
        return _divide(self, _dim(other))

    def __mod__(self, other: Dim | int) -> Dim:
        divisor = _dim(other)
        return self - divisor * (self // divisor)

    # What it is.

    @property
    def constant(self) -> int | None:
        """Its value, where that depends on no variable."""
        if not self.terms:
            return 0
        if len(self.terms) == 1 and self.terms[0][0] == ():
            return self.terms[0][1]
        return None

    @property
    def variable(self) -> str | None:
        """Its name, where it is nothing but one variable."""
        if len(self.terms) == 1:
            monomial, coefficient = self.terms[0]
            if coefficient == 1 and len(monomial) == 1 and isinstance(monomial[0], str):
                return monomial[0]
        return None

    def atoms(self) -> Iterator[Atom]:
        """Every atom that stands in it directly, possibly more than once."""
        for monomial, _ in self.terms:
            yield from monomial

    def variables(self) -> frozenset[str]:
        """Every variable in it, also inside divisions, `min` and `max`."""
        return _variables(self)

    def evaluate(self, env: Mapping[str, int]) -> int:
        """Its value for bound variables; raises `DimError`."""
        total = 0
        for monomial, coefficient in self.terms:
            product = coefficient
            for atom in monomial:
                product *= _evaluate_atom(atom, env)
            total += product
        return total

    def substitute(self, mapping: Mapping[str, Dim]) -> Dim:
        """The same with variables replaced, all at once."""
        if not self.terms or not (self.variables() & mapping.keys()):
            return self
        total = Dim({})
        for monomial, coefficient in self.terms:
            product = Dim.const(coefficient)
            for atom in monomial:
                product = product * _substitute_atom(atom, mapping)
            total = total + product
        return total

    def __str__(self) -> str:
        rest, remainders = _remainders(self)
        parts = [(c, _term_text(monomial, c)) for monomial, c in rest.terms if monomial]
        for coefficient, numerator, denominator in remainders:
            text = f"{_factor(numerator, '*/')} % {_factor(denominator, '*/')}"
            if abs(coefficient) != 1:
                text = f"{abs(coefficient)} * ({text})"
            elif coefficient < 0 or len(remainders) + len(rest.terms) > 1:
                text = f"({text})"
            parts.append((coefficient, text))
        parts += [(c, str(abs(c))) for monomial, c in rest.terms if not monomial]
        text = "".join(f" {'-' if c < 0 else '+'} {part}" for c, part in parts)
        if not text:
            return "0"
        return text[3:] if text.startswith(" + ") else f"-{text[3:]}"


def _dim(value: Dim | int) -> Dim:
    return value if isinstance(value, Dim) else Dim.const(value)


def _product(m1: Monomial, m2: Monomial) -> Monomial:
    if not m1 or not m2:
        return m1 or m2
    return tuple(sorted((*m1, *m2), key=str))


@cache
def _variables(dim: Dim) -> frozenset[str]:
    names: set[str] = set()
    for atom in dim.atoms():
        match atom:
            case str():
                names.add(atom)
            case Quotient(numerator, denominator):
                names |= numerator.variables() | denominator.variables()
            case Extreme(_, items):
                for item in items:
                    names |= item.variables()
    return frozenset(names)


def _term_text(monomial: Monomial, coefficient: int) -> str:
    factors = [_atom_text(atom) for atom in monomial]
    if abs(coefficient) != 1 or not factors:
        factors.insert(0, str(abs(coefficient)))
    if len(monomial) == 1 and len(factors) == 1:
        factors = [str(monomial[0])]
    return " * ".join(factors)


def _remainders(dim: Dim) -> tuple[Dim, list[tuple[int, Dim, Dim]]]:
    """A dim as multiples of remainders and a rest, for reading: `N - 2 * (N / 2)` is `N % 2`."""
    found: list[tuple[int, Dim, Dim]] = []
    for atom in dict.fromkeys(dim.atoms()):
        if not isinstance(atom, Quotient):
            continue
        # `k * (n % d)` is `k * n - k * d * (n / d)`; its last term tells `k`.
        product = atom.denominator * Dim({(atom,): 1})
        if not product.terms:
            continue  # A division by 0, which is an error of its own.
        lead, factor = product.terms[0]
        coefficient = dict(dim.terms).get(lead, 0)
        if not coefficient or coefficient % factor:
            continue
        k = -coefficient // factor
        rest = dim - (atom.numerator - product) * k
        if len(rest.terms) < len(dim.terms) and atom not in set(rest.atoms()):
            found.append((k, atom.numerator, atom.denominator))
            dim = rest
    return dim, found


def _atom_text(atom: Atom) -> str:
    return f"({atom})" if isinstance(atom, Quotient) else str(atom)


def _factor(dim: Dim, tight: str) -> str:
    """A dim as an operand of `/`: in parentheses where it needs them."""
    text = str(dim)
    is_sum = len(dim.terms) > 1 or text.startswith("-")
    return f"({text})" if is_sum or any(f" {op} " in text for op in f"{tight}%") else text


def _evaluate_atom(atom: Atom, env: Mapping[str, int]) -> int:
    match atom:
        case str():
            if atom not in env:
                raise DimError(f"`{atom}` is not bound")
            return env[atom]
        case Quotient(numerator, denominator):
            divisor = denominator.evaluate(env)
            if divisor == 0:
                raise DimError(f"`{atom}` divides by zero")
            return numerator.evaluate(env) // divisor
        case Extreme(op, items):
            return (min if op == "min" else max)(item.evaluate(env) for item in items)


def _substitute_atom(atom: Atom, mapping: Mapping[str, Dim]) -> Dim:
    match atom:
        case str():
            return mapping.get(atom) or Dim.var(atom)
        case Quotient(numerator, denominator):
            return numerator.substitute(mapping) // denominator.substitute(mapping)
        case Extreme(op, items):
            return _extreme(op, [item.substitute(mapping) for item in items])


# Division.


@lru_cache(maxsize=4096)
def _divide(a: Dim, b: Dim) -> Dim:
    """`a / b` rounded down, for a `b` that is positive (which the checker has proven).

    What divides evenly is taken out (`(q * b + r) / b = q + r / b`), common factors are cancelled,
    and `(a / b) / c` becomes `a / (b * c)`.
    """
    if b.constant == 0:
        return Dim({(Quotient(a, b),): 1})
    if a.constant is not None and b.constant is not None:
        return Dim.const(a.constant // b.constant)
    even, rest = _split(a, b)
    if not rest.terms:
        return even
    if rest != a:
        return even + _divide(rest, b)
    a, b = _cancel(a, b)
    if b.constant == 1:
        return a
    if len(a.terms) == 1:
        monomial, coefficient = a.terms[0]
        if coefficient == 1 and len(monomial) == 1 and isinstance(monomial[0], Quotient):
            inner = monomial[0]
            return _divide(inner.numerator, inner.denominator * b)
    return Dim({(Quotient(a, b),): 1})


def _split(a: Dim, b: Dim) -> tuple[Dim, Dim]:
    """`q` and `r` with `a = q * b + r`, by polynomial long division on `b`'s leading term."""
    if not b.terms:
        return Dim({}), a
    lead, lead_coefficient = b.terms[0]
    if len(b.terms) == 1:
        quotient: dict[Monomial, int] = {}
        rest: dict[Monomial, int] = {}
        for monomial, coefficient in a.terms:
            left = _remove(monomial, lead)
            whole, remainder = divmod(coefficient, lead_coefficient)
            if left is None:
                rest[monomial] = coefficient
                continue
            if lead and remainder:
                # Only a constant divisor may take part of a coefficient: the rest stays in range.
                rest[monomial] = coefficient
                continue
            quotient[left] = quotient.get(left, 0) + whole
            rest[monomial] = rest.get(monomial, 0) + remainder
        return Dim(quotient), Dim(rest)
    exact = _exact_quotient(a, b)
    return (exact, Dim({})) if exact is not None else (Dim({}), a)


def _exact_quotient(a: Dim, b: Dim) -> Dim | None:
    """`a / b` where the polynomial `b` divides `a` without remainder."""
    if not b.terms:
        return None
    lead, lead_coefficient = b.terms[0]
    quotient = Dim({})
    for _ in range(64):
        if not a.terms:
            return quotient
        monomial, coefficient = a.terms[0]
        left = _remove(monomial, lead)
        if left is None or coefficient % lead_coefficient:
            return None
        step = Dim({left: coefficient // lead_coefficient})
        quotient = quotient + step
        a = a - step * b
    return None


def _remove(monomial: Monomial, factor: Monomial) -> Monomial | None:
    """`monomial / factor`, or None where it is no multiple of it."""
    if not factor:
        return monomial
    left = list(monomial)
    for atom in factor:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def _cancel(a: Dim, b: Dim) -> tuple[Dim, Dim]:
    """Both divided by what all their terms have in common."""
    terms = [*a.terms, *b.terms]
    divisor = math.gcd(*(c for _, c in terms))
    common = list(terms[0][0])
    for monomial, _ in terms[1:]:
        left = list(monomial)
        kept = []
        for atom in common:
            if atom in left:
                left.remove(atom)
                kept.append(atom)
        common = kept
    if divisor == 1 and not common:
        return a, b

    def divided(dim: Dim) -> Dim:
        return Dim({_remove(m, tuple(common)) or (): c // divisor for m, c in dim.terms})

    return divided(a), divided(b)


# Extremes.


def dim_min(a: Dim | int, b: Dim | int) -> Dim:
    """The smaller of two dims."""
    return _extreme("min", [_dim(a), _dim(b)])


def dim_max(a: Dim | int, b: Dim | int) -> Dim:
    """The larger of two dims."""
    return _extreme("max", [_dim(a), _dim(b)])


def _extreme(op: str, dims: Iterable[Dim]) -> Dim:
    items: dict[Dim, None] = {}
    for dim in dims:
        atom = dim.terms[0][0][0] if len(dim.terms) == 1 and len(dim.terms[0][0]) == 1 else None
        nested = isinstance(atom, Extreme) and atom.op == op and dim.terms[0][1] == 1
        items.update(dict.fromkeys(atom.items if nested and isinstance(atom, Extreme) else [dim]))
    pick = min if op == "min" else max
    kept: list[Dim] = []
    for item in items:
        for index, other in enumerate(kept):
            difference = (item - other).constant
            if difference is not None:
                kept[index] = item if pick(difference, 0) == difference else other
                break
        else:
            kept.append(item)
    if len(kept) == 1:
        return kept[0]
    return Dim({(Extreme(op, tuple(sorted(kept, key=str))),): 1})


# --- proofs ---------------------------------------------------------------------------------

_COMPARE = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
_OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}

_DEPTH = 6
"""How many facts a proof of an inequality may add up."""
_STEPS = 600
"""How many sums a search for one may look at, at each depth: enough for any proof that a person
would write, little enough for an error to come at once."""

_EXPANSIONS = 3
"""How many equations may show together that a division is even."""

_CASES = 32
"""How many cases a proof may tell apart."""


def compare(op: str, a: int, b: int) -> bool:
    """A comparison of two integers by its source operator."""
    return _COMPARE[op](a, b)


@dataclass(frozen=True)
class Facts:
    """What is known about the variables in scope, and what follows from it.

    `zero` and `nonnegative` hold polynomials known to be 0 and at least 0; a variable is at least
    0 unless it is in `signed_names`.
    """

    zero: tuple[Dim, ...] = ()
    at_least_zero: tuple[Dim, ...] = ()
    nonzero: tuple[Dim, ...] = ()
    signed_names: frozenset[str] = frozenset()

    def with_fact(self, op: str, a: Dim | int, b: Dim | int) -> Facts:
        """These facts and `a op b`; an equation also rewrites what is already known."""
        difference = _dim(a) - _dim(b)
        match op:
            case "==":
                return Facts(
                    (*self.zero, difference), self.at_least_zero, self.nonzero, self.signed_names
                )
            case "!=":
                return Facts(
                    self.zero, self.at_least_zero, (*self.nonzero, difference), self.signed_names
                )
            case ">=":
                known = difference
            case ">":
                known = difference - 1
            case "<=":
                known = -difference
            case "<":
                known = -difference - 1
            case _:
                raise ValueError(f"no comparison: {op!r}")
        return Facts(self.zero, (*self.at_least_zero, known), self.nonzero, self.signed_names)

    def signed(self, name: str) -> Facts:
        """These facts without `name >= 0`."""
        return Facts(self.zero, self.at_least_zero, self.nonzero, self.signed_names | {name})

    # Questions.

    def proves(self, op: str, a: Dim | int, b: Dim | int) -> bool:
        """Whether `a op b` holds for every value of the variables that fits the facts."""
        return self._proves(op, _dim(a) - _dim(b))

    def refutes(self, op: str, a: Dim | int, b: Dim | int) -> bool:
        """Whether `a op b` is false for every such value."""
        return self.proves(_OPPOSITE[op], a, b)

    def equal(self, a: Dim | int, b: Dim | int) -> bool:
        return self.proves("==", a, b)

    def positive(self, a: Dim | int) -> bool:
        return self.proves(">", a, 0)

    def nonnegative(self, a: Dim | int) -> bool:
        return self.proves(">=", a, 0)

    def negative(self, a: Dim | int) -> bool:
        """Whether `a < 0` is proven; quick where `a` can't be."""
        return not self.nonnegative(a) and self.proves("<", a, 0)

    def divides(self, divisor: Dim | int, dividend: Dim | int) -> bool:
        """Whether `dividend % divisor == 0`."""
        return self.equal(_dim(dividend) % _dim(divisor), 0)

    def simplify(self, dim: Dim) -> Dim:
        """An equal dim, by the equations known: `Heads * (H / Heads)` is `H` once `Heads` is known
        to divide it."""
        cached = self._simplified.get(dim)
        if cached is None:
            try:
                cached = self._rewrite(dim)
            except DimTooLarge:
                cached = dim
            self._simplified[dim] = cached
        return cached

    # How they are answered.

    @cached_property
    def _simplified(self) -> dict[Dim, Dim]:
        return {}

    @cached_property
    def _answers(self) -> dict[tuple[str, Dim], bool]:
        return {}

    def _proves(self, op: str, difference: Dim) -> bool:
        key = (op, difference)
        if key not in self._answers:
            try:
                self._answers[key] = self._decide(op, difference)
            except DimTooLarge:
                self._answers[key] = False  # Not every step of a search can be followed.
        return self._answers[key]

    def _decide(self, op: str, difference: Dim) -> bool:
        p = self.simplify(difference)
        if p.constant is not None:
            return compare(op, p.constant, 0)
        cases = self._cases(p)
        if cases is not None:
            return all(facts._proves(op, q) for facts, q in cases)
        match op:
            case "==":
                return self._at_least_zero(p) and self._at_least_zero(-p)
            case "!=":
                if any(self.simplify(n) in (p, -p) for n in self.nonzero):
                    return True
                return self._at_least_zero(p - 1) or self._at_least_zero(-p - 1)
            case ">=":
                return self._at_least_zero(p)
            case ">":
                if self._at_least_zero(p - 1):
                    return True
                is_nonzero = any(self.simplify(n) in (p, -p) for n in self.nonzero)
                return is_nonzero and self._at_least_zero(p)
            case "<=":
                return self._at_least_zero(-p)
            case "<":
                return self._proves(">", -p)
        raise ValueError(f"no comparison: {op!r}")

    def _cases(self, p: Dim) -> list[tuple[Facts, Dim]] | None:
        """`p` once for each item its first `min` or `max` may be, with what that tells."""
        extremes = dict.fromkeys(a for a in p.atoms() if isinstance(a, Extreme))
        if not extremes or math.prod(len(e.items) for e in extremes) > _CASES:
            return None
        extreme = next(iter(extremes))
        cases = []
        for item in extreme.items:
            facts = self
            for other in extreme.items:
                if other != item:
                    facts = facts.with_fact("<=" if extreme.op == "min" else ">=", item, other)
            cases.append((facts, _replace(p, extreme, item)))
        return cases

    # Equations.

    @cached_property
    def _substitutions(self) -> dict[str, Dim]:
        """Variables that equations give as other dims."""
        found: dict[str, Dim] = {}
        for equation in self.zero:
            p = equation.substitute(found)
            for monomial, coefficient in p.terms:
                if len(monomial) != 1 or abs(coefficient) != 1:
                    continue
                name = monomial[0]
                value = p * -coefficient + Dim({monomial: 1})
                if isinstance(name, str) and name not in value.variables():
                    one = {name: value}
                    found = {key: dim.substitute(one) for key, dim in found.items()} | one
                    break
        return found

    @cached_property
    def _rules(self) -> list[tuple[Monomial, int, Dim]]:
        """Other equations as rewrite rules: `coefficient * monomial` becomes the dim."""
        rules = []
        for equation in self.zero:
            p = equation.substitute(self._substitutions)
            if not p.terms or p.constant is not None:
                continue
            monomial, coefficient = max(p.terms, key=lambda term: _weight(term[0]))
            rest = Dim({monomial: coefficient}) - p
            if coefficient < 0:
                coefficient, rest = -coefficient, -rest
            rules.append((monomial, coefficient, rest))
        return rules

    def _rewrite(self, dim: Dim) -> Dim:
        dim = dim.substitute(self._substitutions)
        for _ in range(16):
            changed = self._rewrite_once(self._divide_known(dim))
            if changed == dim:
                break
            dim = changed
        return dim

    def _rewrite_once(self, dim: Dim) -> Dim:
        for lead, coefficient, rest in self._rules:
            for monomial, c in dim.terms:
                left = _remove(monomial, lead)
                if left is not None and c % coefficient == 0:
                    scale = Dim({left: c // coefficient})
                    return dim - Dim({monomial: c}) + scale * rest
        return dim

    def _divide_known(self, dim: Dim) -> Dim:
        """Simplifies inside divisions, and carries out those that the equations make even."""
        for atom in dict.fromkeys(dim.atoms()):
            if not isinstance(atom, Quotient):
                continue
            numerator, denominator = atom.numerator, atom.denominator
            better = self._even(numerator, denominator)
            if better is None and self._rules:
                inner = self._rewrite_once(numerator), self._rewrite_once(denominator)
                if inner != (numerator, denominator):
                    better = inner[0] // inner[1]
            if better is not None and better != Dim({(atom,): 1}):
                return _replace(dim, atom, better)
        return dim

    def _even(self, numerator: Dim, denominator: Dim) -> Dim | None:
        """`numerator / denominator` where a rule read backwards makes it even: `B * H / Heads` is
        `B * (H / Heads)` once `Heads` divides `H`."""
        for lead, target in self._expansions:
            expanded = Dim({})
            for monomial, c in numerator.terms:
                left = _remove(monomial, target)
                term = Dim({monomial: c})
                if left is not None and _exact_quotient(term, denominator) is None:
                    term = Dim({left: c}) * lead
                expanded = expanded + term
            if expanded != numerator:
                exact = _exact_quotient(expanded, denominator)
                if exact is not None:
                    return exact
        total = Dim({})
        for monomial, c in numerator.terms:
            exact = self._even_term(Dim({monomial: c}), denominator, _EXPANSIONS)
            if exact is None:
                return None
            total = total + exact
        return total

    def _even_term(self, term: Dim, denominator: Dim, depth: int) -> Dim | None:
        """The same for one term, by several rules: 2 divides `H` if it divides `G`, which does."""
        exact = _exact_quotient(term, denominator)
        if exact is not None or depth == 0 or len(term.terms) != 1:
            return exact
        ((monomial, c),) = term.terms
        for lead, target in self._expansions:
            left = _remove(monomial, target)
            if left is not None:
                exact = self._even_term(Dim({left: c}) * lead, denominator, depth - 1)
                if exact is not None:
                    return exact
        return None

    @cached_property
    def _expansions(self) -> list[tuple[Dim, Monomial]]:
        """Rules read backwards: `Heads * (H / Heads)` for `H`."""
        return [
            (Dim({lead: coefficient}), rest.terms[0][0])
            for lead, coefficient, rest in self._rules
            if len(rest.terms) == 1
            and rest.terms[0][1] == 1
            and any(isinstance(atom, Quotient) for atom in lead)
        ]

    # Inequalities.

    @cached_property
    def _known(self) -> list[Dim]:
        """The inequalities, simplified, and that a positive product has positive factors."""
        known = [self.simplify(p) for p in self.at_least_zero]
        for p in list(known):
            products = [(m, c) for m, c in p.terms if m]
            constant = dict(p.terms).get((), 0)
            if len(products) == 1 and constant < 0 and products[0][1] > 0:
                known += [Dim({(atom,): 1, (): -1}) for atom in products[0][0]
                          if self._atoms_nonnegative(products[0][0])]  # fmt: skip
        for n in self.nonzero:
            p = self.simplify(n)
            for q in (p, -p):
                if q.terms and all(c > 0 and self._atoms_nonnegative(m) for m, c in q.terms):
                    known.append(q - 1)
        return [p for p in dict.fromkeys(known) if p.constant is None]

    def _atoms_nonnegative(self, monomial: Monomial) -> bool:
        return all(self._atom_nonnegative(atom) for atom in monomial)

    def _atom_nonnegative(self, atom: Atom) -> bool:
        match atom:
            case str():
                if atom not in self.signed_names:
                    return True
                return Dim.var(atom) in self.at_least_zero or any(
                    p.terms == (((atom,), 1), ((), c)) and c <= 0
                    for p in self.at_least_zero
                    for c in [dict(p.terms).get((), 0)]
                )
            case Quotient(numerator, denominator):
                return self._plainly_nonnegative(numerator) and self._plainly_nonnegative(
                    denominator
                )
            case Extreme(op, items):
                return (all if op == "min" else any)(map(self._plainly_nonnegative, items))

    def _plainly_nonnegative(self, p: Dim) -> bool:
        return all(c > 0 and self._atoms_nonnegative(m) for m, c in p.terms)

    def _at_least_zero(self, p: Dim) -> bool:
        return self._search(p, (*self._known, *self._around(p)), _DEPTH)

    def _around(self, p: Dim) -> list[Dim]:
        return [fact for atom in _nested_quotients(p) for fact in self._about(atom)]

    def _search(self, p: Dim, known: Sequence[Dim], deepest: int) -> bool:
        """Short proofs first: most need one fact or two."""
        return any(_Search(self, known).sums_to(p, depth) for depth in range(1, deepest + 1))

    def _about(self, quotient: Quotient) -> list[Dim]:
        """`0 <= n - d * (n / d) <= d - 1`; and `n / d >= 1` where the product is known positive."""
        n, d = quotient.numerator, quotient.denominator
        q = Dim({(quotient,): 1})
        bounds = (n - d * q, d * q + d - 1 - n)
        # Where the division is known to be even the simplified bounds vanish; as they are, they
        # still bound `n / d` by `n`.
        known = [*bounds, *map(self.simplify, bounds)]
        product = self.simplify(d * q)
        if Dim({(quotient,): 1}) != product and product.terms:
            plain = not any(isinstance(atom, Quotient) for atom in product.atoms())
            if plain and self._search(product - 1, self._known, 3):
                known.append(q - 1)
        return known


class _Search:
    """A bounded search for a sum of known non-negative things."""

    def __init__(self, facts: Facts, known: Sequence[Dim]):
        self.facts, self.known = facts, known
        self.steps = 0
        self.seen: dict[Dim, int] = {}

    def sums_to(self, p: Dim, depth: int) -> bool:
        """Whether `p` is such a sum, cancelling its negative terms one by one."""
        nonnegative = self.facts._atoms_nonnegative
        negative = [(m, c) for m, c in p.terms if c < 0 or not nonnegative(m)]
        if not negative:
            return True
        self.steps += 1
        if depth == 0 or self.steps > _STEPS:
            return False
        if self.seen.get(p, -1) >= depth:
            return False
        self.seen[p] = depth
        monomial, coefficient = negative[0]
        atoms = set(p.atoms())
        for fact in self.known:
            for m, c in fact.terms:
                if c * coefficient <= 0:
                    continue
                scale = _remove(monomial, m)
                if scale is None or not nonnegative(scale) or not atoms.issuperset(scale):
                    continue
                # k * p - j * scale * fact cancels the term; k, j > 0 keep the sign of p.
                divisor = math.gcd(coefficient, c)
                steps = [(abs(c) // divisor, abs(coefficient) // divisor)]
                if abs(c) < abs(coefficient):
                    steps.append((1, 1))  # Another fact may cancel what is left.
                for k, j in steps:
                    rest = (p if k == 1 else p * k) - fact * Dim({scale: j})
                    if self.sums_to(rest, depth - 1):
                        return True
        return False


def _weight(monomial: Monomial) -> tuple[bool, int, int, tuple[str, ...]]:
    """Which term of an equation is rewritten: one with a division, of the highest degree, and of
    two divisions the more deeply nested (`H / (2 * Heads)` rather than `H / Heads`)."""
    texts = tuple(map(str, monomial))
    has_division = any(isinstance(atom, Quotient) for atom in monomial)
    return has_division, len(monomial), len("".join(texts)), texts


def _replace(dim: Dim, atom: Atom, value: Dim) -> Dim:
    total = Dim({})
    for monomial, coefficient in dim.terms:
        product = Dim.const(coefficient)
        for item in monomial:
            product = product * (value if item == atom else Dim({(item,): 1}))
        total = total + product
    return total


def _nested_quotients(p: Dim) -> list[Quotient]:
    found: dict[Quotient, None] = {}
    for atom in p.atoms():
        if isinstance(atom, Quotient):
            found[atom] = None
            for inner in (*_nested_quotients(atom.numerator), *_nested_quotients(atom.denominator)):
                found[inner] = None
    return list(found)


# --- inference ------------------------------------------------------------------------------


def solve(
    equations: Sequence[tuple[Dim, Dim]], unknowns: frozenset[str], facts: Facts
) -> dict[str, Dim]:
    """What the unknowns in the patterns must be for each `pattern == target` to hold.

    An equation is used once it is linear in one remaining unknown and its division comes out even;
    unknowns that no equation settles are left out of the result. It does not check the equations
    that it did not need.
    """
    found: dict[str, Dim] = {}
    pending = list(equations)
    while True:
        waiting = []
        for pattern, target in pending:
            pattern = pattern.substitute(found)
            missing = pattern.variables() & unknowns - found.keys()
            if not missing:
                continue
            name, *others = missing
            value = None if others else _solve_one(pattern, target, name, facts)
            if value is None:
                waiting.append((pattern, target))
            else:
                found[name] = value
        if len(waiting) == len(pending) or not waiting:
            return found
        pending = waiting


def _solve_one(pattern: Dim, target: Dim, name: str, facts: Facts) -> Dim | None:
    factor: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for monomial, coefficient in pattern.terms:
        if monomial.count(name) == 1:
            left = _remove(monomial, (name,)) or ()
            factor[left] = factor.get(left, 0) + coefficient
        else:
            rest[monomial] = coefficient
    a, b = Dim(factor), Dim(rest)
    if not a.terms or name in a.variables() or name in b.variables():
        return None
    remaining = facts.simplify(target - b)
    if a.constant == 1:
        return remaining
    value = facts.simplify(remaining // a)
    return value if facts.equal(a * value, remaining) else None
