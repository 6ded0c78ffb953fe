"""Simplification of traced graphs: views without effect, constants and repeated operations are removed.

All backends but the compiler run one call per node, so a node that computes nothing costs as much as one that does.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

aten = torch.ops.aten

RESHAPES = {aten.view.default, aten._unsafe_view.default, aten.unsqueeze.default, aten.squeeze.dim}
"""Views that keep the order of the elements."""
SAME = {aten.detach.default, aten.alias.default}
"""Views of the whole tensor; gradients have aliases since torch 2.14."""
SPLITS = {aten.split.Tensor, aten.split_with_sizes.default}
VIEWS = RESHAPES | {
    *SAME,
    *SPLITS,
    aten.t.default,
    aten.expand.default,
    aten.permute.default,
    aten.select.int,
    aten.slice.Tensor,
    aten.unfold.default,
    aten.unbind.int,
    operator.getitem,
}
CONSTANTS = {
    aten.scalar_tensor.default,
    aten.zeros_like.default,
    aten.ones_like.default,
    aten.new_zeros.default,
    aten.zeros.default,
    aten.ones.default,
    aten.arange.default,
    aten.arange.start,
    aten.arange.start_step,
}
"""Operations whose result depends on shapes and numbers only."""
WITH_NUMBERS: dict[Any, Any] = {
    aten.add.Tensor: aten.add.Tensor,
    aten.sub.Tensor: aten.sub.Tensor,
    aten.mul.Tensor: aten.mul.Tensor,
    aten.div.Tensor: aten.div.Tensor,
    aten.gt.Scalar: aten.gt.Tensor,
    aten.ge.Scalar: aten.ge.Tensor,
    aten.lt.Scalar: aten.lt.Tensor,
    aten.le.Scalar: aten.le.Tensor,
    aten.eq.Scalar: aten.eq.Tensor,
    aten.clamp_min.default: aten.maximum.default,
    aten.clamp_max.default: aten.minimum.default,
}
"""Operations of a tensor and a number, with the same operation of two tensors."""
CONSTANT = "constant_"
"""Prefix of the names of tensors that only the graph refers to, which never move."""
ONES = {aten.ones_like.default, aten.ones.default}
PRODUCTS = {aten.mul.Tensor, aten.mul.Scalar}
RANDOM = torch.Tag.nondeterministic_seeded


def simplify(module: GraphModule) -> None:
    """Removes operations without effect from a traced graph, in place; results and written memory stay the same.

    Args:
        module: graph of operations with `meta["val"]` of each node.
    """
    written = written_roots(module.graph)
    for node in list(module.graph.nodes):
        replacement = _replacement(node, written)
        if replacement is not None:
            node.replace_all_uses_with(replacement)
            module.graph.erase_node(node)
    _merge_repeated(module, written)
    written = written_roots(module.graph)
    for node in list(module.graph.nodes):
        _use_tensors_for_numbers(module, node)
        _hold_if_constant(module, node, written)
    module.graph.eliminate_dead_code()
    module.recompile()


def is_in_place(node: Node) -> bool:
    """Returns True if the operation of a node writes to its first argument."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable


def root(node: Node) -> Any:
    """Returns the node whose memory a view refers to; for an attribute its name, since it may be read by several nodes."""
    while node.op == "call_function":
        results = getattr(getattr(node.target, "_schema", None), "returns", ())
        if not (node.target in VIEWS or is_in_place(node) or any(result.alias_info is not None for result in results)):
            break
        node = node.args[0]  # type: ignore[assignment]
    return node.target if node.op == "get_attr" else node


def written_roots(graph: Graph) -> set[Any]:
    """Returns the roots of all memory that a graph writes."""
    return {root(node) for node in graph.nodes if is_in_place(node)}


def _replacement(node: Node, written: set[Any]) -> Node | None:
    """Returns an earlier node with the same result; None if there is none."""
    if node.op != "call_function" or not torch.is_tensor(node.meta.get("val")):
        return None
    source: Any = node.args[0] if node.args else None
    if node.target in SAME:
        return source  # type: ignore[no-any-return]
    if node.target is aten.t.default and source.target is aten.t.default:
        return source.args[0]  # type: ignore[no-any-return]
    if node.target in RESHAPES:
        while source.target in RESHAPES:
            source = source.args[0]
        if source.meta["val"].shape == node.meta["val"].shape:
            return source  # type: ignore[no-any-return]
        if source is not node.args[0]:
            node.target = aten.view.default
            node.args = (source, list(node.meta["val"].shape))
    if node.target is aten.expand.default and source.meta["val"].shape == node.meta["val"].shape:
        return source  # type: ignore[no-any-return]
    if node.target is operator.getitem and source.target is aten.unbind.int:
        stacked = source.args[0]
        if stacked.target is aten.stack.default and stacked.args[1:] == source.args[1:] and stacked not in written:
            return stacked.args[0][node.args[1]]  # type: ignore[no-any-return]
    part = _concatenated_part(node)
    if part is not None and not written & {root(part), root(node)}:
        return part
    if node.target in PRODUCTS and not written & {root(one) for one in (node, *node.all_input_nodes)}:
        form = node.meta["val"].shape, node.meta["val"].dtype
        for one, other in (node.args, node.args[::-1]):
            is_one = one.target in ONES if isinstance(one, Node) else type(one) in (int, float) and one == 1
            if is_one and isinstance(other, Node) and (other.meta["val"].shape, other.meta["val"].dtype) == form:
                return other
    return None


