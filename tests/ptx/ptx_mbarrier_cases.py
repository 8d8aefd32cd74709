"""One thread that works on an mbarrier, step by step, and a model of it in plain Python."""

from __future__ import annotations

import random
from typing import NamedTuple

from ptx_support import module


class Step(NamedTuple):
    """``count`` of arrivals (None: one, not written), or for a wait the step or the parity that it asks for."""

    operation: str
    count: int | None = None


class Model:
    """An mbarrier as the PTX ISA describes it."""

    def __init__(self, count: int) -> None:
        self.expected = self.pending = count
        self.phase = 0

    def arrive(self, count: int, *, drop: bool = False) -> tuple[int, int]:
        """The state before: its phase, and the arrivals that were pending."""
        state = self.phase, self.pending
        self.expected -= count if drop else 0
        self.pending -= count
        if self.pending == 0:
            self.phase, self.pending = self.phase + 1, self.expected
        return state


def random_steps(seed: int) -> tuple[int, list[Step]]:
    """A count and steps that use an mbarrier of it as they should."""
    rng = random.Random(seed)
    count = rng.randint(1, 6)
    model, steps, states = Model(count), [], []
    for _ in range(40):
        choices = ["test_wait.parity", "try_wait.parity"] + (["test_wait", "try_wait"] if states else [])
        choices += ["arrive"] * 4 if model.pending else []
        choices += ["arrive_drop"] if model.expected > 1 and model.pending else []
        choices += ["arrive.noComplete", "arrive_drop.noComplete"] if model.pending > 1 and model.expected > 1 else []
        operation = rng.choice(choices)
        if "wait" in operation:
            # A state may be asked for while its phase runs and in the next one.
            usable = [i for i, phase in states if phase >= model.phase - 1]
            if "parity" not in operation and not usable:
                continue
            steps.append(Step(operation, rng.randint(0, 1) if "parity" in operation else rng.choice(usable)))
            continue
        most = model.pending - (1 if "noComplete" in operation else 0)
        most = min(most, model.expected - 1) if "drop" in operation else most
        step = Step(
            operation, rng.choice([None, *range(1, most + 1)]) if "." not in operation else rng.randint(1, most)
        )
        states.append((len(steps), model.phase))
        model.arrive(step.count or 1, drop="drop" in operation)
        steps.append(step)
    return count, steps


def text(count: int, steps: list[Step]) -> str:
    """Writes one word for each step: the pending count of an arrival's state, or a wait's answer."""
    body = [".shared .align 8 .b64 bar; ld.param.u64 %d60, [out];", f".reg .b64 %s<{len(steps)}>;"]
    body += [f"mbarrier.init.shared.b64 [bar], {count};"]
    for i, (operation, number) in enumerate(steps):
        head = f"mbarrier.{operation}.shared.b64"
        if "parity" in operation:
            body += [f"{head} %p1, [bar], {number}; selp.u32 %r1, 1, 0, %p1;"]
        elif "wait" in operation:
            body += [f"{head} %p1, [bar], %s{number}; selp.u32 %r1, 1, 0, %p1;"]
        else:
            counted = f", {number}" if number else ""
            body += [f"{head} %s{i}, [bar]{counted}; mbarrier.pending_count.b64 %r1, %s{i};"]
        body += [f"st.global.u32 [%d60+{4 * i}], %r1;"]
    body += ["mbarrier.inval.shared.b64 [bar];"]
    return module("steps", ".param .u64 out", "\n".join(body))


def expected(count: int, steps: list[Step]) -> list[int]:
    model, states, results = Model(count), {}, []
    for i, (operation, number) in enumerate(steps):
        if "parity" in operation:
            results.append(int(model.phase % 2 != number))
        elif "wait" in operation:
            results.append(int(model.phase != states[number]))
        else:
            phase, pending = model.arrive(number or 1, drop="drop" in operation)
            states[i] = phase
            results.append(pending)
    return results
