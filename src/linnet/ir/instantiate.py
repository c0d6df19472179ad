"""Binding a program's generics: the tree of blocks, its manifest, and an entry's generics.

    instantiate(program, "Llama", {"H": 576, …}, present)  ->  BlockInstance
    parameters(instance)                                   ->  the manifest
    entries(instance)                                      ->  what a runtime exposes
    bind_entry(instance, "prefill", arguments, {})         ->  the entry's generics

Weights that are optional are there when `present(path)` says so: a loader asks its checkpoint,
`linnet inspect` says yes to all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from linnet.check.dims import Dim, Facts, solve
from linnet.check.typed import (
    ArrayT,
    Block,
    BlockT,
    EnumT,
    Function,
    GenericParam,
    Member,
    OptionalT,
    Pack,
    Param,
    Program,
    StructT,
    TensorT,
    TupleT,
    Type,
)
from linnet.dtypes import KINDS, DType
from linnet.ir.core import TensorType
from linnet.ir.generics import (
    Binding,
    Bound,
    bind_given,
    bound_arguments,
    bound_dim,
    bound_dtype,
    bound_shape,
    bound_tensor,
    bound_value,
    partly_bound,
    require_facts,
    text,
    type_text,
)


@dataclass(frozen=True, slots=True)
class TensorMember:
    """A `param`, `buffer` or `state` of one block instance."""

    name: str
    kind: str
    type: TensorType
    optional: bool
    present: bool


@dataclass(frozen=True, slots=True, eq=False)
class BlockInstance:
    """A block with its generics bound, at one place in the tree of the root block."""

    program: Program
    path: str
    """Its parameter path, empty for the root."""
    block: Block
    generics: Binding
    tensors: Mapping[str, TensorMember]
    children: Mapping[str, Child]
    form: int
    """Equal for instances whose methods lower to the same code: one block, the same generics, the
    same optional members present, and so for all its children."""

    @property
    def key(self) -> str:
        return self.block.key


Child = BlockInstance | tuple[BlockInstance, ...] | None
"""A child, an array of children, or an optional child that is absent."""

Present = Callable[[str], bool]


def instantiate(
    program: Program,
    root: str | None = None,
    generics: Mapping[str, object] | None = None,
    present: Present = lambda path: True,
) -> BlockInstance:
    """Binds the root block's generics and builds the tree of its blocks.

    `root` names the block by name or key; without it, it is the module's only public block with
    entries, or the module itself where only free functions are entries. Raises `ValueError` for a
    root that isn't there or isn't clear, and for generics that are missing, unknown, of the wrong
    kind, or break a `where` clause.
    """
    block = _choose_root(program, root)
    what = f"`{block.name}`"
    binding = bind_given(block.generics, generics or {}, {}, what)
    require_facts(block.where, binding, what)
    return _Builder(program, present).build(block, binding, "")


@dataclass(slots=True)
class _Builder:
    program: Program
    present: Present
    forms: dict[object, int] = field(default_factory=dict)

    def build(self, block: Block, binding: Binding, path: str) -> BlockInstance:
        tensors: dict[str, TensorMember] = {}
        children: dict[str, Child] = {}
        for member in block.members:
            here = f"{path}.{member.name}" if path else member.name
            if member.kind == "sub":
                children[member.name] = self.child(member, binding, here)
            else:
                assert isinstance(member.type, TensorT)
                there = not member.optional or self.present(here)
                type_ = bound_tensor(member.type, binding)
                tensors[member.name] = TensorMember(
                    member.name, member.kind, type_, member.optional, there
                )
        key = (
            block.key,
            tuple(binding.items()),
            tuple(tensor.present for tensor in tensors.values()),
            tuple(_child_form(child) for child in children.values()),
        )
        form = self.forms.setdefault(key, len(self.forms))
        return BlockInstance(self.program, path, block, binding, tensors, children, form)

    def child(self, member: Member, binding: Binding, path: str) -> Child:
        if isinstance(member.type, ArrayT):
            count = bound_dim(member.type.count, binding)
            if count < 0:
                raise ValueError(f"`{path}` would be an array of {count} blocks")
            item = member.type.item
            child = tuple(self.one(item, binding, f"{path}.{i}") for i in range(count))
        else:
            assert isinstance(member.type, BlockT)
            child = self.one(member.type, binding, path)
        if member.optional and not any(self.present(w) for w in _weight_paths(child)):
            return None
        return child

    def one(self, type_: BlockT, binding: Binding, path: str) -> BlockInstance:
        block = self.program.blocks[type_.key]
        return self.build(block, bound_arguments(type_.generics, binding), path)


def _child_form(child: Child) -> object:
    if isinstance(child, tuple):
        return tuple(item.form for item in child)
    return child.form if child is not None else None


def _weight_paths(child: Child) -> Iterator[str]:
    for instance in _instances(child):
        for spec in parameters(instance):
            if spec.kind != "state":
                yield spec.path


def _instances(child: Child) -> tuple[BlockInstance, ...]:
    if child is None:
        return ()
    return child if isinstance(child, tuple) else (child,)


def _choose_root(program: Program, root: str | None) -> Block:
    if root is not None:
        key = program.exports.get(root, root)
        if key in program.blocks:
            return program.blocks[key]
        named = [block for block in program.blocks.values() if block.name == root]
        if len(named) == 1:
            return named[0]
        choices = [n for n, k in program.exports.items() if k in program.blocks]
        hint = f"it has {', '.join(f'`{n}`' for n in choices)}" if choices else "it has none"
        raise ValueError(f"the module `{program.root}` has no block `{root}`; {hint}")
    public = [program.blocks[k] for k in program.exports.values() if k in program.blocks]
    rooted = [block for block in public if _has_entries(program, block)]
    if len(rooted) == 1:
        return rooted[0]
    if rooted:
        names = ", ".join(f"`{block.name}`" for block in rooted)
        raise ValueError(f"the module `{program.root}` has several blocks with entries: {names}; "
                         "name the one to use")  # fmt: skip
    free = _free_entries(program)
    if not free:
        raise ValueError(f"the module `{program.root}` has no public block with entries")
    span = next(iter(free.values())).span
    methods = {name: function.key for name, function in free.items()}
    return Block("", program.root, (), (), (), methods, True, None, span)


def _has_entries(program: Program, block: Block) -> bool:
    return any(program.functions[key].kind == "entry" for key in block.methods.values())


def _free_entries(program: Program) -> dict[str, Function]:
    exported = ((name, program.functions.get(key)) for name, key in program.exports.items())
    return {name: f for name, f in exported if f is not None and f.kind == "entry"}


# --- the manifest ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ParameterSpec:
    """One weight or state the program has; `kind` is `param`, `buffer` or `state`."""

    path: str
    shape: tuple[int, ...]
    dtype: DType
    kind: str
    optional: bool


def parameters(instance: BlockInstance) -> list[ParameterSpec]:
    """Every weight and state of a block and its children, in declaration order; optional ones that
    are absent are left out."""
    found: list[ParameterSpec] = []
    _collect(instance, found)
    return found


def _collect(instance: BlockInstance, found: list[ParameterSpec]) -> None:
    for member in instance.block.members:
        if member.kind == "sub":
            for child in _instances(instance.children[member.name]):
                _collect(child, found)
            continue
        tensor = instance.tensors[member.name]
        if tensor.present:
            path = f"{instance.path}.{member.name}" if instance.path else member.name
            shape, dtype = tensor.type.shape, tensor.type.dtype
            found.append(ParameterSpec(path, shape, dtype, tensor.kind, tensor.optional))


# --- entries --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Entry:
    """What a runtime exposes: the block's generics are filled in, the entry's own are symbolic."""

    name: str
    function: Function
    generics: tuple[GenericParam, ...]
    inputs: tuple[tuple[str, Type], ...]
    result: Type | None

    def __str__(self) -> str:
        generics = ", ".join(f"{g.name}: {g.kind}" for g in self.generics)
        inputs = ", ".join(f"{name}: {type_text(type_)}" for name, type_ in self.inputs)
        result = f" -> {type_text(self.result)}" if self.result is not None else ""
        return f"{self.name}{f'<{generics}>' if generics else ''}({inputs}){result}"


def entries(instance: BlockInstance) -> dict[str, Entry]:
    """The entries of a root block, then those of its module, by name."""
    program, found = instance.program, {}
    functions = {name: program.functions[key] for name, key in instance.block.methods.items()}
    for name, function in {**_free_entries(program), **functions}.items():
        if function.kind == "entry":
            known = instance.generics if function.block is not None else {}
            inputs = tuple((p.name, partly_bound(p.type, known)) for p in function.params)
            result = None if function.result is None else partly_bound(function.result, known)
            found[name] = Entry(name, function, function.generics, inputs, result)
    return found


def find_entry(instance: BlockInstance, name: str) -> Entry:
    """An entry by name; raises `ValueError` with the choices."""
    known = entries(instance)
    if name not in known:
        choices = ", ".join(f"`{n}`" for n in known) or "none"
        raise ValueError(f"`{instance.block.name}` has no entry `{name}`; its entries: {choices}")
    return known[name]


Argument = TensorType | str | tuple["Argument", ...] | None
"""What an entry is given for a parameter: a tensor's type, a variant's name for an enum, `None`
for an absent optional, a tuple for a tuple or struct."""


def bind_entry(
    instance: BlockInstance,
    entry: str,
    arguments: Sequence[Argument],
    explicit: Mapping[str, object] | None = None,
) -> dict[str, Bound]:
    """An entry's generics, inferred from its arguments' types where they aren't given.

    Raises `ValueError` that names the argument, the type expected and the type found, a generic
    that can't be inferred, or a `where` clause that does not hold.
    """
    signature = find_entry(instance, entry)
    function = signature.function
    outer = instance.generics if function.block is not None else {}
    what = f"`{entry}`"
    if len(arguments) != len(function.params):
        names = ", ".join(param.name for param in function.params) or "none"
        raise ValueError(
            f"{what} takes {len(function.params)} inputs ({names}), {len(arguments)} given"
        )
    own = bind_given(function.generics, explicit or {}, outer, what, need_all=False)
    inference = _Inference(what, {**outer, **own}, function.generics)
    for param, argument in zip(function.params, arguments, strict=True):
        inference.match(param.name, param.type, argument)
    own = inference.finish(outer)
    require_facts(function.where, {**outer, **own}, what)
    for param, argument in zip(function.params, arguments, strict=True):
        _require_type(what, param, argument, {**outer, **own})
    return own


class _Inference:
    """Collects what arguments say about generics not bound yet."""

    def __init__(self, what: str, binding: dict[str, Bound], generics: Sequence[GenericParam]):
        self.what = what
        self.binding = binding
        self.generics = generics
        self.equations: list[tuple[Dim, Dim]] = []

    def match(self, name: str, type_: Type, argument: Argument) -> None:
        match type_:
            case TensorT() if isinstance(argument, TensorType):
                self.match_tensor(name, type_, argument)
            case OptionalT(inner):
                if argument is not None:
                    self.match(name, inner, argument)
            case TupleT(items) if isinstance(argument, tuple) and len(argument) == len(items):
                for i, (item, part) in enumerate(zip(items, argument, strict=True)):
                    self.match(f"{name}.{i}", item, part)
            case StructT(_, fields) if isinstance(argument, tuple) and len(argument) == len(fields):
                for (field_, item), part in zip(fields, argument, strict=True):
                    self.match(f"{name}.{field_}", item, part)
            case EnumT(_, variants) if argument in variants:
                pass
            case _:
                raise self.mismatch(name, type_, argument)

    def match_tensor(self, name: str, type_: TensorT, argument: TensorType) -> None:
        dtype = type_.dtype
        if not isinstance(dtype, DType) and dtype.name not in self.binding:
            if argument.dtype not in KINDS[dtype.kind]:
                raise self.mismatch(name, type_, argument)
            self.binding[dtype.name] = argument.dtype
        partly = partly_bound(type_, self.binding)
        assert isinstance(partly, TensorT)
        packs = [i for i, item in enumerate(partly.shape) if isinstance(item, Pack)]
        spare = len(argument.shape) - (len(partly.shape) - len(packs))
        if len(packs) > 1:
            raise ValueError(f"{self.what}: {name} leaves more than one shape generic open")
        if spare < 0 or (spare > 0 and not packs) or partly.dtype != argument.dtype:
            raise self.mismatch(name, type_, argument)
        at = 0
        for item in partly.shape:
            if isinstance(item, Pack):
                self.binding[item.name] = argument.shape[at : at + spare]
                at += spare
            else:
                self.equations.append((item, Dim.const(argument.shape[at])))
                at += 1

    def finish(self, outer: Binding) -> dict[str, Bound]:
        """The entry's own generics, all of them."""
        unknown = frozenset(
            g.name for g in self.generics if g.kind == "Dim" and g.name not in self.binding
        )
        for name, dim in solve(self.equations, unknown, Facts()).items():
            if dim.constant is not None and dim.constant >= 0:
                self.binding[name] = dim.constant
        own: dict[str, Bound] = {}
        for generic in self.generics:
            if generic.name in self.binding:
                own[generic.name] = self.binding[generic.name]
            elif generic.default is not None:
                own[generic.name] = bound_value(generic.default, {**outer, **own})
            else:
                raise ValueError(
                    f"{self.what}: `{generic.name}` does not follow from the inputs; give its value"
                )
        return own

    def mismatch(self, name: str, type_: Type, argument: Argument) -> ValueError:
        expected = type_text(partly_bound(type_, self.binding))
        return ValueError(
            f"{self.what}: `{name}` must be {expected}, not {argument_text(argument)}"
        )


