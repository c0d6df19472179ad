"""An emitted graph as ONNX's protobuf, checked, with shapes inferred. Imports onnx when it runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from linnet.dtypes import DType
from linnet.emit.onnx import Emitted, emit
from linnet.emit.onnx_graph import Attr, Graph, Node, Tensor
from linnet.emit.onnx_target import MS, OPSET, OnnxTarget, Part
from linnet.emit.onnx_types import ONNX
from linnet.ir.core import Module

if TYPE_CHECKING:
    import onnx

EXTERNAL = "weights.bin"
"""Where initializers say that their values are."""


def part_tensors(part: Part) -> dict[str, Tensor]:
    """The arrays of a packed part, by name, as `MatMulNBits` takes them."""
    blocks = part.columns // 32
    found = {
        "blocks": Tensor((part.rows, blocks, 4 * part.bits), DType.U8),
        "scales": Tensor((part.rows, blocks), DType.F32),
    }
    if part.zeros:
        width = -(-blocks * part.bits // 8)
        found["zeros"] = Tensor((part.rows, width), DType.U8)
    if part.offsets:
        found["offsets"] = Tensor((blocks, part.rows), DType.F32)
    return {f"{part.name}.{name}": tensor for name, tensor in found.items()}


def initializers(emitted: Emitted) -> dict[str, Tensor]:
    """Every initializer that has no values in the graph, by name."""
    found = {name: Tensor(w.shape, w.dtype) for name, w in emitted.weights.items()}
    for part in emitted.packed.values():
        found |= part_tensors(part)
    used = {name for node in emitted.graph.walk() for name in node.inputs}
    return {name: tensor for name, tensor in found.items() if name in used}


def build(emitted: Emitted, *, location: str = EXTERNAL) -> onnx.ModelProto:
    """The model without its weights, which are said to be in a file beside it.

    Metadata gives the path of each weight and state by its name, and what has to hold of inputs.
    """
    from onnx import TensorProto, helper

    graph = _graph(emitted.graph, emitted.types)
    for name, tensor in emitted.constants.items():
        graph.initializer.append(_constant(name, tensor))
    for name, tensor in initializers(emitted).items():
        proto = TensorProto(
            name=name,
            data_type=ONNX[tensor.dtype],
            dims=tensor.shape,
            data_location=TensorProto.EXTERNAL,
        )
        entry = proto.external_data.add()
        entry.key, entry.value = "location", location
        graph.initializer.append(proto)
    domains = {node.domain for node in emitted.graph.walk()}
    opsets = [helper.make_opsetid("", OPSET)]
    opsets += [helper.make_opsetid(MS, 1)] if MS in domains else []
    model = helper.make_model(
        graph, opset_imports=opsets, producer_name="linnet",
        ir_version=helper.find_min_ir_version_for(opsets[:1]),
    )  # fmt: skip
    helper.set_model_props(model, _metadata(emitted))
    return model


def checked(module: Module, target: OnnxTarget) -> onnx.ModelProto:
    """A module's model without its weights, checked."""
    model = build(emit(module, target))
    check(model)
    return model


def text(model: onnx.ModelProto) -> str:
    """A model in ONNX's own text form, one node a line."""
    from onnx import printer

    return printer.to_text(model)


def _metadata(emitted: Emitted) -> dict[str, str]:
    states = {s.input: {"path": s.path, "new": s.output} for s in emitted.states}
    requires = [
        {"input": emitted.inputs[r.position], "low": r.low, "high": r.high}
        for r in emitted.requires
    ]
    return {
        "linnet.entry": emitted.name,
        "linnet.weights": json.dumps({name: w.path for name, w in emitted.weights.items()}),
        "linnet.states": json.dumps(states),
        "linnet.requires": json.dumps(requires),
    }


def check(model: onnx.ModelProto) -> None:
    """Raises `onnx.checker.ValidationError` for a model that breaks ONNX's rules, and
    `onnx.shape_inference.InferenceError` for types that don't fit."""
    import onnx

    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    for tensor in bare.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            # Its values are not looked at, but their file would be.
            shape = list(tensor.dims)
            value = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, shape)
            bare.graph.input.append(value)
    kept = [t for t in bare.graph.initializer if t.data_location != onnx.TensorProto.EXTERNAL]
    del bare.graph.initializer[:]
    bare.graph.initializer.extend(kept)
    onnx.checker.check_model(bare, full_check=True)
    onnx.shape_inference.infer_shapes(bare, check_type=True, strict_mode=True, data_prop=True)


def _graph(graph: Graph, types: Mapping[str, Tensor]) -> onnx.GraphProto:
    from onnx import helper

    made = {name for node in graph.nodes for name in node.outputs}
    outputs = {name for name, _ in graph.outputs}
    infos = [_info(n, t) for n, t in types.items() if n in made and n not in outputs]
    return helper.make_graph(
        [_node(node, types) for node in graph.nodes],
        graph.name,
        _infos(graph.inputs),
        _infos(graph.outputs),
        value_info=infos,
    )


def _infos(values: Iterable[tuple[str, Tensor]]) -> list[Any]:
    return [_info(name, tensor) for name, tensor in values]


def _info(name: str, tensor: Tensor) -> Any:
    from onnx import helper

    return helper.make_tensor_value_info(name, ONNX[tensor.dtype], tensor.shape)


def _node(node: Node, types: Mapping[str, Tensor]) -> onnx.NodeProto:
    from onnx import helper

    attrs = {name: _attribute(value, types) for name, value in node.attrs.items()}
    return helper.make_node(
        node.op, node.inputs, node.outputs, name=node.outputs[0], domain=node.domain, **attrs
    )


def _attribute(value: Attr, types: Mapping[str, Tensor]) -> Any:
    if isinstance(value, Graph):
        return _graph(value, types)
    if isinstance(value, DType):
        return ONNX[value]
    return list(value) if isinstance(value, tuple) else value


def _constant(name: str, tensor: Tensor) -> onnx.TensorProto:
    from onnx import helper

    return helper.make_tensor(name, ONNX[tensor.dtype], tensor.shape, tensor.values)
