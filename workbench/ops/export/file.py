"""Text of an exported file, section by section in the order in which it is read."""

from __future__ import annotations

import inspect
import itertools
import re
import textwrap
from typing import Any

import torch

from workbench.errors import ArgumentError
from workbench.ops.export import cuda_parts, launch_cuda, launch_triton, parts, tables
from workbench.ops.export.cases import cases_text
from workbench.ops.export.code import imports
from workbench.ops.export.exported import Exported
from workbench.ops.export.layout import INDENT, WIDTH, fitted, literal, quoted
from workbench.ops.export.op_text import op_text

_IMPORT_PYCUDA = inspect.getsource(cuda_parts).partition("import torch\n\n")[2].partition("\n\n")[0]


def file_text(op: Any, variant: str | None) -> str:
    """Return the text of an exported file. Raises ArgumentError that names what cannot be written into it."""
    return _File(op, _variant(op, variant)).text()


def _variant(op: Any, name: str | None) -> Any:
    kernels = [one for one in op.variants if one.compiles]
    listed = ", ".join(one.name for one in kernels) or "none"
    if name is None:
        name = tables.fastest(op) or (kernels[-1].name if kernels else None)
    if name is None:
        remedy = f"Declare one with {op.name}.cuda(...) or {op.name}.triton(...)."
        raise ArgumentError("export: variant", "an op without a kernel", "an op with a kernel", remedy)
    found = op.variant(name)
    if not found.compiles:
        remedy = "Plain torch needs no export."
        raise ArgumentError("export: variant", repr(name), listed, remedy)
    return found


