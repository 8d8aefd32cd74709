"""Wrong kernels on purpose: one change to the text of a kernel, as a slip of the hand would make it."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import sys
from dataclasses import dataclass

from workbench.base.home import cuda_sources


@dataclass(frozen=True)
class Mutant:
    """Replace ``old`` (its n-th occurrence of ``count``) by ``new``."""

    name: str
    old: str
    new: str
    count: int = 1
    nth: int = 0
    header: str = ""
    """Instead of the kernel's file: the header as that file names it; for Triton a Python file beside the variant's, of
    what the kernel calls."""

    def apply(self, text):
        parts = text.split(self.old)
        assert len(parts) == self.count + 1, f"{self.name}: {self.old!r} occurs {len(parts) - 1} times"
        return self.old.join(parts[: self.nth + 1]) + self.new + self.old.join(parts[self.nth + 1 :])


def with_text(variant, text, folder, name="none"):
    """The variant with another kernel text, in a folder of its own."""
    if variant.language == "cuda":
        source = folder / variant.source.name
        source.write_text(text)
        return dataclasses.replace(variant, source=source)
    module = _module(text, folder, name)
    if hasattr(module, "VARIANT") and module.VARIANT.name == variant.name:
        return module.VARIANT
    # A function that several variants launch.
    (step,) = variant.steps
    step = dataclasses.replace(step, function=getattr(module, step.function.__name__))
    return dataclasses.replace(variant, steps=(step,))


def with_header(variant, mutant, folder):
    """The variant with a changed header (CUDA), or a changed module beside it (Triton)."""
    if variant.language == "triton":
        beside = variant.source.with_name(mutant.header)
        module = _module(mutant.apply(beside.read_text()), folder, mutant.name)
        name = f"{_module.__module__}_{folder.name}"
        sys.modules[name] = module
        package = f"workbench.attention.ops.{variant.op}"
        text = variant.declaration.read_text().replace(f"from {package}.{beside.stem} ", f"from {name} ")
        return with_text(variant, text, folder, f"{mutant.name} seen")
    header = folder / mutant.header  # beside the copy of the kernel's file, where it is found before the right one
    header.parent.mkdir()
    header.write_text(mutant.apply((cuda_sources() / mutant.header).read_text()))
    return with_text(variant, variant.source.read_text(), folder)


def _module(text, folder, name):
    source = folder / ("mutant_" + re.sub(r"[^a-z0-9]+", "_", name) + ".py")
    source.write_text(text)
    spec = importlib.util.spec_from_file_location(source.stem, source)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def mutated(variant, mutant, folder):
    """The variant with the mutant's change, its files in a folder of its own."""
    if mutant.header:
        return with_header(variant, mutant, folder)
    return with_text(variant, mutant.apply(variant.source.read_text()), folder, mutant.name)


def caught(variant, mutant, runs, judge, folder, checks=True, **options):
    """Whether some run of the mutated kernel is wrong, or the machine finds something; and what else was seen."""
    wrong = mutated(variant, mutant, folder)
    verdicts = []
    for one, config in runs:
        verdicts.append(judge(wrong, config, one, checks=checks, **options))
        if not verdicts[-1].ok:
            return True, ""
    return False, "\n".join(map(str, verdicts))


RANGE_MUTANTS = (  # of the range of tokens, which the partitioned kernels in Triton share
    Mutant(
        "last token skipped",
        "+ 1) * PARTITION_SIZE, seq_len)",
        "+ 1) * PARTITION_SIZE, seq_len - 1)",
        header="triton_reduction.py",
    ),
    Mutant(
        "window one token long",
        "begin, seq_len - sliding_window)",
        "begin, seq_len - sliding_window - 1)",
        header="triton_reduction.py",
    ),
)
