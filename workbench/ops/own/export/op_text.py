"""The ``torch.library`` op of an exported file: what it runs, what it promises to torch.compile and autograd."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from workbench.errors import ArgumentError
from workbench.ops.own.export.code import is_lambda
from workbench.ops.own.export.layout import INDENT, call, in_tuple, laid_out, literal, quoted, unparsed

if TYPE_CHECKING:
    from workbench.ops.own.export.file import _File


def op_text(file: _File) -> list[str]:
    """Its functions, and what registers them."""
    sections = [*_empty_outputs(file)]
    if file.variant.space and file.chosen:
        sections.append("chosen = {}  # the configuration for each kind of call")
    sections.append(_definition(file))
    name, outputs = file.op.name, file.code.outputs
    parameters = ", ".join(file.contract.parameters)
    sections.append(f"{name}.register_fake({'empty_outputs' if outputs else f'lambda {parameters}: None'})")
    return [*sections, *_autograd(file)]


def _empty_outputs(file: _File) -> list[str]:
    outputs, signature = file.code.outputs, file.signature
    if not outputs:
        return []
    given = []
    for name in file.contract.parameters:
        if name in signature.optional:
            given.append(f'None if {name} is None else {name}.to("meta")')
        else:
            given.append(f'{name}.to("meta")' if name in signature.tensors else name)
    device = f"device={_first(file)}.device"
    lines = [
        f"def empty_outputs({', '.join(file.contract.parameters)}):",
        f'{INDENT}"""What the op returns, not yet computed: the reference tells shape and dtype without data."""',
    ]
    if len(outputs) == 1:
        lines.append(laid_out(call("reference", given), INDENT, "like = "))
        lines.append(f"{INDENT}return torch.empty(like.shape, dtype=like.dtype, {device})")
    else:
        lines.append(laid_out(call("reference", given), INDENT, "likes = "))
        lines.append(f"{INDENT}return tuple(torch.empty(like.shape, dtype=like.dtype, {device}) for like in likes)")
    return ["\n".join(lines)]


def _definition(file: _File) -> str:
    name, outputs, signature = file.op.name, file.code.outputs, file.signature
    written = literal(tuple(file.contract.in_place))
    parameters = ", ".join(file.contract.parameters)
    first = _first(file)
    lines = [
        laid_out(call("torch.library.custom_op", [quoted(f"exported::{name}"), f"mutates_args={written}"]), "", "@"),
        laid_out(call(name, signature.parameters), "", "def ", f" -> {signature.returned}:"),
        f'{INDENT}"""What the reference {"gives" if outputs else "does"}; on a GPU the kernel computes it."""',
    ]
    if len(signature.tensors) > 1:
        lines.append(f"{INDENT}device = one_device({', '.join(signature.tensors)})")
    else:
        lines.append(f"{INDENT}device = {first}.device")
    lines.append(f'{INDENT}if device.type != "cuda":')
    fresh = "clone(memory_format=torch.contiguous_format)"
    if len(outputs) == 1:
        lines.append(f"{INDENT * 2}return reference({parameters}).{fresh}")
    elif outputs:
        lines.append(f"{INDENT * 2}return tuple(one.{fresh} for one in reference({parameters}))")
    else:
        lines += [f"{INDENT * 2}reference({parameters})", f"{INDENT * 2}return"]
    if outputs:
        lines.append(f"{INDENT}{', '.join(outputs)} = empty_outputs({parameters})")
    lines += _configuration(file, parameters)
    config = "{}" if not file.variant.space else "chosen[signature]" if file.chosen else "CONFIGURATION"
    lines.append(laid_out(call("launch", [config, *file.launch_takes]), INDENT))
    lines += [f"{INDENT}return {', '.join(outputs)}"] if outputs else []
    return "\n".join(lines)


def _configuration(file: _File, parameters: str) -> list[str]:
    """Lines that find the configuration of a call."""
    if not file.chosen:
        return []
    rules = any(rule.names != ("config",) for rule in file.declared.rules)
    legal = f"is_legal({', '.join(['config', *file.legal_takes])})" if rules else "True"
    if not file.variant.space:
        test = f"is_legal({', '.join(['{}', *file.legal_takes])})"
        what = '"the kernel cannot run on these arguments: see is_legal"'
        return [f"{INDENT}if not {test}:", f"{INDENT * 2}raise ValueError({what})"]
    reals = [name for name, kind in file.signature.kinds.items() if kind == "float"]
    found = ["device", f"described({parameters})", *reals]
    lines = [f"{INDENT}signature = {', '.join(found)}", f"{INDENT}if signature not in chosen:"]
    if file.winners:
        made = call("choose", ["device", f"({in_tuple(file.contract.parameters)})", f"lambda config: {legal}"])
    else:
        made = call("first_legal", [f"lambda config: {legal}"])
    return [*lines, laid_out(made, INDENT * 2, "chosen[signature] = ")]


def _autograd(file: _File) -> list[str]:
    backward = file.op.backward
    if backward is None:
        return []
    outputs, signature, name = file.code.outputs, file.signature, file.op.name
    if signature.optional:
        what = f"{', '.join(sorted(signature.optional))}, which may be None"
        raise ArgumentError("export: backward", what, "tensors that are always there", "Make two ops of it.")
    if is_lambda(backward):
        parameters, body = file.collected.expression(backward, "backward")
        text = f"def backward({', '.join(parameters)}):\n{laid_out(unparsed(body), INDENT, 'return ')}"
    elif inspect.isfunction(backward):
        text = file.collected.function(backward, "backward")
    else:
        what = type(backward).__name__
        raise ArgumentError("export: backward", what, "a Python function", "Write one with def.")
    others = [one for one in file.contract.parameters if one not in signature.tensors]
    keep = ["def keep(ctx, inputs, output):", f'{INDENT}"""Save what the gradients are computed from."""']
    keep.append(f"{INDENT}{in_tuple(file.contract.parameters)} = inputs")
    saved = [*signature.tensors, "output" if len(outputs) == 1 else "*output"] if outputs else [*signature.tensors]
    keep.append(laid_out(call("ctx.save_for_backward", saved), INDENT))
    keep += [f"{INDENT}ctx.{one} = {one}" for one in others]
    incoming = [f"grad_{one}" for one in outputs]
    gradients = [
        f"def gradients(ctx, {', '.join(incoming)}):",
        f'{INDENT}"""Those of the arguments, None for what is no tensor."""',
        f"{INDENT}{in_tuple([*signature.tensors, *outputs])} = ctx.saved_tensors",
    ]
    named = [f"{one}={one if one in signature.tensors else f'ctx.{one}'}" for one in file.contract.parameters]
    gradients.append(laid_out(call("backward", [*incoming, *outputs, *named]), INDENT, "found = "))
    if len(signature.tensors) == 1:
        only = signature.tensors[0]
        gradients.append(f"{INDENT}grad_of_{only} = found[0] if isinstance(found, tuple | list) else found")
    else:
        gradients.append(f"{INDENT}{', '.join(f'grad_of_{one}' for one in signature.tensors)} = found")
    answer = [f"grad_of_{one}" if one in signature.tensors else "None" for one in file.contract.parameters]
    gradients.append(f"{INDENT}return {', '.join(answer)}")
    registered = f"{name}.register_autograd(gradients, setup_context=keep)"
    return [text, "\n".join(keep), "\n".join(gradients), registered]


def _first(file: _File) -> str:
    return next(one for one in file.signature.tensors if one not in file.signature.optional)