class _File(Exported):
    """An exported file, with the text of its sections."""

    def text(self) -> str:
        """Return the text of the whole file."""
        reference = self.collected.function(self.contract.function, "reference")
        kernel, launch = self._kernel()
        legal = self._legal()
        winners = self.winners
        op = op_text(self)
        test = self._self_test()
        configurations = self._configurations(winners)
        harness = self._harness()
        constants = ["\n".join(self.collected.constants)] if self.collected.constants else []
        before = [*constants, *self.collected.functions, reference, *kernel, *configurations]
        after = [*harness, *self.code.helpers, *legal, launch, *op, *test]
        body = _joined([*before, *_called_parts(_without_source("\n".join([*before, *after]))), *after])
        head = [self._docstring(winners), *self._imports(body)]
        apart = "\n\n\n" if re.match(r"(def|class|@)", body) else "\n\n"
        return "\n\n".join(head) + apart + body + "\n"

    # -- sections -------------------------------------------------------------------------------------------------

    def _docstring(self, winners: list) -> str:
        op, variant = self.op, self.variant
        language = {"cuda": "CUDA C++", "triton": "Triton"}[variant.language]
        about = (inspect.getdoc(self.contract.function) or "").split("\n\n")[0].replace("\n", " ").strip()
        about = f": {about.rstrip('.')}" if about else ""
        first = f"{op.name}({', '.join(self.contract.parameters)}) by a kernel in {language}, for torch."
        needs = "PyCUDA, and NVRTC, which torch's CUDA builds bring" if variant.language == "cuda" else "Triton"
        idea = "" if variant.idea.startswith(f"{op.name} in ") else f": {variant.idea.rstrip('.')}"
        paragraphs = [f"It computes the function ``reference``{about}. The kernel is the variant {variant.name}{idea}."]
        if winners:
            paragraphs[-1] += (
                " CONFIGURATIONS has the fastest of its configurations that were right, for each GPU and case that was "
                "tuned, with its time and the untuned configuration's:"
            )
            paragraphs.append("\n".join(_listed(line) for line in tables.summary(winners)))
        elif variant.space:
            which = "the first configuration that is legal" if self.chosen else "CONFIGURATION"
            paragraphs[-1] += f" Nothing was tuned: it runs {which}."
        paragraphs.append(
            f"Needs torch and, for tensors on a GPU, {needs}; tensors on the CPU take the reference. Run as a program, "
            "the file compares the kernel with the reference, computed in float64."
        )
        wide = [
            one if one.startswith("- ") else textwrap.fill(one, WIDTH, break_on_hyphens=False) for one in paragraphs
        ]
        text = "\n\n".join([first, *wide]).replace("\\", "\\\\").replace('"""', "'''")
        return f'"""{text}\n"""'

    def _imports(self, body: str) -> list[str]:
        modules = {name: name for name in ("sys", "torch")} | self.collected.modules
        members = dict(self.collected.members)
        for name in ("contextlib", "ctypes", "functools", "itertools", "math", "os", "threading"):
            if re.search(rf"\b{name}\.", _without_source(body)):
                modules[name] = name
        if re.search(r"\bnp\.", _without_source(body)):
            modules["np"] = "numpy"
        if self.variant.language == "cuda":
            modules["importlib.util"] = "importlib.util"
            members["Path"] = "pathlib"
        if "(NamedTuple)" in body:
            members["NamedTuple"] = "typing"
        found = imports(modules, members)
        if self.variant.language == "cuda":
            found.append(_IMPORT_PYCUDA)
        return found

    def _kernel(self) -> tuple[list[str], str]:
        """Return the blocks of the kernels' source, and the function ``launch``."""
        if self.variant.language == "cuda":
            blocks = launch_cuda.constants_of(self)
            launch, self.launch_takes = launch_cuda.launch_of(self)
            return blocks, launch
        kernels = []
        for part in self.variant.parts:
            text = self.collected.function(part.function)
            kernels += [text] if text not in kernels else []
        launch, self.launch_takes = launch_triton.launch_of(self)
        return [one for one in kernels if one not in self.collected.functions], launch

    def _legal(self) -> list[str]:
        """Return the function ``is_legal``, if there are rules."""
        rules = self.rules
        if not rules:
            return []
        names = {name for rule in rules for name in rule.names}
        needed = self.code.needs(names)
        self.legal_takes = [name for name in (*self.contract.parameters, *self.code.outputs) if name in needed]
        terms = [self.code.of(rule, operand=len(rules) > 1) for rule in rules]
        line = f"{INDENT}return {' and '.join(terms)}"
        if len(line) > WIDTH:
            line = f"{INDENT}return (\n{INDENT * 2}" + f"\n{INDENT * 2}and ".join(terms) + f"\n{INDENT})"
        head = f"def is_legal({', '.join(['config', *self.legal_takes])}):"
        doc = f'{INDENT}"""Return True if the kernel can run with a configuration on these arguments."""'
        return [fitted("\n".join([head, doc, *self.code.locals(names), line]))]

    def _configurations(self, winners: list) -> list[str]:
        """Return the table of tuned configurations, and the untuned ones."""
        if not self.variant.space:
            return []
        if not self.chosen:
            return [fitted(f"CONFIGURATION = {literal(self.config)}")]
        blocks = [_source(parts.Tuned), tables.table_text(winners, self.contract.parameters)] if winners else []
        whole = [rule for rule in self.declared.rules if rule not in self.rules]
        first = self.declared.full_default
        if whole:
            kept = [one for one in self.variant.all_configurations() if all(rule({"config": one}) for rule in whole)]
            listed = [*([first] if first else []), *(one for one in kept if one != first)]
            untuned = f"UNTUNED = {literal(listed)}"
        else:
            each = "dict(zip(TUNABLES, values, strict=True)) for values in itertools.product(*TUNABLES.values())"
            items = each if first is None else f"{literal(first)}, *({each})"
            untuned = f"TUNABLES = {literal(dict(self.variant.space))}\nUNTUNED = [{items}]"
        return [*blocks, fitted(f"# Where nothing is tuned, the first of these that is legal.\n{untuned}")]

    def _harness(self) -> list[str]:
        if self.variant.language != "cuda":
            return []
        text = inspect.getsource(cuda_parts).partition("\n\n\n")[2].rstrip()
        if not launch_cuda.headers(self):
            text = text.replace(", len(HEADERS), *headers)", ", 0, None, None)")
            text = "\n".join(line for line in text.splitlines() if not line.startswith(f"{INDENT}headers ="))
        return [text]

    def _self_test(self) -> list[str]:
        cases = cases_text(self.op.cases, self.collected)
        dtypes: dict[torch.dtype, float] = {}
        for case in self.op.cases.values():
            problem = case.problem()
            kinds = [*problem.outputs, *((name, dict(problem.arguments)[name]) for name in self.contract.in_place)]
            for _, kind in kinds:
                dtypes[getattr(torch, kind.dtype)] = float(self.contract.tolerance_of(kind.dtype))
        tolerance = fitted(f"# Relative errors that count as rounding.\nTOLERANCE = {literal(dtypes)}")
        lines = [
            "def self_test():",
            '    """Print a line for each case; return True if the kernel agrees with the float64 reference on all."""',
            "    right = True",
            "    for case, inputs in cases():",
            "        given, exact = for_both(inputs)",
            *self._results(),
            "        wrong = {key: what for key, pair in results.items() if (what := difference(*pair))}",
            '        print(f"{case}:", " ".join(f"{key} is WRONG: {what}" for key, what in wrong.items()) or "right")',
            "        right = right and not wrong",
            "    return right",
        ]
        main = [
            'if __name__ == "__main__":',
            "    if not torch.cuda.is_available():",
            '        sys.exit("The self-test needs a GPU.")',
            "    sys.exit(0 if self_test() else 1)",
        ]
        test = fitted("\n".join(lines))
        return [*cases, tolerance, *map(_source, (parts.for_both, parts.difference)), test, "\n".join(main)]

    def _results(self) -> list[str]:
        """Return the lines of the self-test that run kernel and reference on a case."""
        found, expected, outputs = f"{self.op.name}(*given)", "reference(*exact)", self.code.outputs
        if self.signature.named:
            exact = {name: f"exact[{i}]" for i, name in enumerate(self.contract.parameters)}
            expected = self.signature.reference(exact)
        places = {name: self.contract.parameters.index(name) for name in self.contract.in_place}
        lines = [f"results = {{{quoted(name)}: ({found}, {expected})}}" for name in outputs]
        if len(outputs) > 1:
            pairs = f"zip({found}, {expected}, strict=True)"
            lines = [f"pairs = {pairs}", f"results = dict(zip({literal(outputs)}, pairs, strict=True))"]
        elif not outputs:
            lines = [found, expected, "results = {}"]
        lines += [f"results[{quoted(name)}] = given[{place}], exact[{place}]" for name, place in places.items()]
        return [INDENT * 2 + line for line in lines]


def _listed(line: str) -> str:
    return textwrap.fill(line, WIDTH, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False)


def _source(one: Any) -> str:
    return inspect.getsource(one).rstrip()


def _called_parts(text: str) -> list[str]:
    """Return the functions of `parts` that a text names and does not define, after those that they name themselves."""
    found: list[str] = []
    own = [one for one in vars(parts).values() if inspect.isfunction(one) and one.__module__.startswith("workbench.")]
    for one in reversed(own):
        named = re.search(rf"\b{one.__name__}[()]", "\n".join([text, *found]))
        if named and f"def {one.__name__}(" not in text:
            found.insert(0, _source(one))
    return found


def _without_source(body: str) -> str:
    """Return the text without the kernels' source, whose words are no Python names."""
    return re.sub(r"r(\"\"\"|''').*?\1", "", body, flags=re.DOTALL)


def _joined(sections: list[str]) -> str:
    """Join sections, with two empty lines around definitions and one between other blocks."""
    text = sections[0]
    for before, after in itertools.pairwise(sections):
        last = before.splitlines()[-1]
        plain = not re.match(r"(def|class|@|if __name__)", after) and not last.startswith(" ")
        text += ("\n\n" if plain else "\n\n\n") + after
    return text