def _require_type(what: str, param: Param, argument: Argument, binding: Binding) -> None:
    declared, concrete = param.type, partly_bound(param.type, binding)
    if _fits(declared, argument, binding):
        return
    wanted, meant = type_text(declared), type_text(concrete)
    given = argument_text(argument)
    known = "" if wanted == meant else f" = {meant}"
    names = ", ".join(f"{n} = {text(v)}" for n, v in binding.items() if _mentions(declared, n))
    reason = f" (with {names})" if names else ""
    raise ValueError(f"{what}: `{param.name}` must be {wanted}{known}, not {given}{reason}")


def _fits(type_: Type, argument: Argument, binding: Binding) -> bool:
    match type_:
        case TensorT(shape, dtype):
            return (
                isinstance(argument, TensorType)
                and argument.shape == bound_shape(shape, binding)
                and argument.dtype == bound_dtype(dtype, binding)
            )
        case OptionalT(inner):
            return argument is None or _fits(inner, argument, binding)
        case TupleT(items):
            parts = argument if isinstance(argument, tuple) else ()
            return all(_fits(t, a, binding) for t, a in zip(items, parts, strict=True))
        case StructT(_, fields):
            parts = argument if isinstance(argument, tuple) else ()
            return all(_fits(t, a, binding) for (_, t), a in zip(fields, parts, strict=True))
        case _:
            return True


def _mentions(type_: Type, name: str) -> bool:
    match type_:
        case TensorT(shape):
            return any(isinstance(item, Dim) and name in item.variables() for item in shape)
        case OptionalT(inner):
            return _mentions(inner, name)
        case TupleT(items):
            return any(_mentions(item, name) for item in items)
        case StructT(_, fields):
            return any(_mentions(item, name) for _, item in fields)
        case _:
            return False


def argument_text(argument: Argument) -> str:
    """What was given, as source text: `Tensor[1, 5; i32]`, `none`, `(f32, f32)`."""
    if isinstance(argument, TensorType):
        shape = tuple(Dim.const(n) for n in argument.shape)
        return type_text(TensorT(shape, argument.dtype))
    if isinstance(argument, tuple):
        return f"({', '.join(map(argument_text, argument))})"
    return "none" if argument is None else repr(argument)
