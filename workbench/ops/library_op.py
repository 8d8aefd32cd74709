"""A built-in op as one of torch's: its arguments are the fields of a run's tensors, which are declared once."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from inspect import Parameter, Signature
from types import GenericAlias, MappingProxyType
from typing import Any, get_type_hints

import torch

from workbench.ops import registry
from workbench.ops.dispatch import config_text, run
from workbench.ops.tensor_checks import check_apart, check_devices


def custom_op(
    name: str, function: Callable[..., Any] | None = None, *, mutates_args: Iterable[str], schema: str | None = None
) -> Any:
    """`torch.library.custom_op`, also as a decorator, whose first call does not load torch's compiler.

    Torch keeps its compiler away from what an op does, and imports it for that: eight hundred modules, two seconds.
    Where nothing has imported it there is nothing to keep away.
    """
    if function is None:
        return functools.partial(custom_op, name, mutates_args=mutates_args, schema=schema)
    made = torch.library.custom_op(name, function, mutates_args=mutates_args, schema=schema)
    kernels = getattr(made, "_backend_fns", {})  # torch's own, each with the function that it guards
    kernels.update({device: _guarded_when_loaded(kernel) for device, kernel in kernels.items()})
    return made


def _guarded_when_loaded(guarded: Callable[..., Any]) -> Callable[..., Any]:
    plain = getattr(guarded, "__wrapped__", guarded)

    @functools.wraps(guarded)
    def kernel(*values: Any, **options: Any) -> Any:
        return (guarded if "torch._dynamo" in sys.modules else plain)(*values, **options)

    return kernel


class LibraryOp:
    """The ``torch.library`` op ``workbench::name``; calling it checks the arguments and runs a variant on them.

    Args:
        name: the op's.
        tensors: the dataclass of a run's tensors, whose fields are the arguments, but those that are ``made`` later.
        problem_of: (tensors, **options) -> the problem, with everything checked that needs no other device.
        like: the field that tells the device, and that has no elements where there is nothing to do.
        written: which of them it writes; they share memory with no other.
        make: called with the tensors before a run, to fill in what is ``made``.
        returned: what of that the op returns.
        options: default of each further argument, a string or None.
        names: what messages call a field, where otherwise than by its name.
    """

    def __init__(
        self,
        name: str,
        tensors: type,
        problem_of: Callable[..., Any],
        *,
        like: str,
        written: Sequence[str] = (),
        made: Sequence[str] = (),
        make: Callable[[Any], None] | None = None,
        returned: Sequence[str] = (),
        options: Mapping[str, str | None] = MappingProxyType({}),
        names: Mapping[str, str] = MappingProxyType({}),
    ):
        own, kinds = [one for one in fields(tensors) if one.name not in made], get_type_hints(tensors)
        options = {**options, "variant": "auto", "config": None}
        takes = [(one.name, kinds[one.name], Parameter.empty if one.default is MISSING else one.default) for one in own]
        takes += [(one, str | None if default is None else str, default) for one, default in options.items()]
        parameters = [
            Parameter(one, Parameter.POSITIONAL_OR_KEYWORD, annotation=kind, default=default)
            for one, kind, default in takes
        ]
        self._fields, self._options = [one.name for one in own], list(options)
        self._tensors = {
            names.get(one, one): one for one in self._fields if kinds[one] in (torch.Tensor, torch.Tensor | None)
        }
        shown = {names.get(one, one) for one in written}

        usual = [one.default for one in parameters]

        def given(values: tuple) -> tuple[Any, dict[str, Any]]:
            values += tuple(usual[len(values) :])  # torch leaves out what has its default
            own, rest = values[: len(self._fields)], values[len(self._fields) :]
            found = tensors(**dict.fromkeys(made), **dict(zip(self._fields, own, strict=True)))
            return found, dict(zip(self._options, rest, strict=True))

        def implementation(*values: Any) -> Any:
            t, options = given(values)
            variant, config = options.pop("variant"), options.pop("config")
            if written:
                check_apart({name: getattr(t, one) for name, one in self._tensors.items()}, shown)
            problem = problem_of(t, **options)
            if make is not None:
                make(t)
            run(registry.get(name), problem, t, getattr(t, like), variant, config)
            return tuple(getattr(t, one) for one in returned) if returned else None

        def fake(*values: Any) -> Any:
            if not returned or make is None:
                return None
            t, _ = given(values)
            make(t)
            return tuple(getattr(t, one) for one in returned)

        result = GenericAlias(tuple, (torch.Tensor,) * len(returned)) if returned else None
        vars(implementation)["__signature__"] = Signature(parameters, return_annotation=result)
        self.registered = custom_op(f"workbench::{name}", implementation, mutates_args=written)
        self.registered.register_fake(fake)

    def check(self, tensors: Any) -> None:
        """Check that all are on the device of the first."""
        first, *others = ((name, getattr(tensors, one)) for name, one in self._tensors.items())
        check_devices(*first, **dict(others))

    def __call__(self, tensors: Any, *, config: Mapping[str, int] | None, **options: str | None) -> Any:
        given = options | {"config": config_text(config)}
        return self.registered(*(getattr(tensors, one) for one in self._fields), *(given[one] for one in self._options))
