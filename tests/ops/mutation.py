"""Wrong kernels on purpose: one change to the text of a kernel, as a slip of the hand would make it."""

from __future__ import annotations

import dataclasses
import importlib.util
from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """Replace ``old`` (its n-th occurrence of ``count``) by ``new``."""

    name: str
    old: str
    new: str
    count: int = 1
    nth: int = 0

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
    source = folder / f"mutant_{name.replace(' ', '_')}.py"
    source.write_text(text)
    spec = importlib.util.spec_from_file_location(source.stem, source)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.VARIANT


def caught(variant, mutant, runs, judge, folder, checks=True):
    """Whether some run of the mutated kernel is wrong, or the machine finds something; and what else was seen."""
    wrong = with_text(variant, mutant.apply(variant.source.read_text()), folder, mutant.name)
    verdicts = []
    for one, config in runs:
        verdicts.append(judge(wrong, config, one, checks=checks))
        if not verdicts[-1].ok:
            return True, ""
    return False, "\n".join(map(str, verdicts))