def _concatenated_part(node: Node) -> Node | None:
    """Returns the tensor that a slice of concatenated tensors is a copy of, such as the features of one dueling stream; None if
    there is none."""
    source: Any = node.args[0] if node.args else None
    whole: Any = source
    if node.target is operator.getitem and source.target in SPLITS:
        whole, axis = source.args[0], (*source.args[2:], 0)[0]
        first = sum(part.shape[axis] for part in source.meta["val"][: node.args[1]])
    elif node.target is aten.slice.Tensor:
        arguments: list[Any] = list(node.args[1:])
        axis, first, _, step = arguments + [0, 0, None, 1][len(arguments) :]
        if first is None or step != 1:
            return None
    else:
        return None
    if whole.target is not aten.cat.default:
        return None
    shape, dtype = node.meta["val"].shape, node.meta["val"].dtype
    if axis % len(shape) != (*whole.args[1:], 0)[0] % len(shape):
        return None
    for part in whole.args[0]:
        if first == 0 and (part.meta["val"].shape, part.meta["val"].dtype) == (shape, dtype):
            return part  # type: ignore[no-any-return]
        first -= part.meta["val"].shape[axis]
    return None


def _merge_repeated(module: GraphModule, written: set[Any]) -> None:
    """Merges operations of the same arguments, unless what they read is written in between, or their results are written or
    returned."""
    outputs = set(module.graph.find_nodes(op="output")[0].all_input_nodes)
    seen: dict[Any, Node] = {}
    for node in list(module.graph.nodes):
        if node.op == "get_attr":
            key: Any = node.target
        elif node.op != "call_function" or node in outputs:
            continue
        elif is_in_place(node):
            # attributes and views stay valid: they refer to memory
            target = root(node)
            seen = {
                key: one
                for key, one in seen.items()
                if one.op == "get_attr" or one.target in VIEWS or not _may_read(one, target)
            }
            continue
        elif node.target not in VIEWS and (root(node) in written or RANDOM in getattr(node.target, "tags", ())):
            continue
        else:
            key = (node.target, _hashable(node.args), _hashable(node.kwargs))
        first = seen.setdefault(key, node)
        if first is not node:
            node.replace_all_uses_with(first)
            module.graph.erase_node(node)


def _may_read(node: Node, target: Any) -> bool:
    """Returns True if an operation may read memory of a root; memory from outside of the graph may have several names."""
    roots = {root(one) for one in node.all_input_nodes}
    return target in roots or (_is_outside(target) and any(map(_is_outside, roots)))


def _is_outside(of: Any) -> bool:
    return isinstance(of, str) or of.op == "placeholder"


def _use_tensors_for_numbers(module: GraphModule, node: Node) -> None:
    """Replaces the number in an operation of a tensor and a number, since torch makes a tensor of it at each call."""
    if node.target not in WITH_NUMBERS or node.kwargs or type(node.args[1]) not in (int, float):
        return
    x: Any = node.args[0]
    if not isinstance(x, Node):
        return
    dtype, number = x.meta["val"].dtype, node.args[1]
    if x.meta["val"].device.type != "cpu":
        return
    if dtype in (torch.float32, torch.float64) or (dtype == torch.int64 and type(number) is int):
        held = _hold(module, node, torch.tensor(number, dtype=dtype))
        node.target = WITH_NUMBERS[node.target]
        node.args = (x, held)


def _hold_if_constant(module: GraphModule, node: Node, written: set[Any]) -> None:
    """Computes constants, and views of fixed memory, before the first run."""
    if node.op != "call_function" or not torch.is_tensor(node.meta.get("val")):
        return
    is_constant = node.target in CONSTANTS and node not in written
    source = node.args[0] if node.args else None
    is_fixed = node.target in VIEWS and isinstance(source, Node) and source.op == "get_attr"
    if any(user.op == "output" for user in node.users) or not (is_constant or is_fixed):
        return
    with torch.no_grad():
        if is_fixed:
            tensor = getattr(module, str(source.target)).detach()  # type: ignore[union-attr]
            value = node.target(tensor, *node.args[1:], **node.kwargs)  # type: ignore[operator]
        else:
            value = _constant(node)
    is_view_of_state = is_fixed and not source.target.startswith(CONSTANT)  # type: ignore[union-attr]
    node.replace_all_uses_with(_hold(module, node, value, "held_" if is_view_of_state else CONSTANT))
    module.graph.erase_node(node)


def _constant(node: Node) -> torch.Tensor:
    shape, form = node.meta["val"].shape, {"dtype": node.meta["val"].dtype, "device": node.meta["val"].device}
    if node.target is aten.scalar_tensor.default:
        return torch.tensor(node.args[0], **form)
    if "arange" in str(node.target):
        return torch.arange(*node.args, **form)  # type: ignore[arg-type]
    # with the strides that views of it expect: `zeros_like` keeps those of a permuted tensor
    return torch.empty_strided(shape, node.meta["val"].stride(), **form).fill_(node.target in ONES)


def _hold(module: GraphModule, node: Node, value: torch.Tensor, prefix: str = CONSTANT) -> Node:
    """Makes a tensor an attribute of the graph; returns the node that reads it."""
    name = f"{prefix}{sum(1 for key in module._buffers if key.startswith(prefix))}"
    module.register_buffer(name, value)  # TorchScript would compute once what depends on plain attributes only
    with module.graph.inserting_before(node):
        held = module.graph.create_node("get_attr", name)
    held.meta = {"val": value}
    return held


def _hashable(value: object) -> Any:
    """Returns a key in which 1, 1.0 and True differ."""
    if isinstance(value, list | tuple):
        return tuple(_hashable(one) for one in value)
    if isinstance(value, dict):
        return tuple((name, _hashable(one)) for name, one in value.items())
    return value if isinstance(value, Node) else (type(value), repr(value))
