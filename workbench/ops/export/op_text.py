"""Definition of the ``torch.library`` op of an exported file, and its registrations for torch.compile and autograd."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from workbench.errors import ArgumentError
from workbench.ops.export.code import is_lambda
from workbench.ops.export.layout import INDENT, fitted, in_tuple, literal
from workbench.ops.export.tensors import after_launch, before_launch

if TYPE_CHECKING:
    from workbench.ops.export.exported import Exported


def op_text(file: Exported) -> list[str]:
    """Return the functions of the op, and the statements that register them."""
    name, outputs = file.op.name, file.code.outputs
    parameters = ", ".join(file.contract.parameters)
    sections = [_empty_outputs(file)] if outputs else []
    if file.variant.space and file.chosen:
        sections.append("chosen = {}  # the configuration for each kind of call")
    fake = "empty_outputs" if outputs else f"lambda {file.signature.untyped}: None"
    return [*sections, _definition(file, parameters), f"{name}.register_fake({fake})", *_autograd(file)]


def _empty_outputs(file: Exported) -> str:
    signature, several = file.signature, len(file.code.outputs) > 1
    given = {
        name: f'{signature.unless_none(name)}{name}.to("meta")' if name in signature.tensors else name
        for name in file.contract.parameters
    }
    made = f"torch.empty(like.shape, dtype=like.dtype, device={signature.first}.device)"
    return fitted(f'''def empty_outputs({signature.untyped}):
    """Return outputs for the op to compute; the reference gives their shapes and dtypes without data."""
    {"likes" if several else "like"} = {signature.reference(given)}
    return {f"tuple({made} for like in likes)" if several else made}''')


def _definition(file: Exported, parameters: str) -> str:
    name, outputs, signature = file.op.name, file.code.outputs, file.signature
    one_device = f"one_device({', '.join(signature.tensors)})"
    lines = [
        f'@torch.library.custom_op("exported::{name}", mutates_args={literal(file.contract.in_place)})',
        f"def {name}({', '.join(signature.parameters)}) -> {signature.returned}:",
        f'{INDENT}"""{"Return" if outputs else "Write"} the reference\'s results, computed by the kernel on a GPU."""',
        f"{INDENT}device = {one_device if len(signature.tensors) > 1 else f'{signature.first}.device'}",
        f'{INDENT}if device.type != "cuda":',
    ]
    fresh = "clone(memory_format=torch.contiguous_format)"
    reference = signature.reference({name: name for name in file.contract.parameters})
    if len(outputs) == 1:
        lines.append(f"{INDENT * 2}return {reference}.{fresh}")
    elif outputs:
        lines.append(f"{INDENT * 2}return tuple(one.{fresh} for one in {reference})")
    else:
        lines += [f"{INDENT * 2}{reference}", f"{INDENT * 2}return"]
    if outputs:
        lines.append(f"{INDENT}{', '.join(outputs)} = empty_outputs({parameters})")
    lines += [*before_launch(file), *_configuration(file, parameters)]
    config = "{}" if not file.variant.space else "chosen[signature]" if file.chosen else "CONFIGURATION"
    lines.append(f"{INDENT}launch({', '.join([config, *file.launch_takes])})")
    lines += [*after_launch(file), *([f"{INDENT}return {', '.join(outputs)}"] if outputs else [])]
    return fitted("\n".join(lines))


def _configuration(file: Exported, parameters: str) -> list[str]:
    """Return lines that find the configuration of a call."""
    if not file.chosen:
        return []
    if not file.variant.space:
        test = f"is_legal({', '.join(['{}', *file.legal_takes])})"
        what = '"the kernel cannot run on these arguments: see is_legal"'
        return [f"{INDENT}if not {test}:", f"{INDENT * 2}raise ValueError({what})"]
    legal = "lambda config: " + (f"is_legal({', '.join(['config', *file.legal_takes])})" if file.rules else "True")
    found = f"choose(device, ({in_tuple(file.contract.parameters)}), {legal})"
    reals = [name for name, kind in file.signature.kinds.items() if kind == "float"]
    return [
        f"{INDENT}signature = {', '.join(['device', f'described({parameters})', *reals])}",
        f"{INDENT}if signature not in chosen:",
        f"{INDENT * 2}chosen[signature] = {found if file.winners else f'first_legal({legal})'}",
    ]


def _autograd(file: Exported) -> list[str]:
    backward = file.op.backward
    if backward is None:
        return []
    outputs, signature, name = file.code.outputs, file.signature, file.op.name
    if signature.optional:
        what = f"{', '.join(sorted(signature.optional))}, which may be None"
        raise ArgumentError("export: backward", what, "tensors that are always there", "Make two ops of it.")
    if is_lambda(backward):
        text = file.collected.written_out(backward, "backward")
    elif inspect.isfunction(backward):
        text = file.collected.function(backward, "backward")
    else:
        what = type(backward).__name__
        raise ArgumentError("export: backward", what, "a Python function", "Write one with def.")
    tensors, parameters = signature.tensors, file.contract.parameters
    results = ["output"] if len(outputs) == 1 else ["*output"] if outputs else []
    keep = [
        "def keep(ctx, inputs, output):",
        f'{INDENT}"""Save the values that the gradients are computed from."""',
        f"{INDENT}{in_tuple(parameters)} = inputs",
        f"{INDENT}ctx.save_for_backward({', '.join([*tensors, *results])})",
        *(f"{INDENT}ctx.{one} = {one}" for one in parameters if one not in tensors),
    ]
    incoming = [f"grad_{one}" for one in outputs]
    named = [f"{one}={one if one in tensors else f'ctx.{one}'}" for one in parameters]
    found = f"grad_of_{tensors[0]} = found[0] if isinstance(found, tuple | list) else found"
    gradients = [
        f"def gradients(ctx, {', '.join(incoming)}):",
        f'{INDENT}"""Return the gradient of each argument, None for one that is not a tensor."""',
        f"{INDENT}{in_tuple([*tensors, *outputs])} = ctx.saved_tensors",
        f"{INDENT}found = backward({', '.join([*incoming, *outputs, *named])})",
        INDENT + (found if len(tensors) == 1 else f"{', '.join(f'grad_of_{one}' for one in tensors)} = found"),
        f"{INDENT}return {', '.join(f'grad_of_{one}' if one in tensors else 'None' for one in parameters)}",
    ]
    registered = f"{name}.register_autograd(gradients, setup_context=keep)"
    return [text, fitted("\n".join(keep)), fitted("\n".join(gradients)), registered]
