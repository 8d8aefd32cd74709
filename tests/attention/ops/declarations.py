"""Assertions on what variants declare, whatever the op: rules, defaults, configurations drawn at random."""

import dataclasses
import random


def default_of(variant, one, **changes):
    """Return the untuned configuration for a case, with some of it changed."""
    return variant.default_config(one.problem()) | changes


def assert_rules(variant, good, base, broken):
    """Assert that each of a variant's rules is named where it is broken.

    ``broken`` has by the rule's name changes of the legal configuration ``good`` and of the problem ``base``.
    """
    assert not variant.broken(good, base)
    assert set(broken) == {rule.name for rule in variant.restrictions}
    for name, (changes, sizes) in broken.items():
        assert name in {rule.name for rule in variant.broken({**good, **changes}, dataclasses.replace(base, **sizes))}


def judge_drawn(variant, count, draw, judge, *, arch="sm_80", checks=True):
    """Judge ``count`` random legal configurations, each on a case of ``draw(generator, number)``."""
    rng, space, seen = random.Random(1), list(variant.all_configurations()), 0
    while seen < count:
        one, config = draw(rng, seen), rng.choice(space)
        if not variant.broken(config, one.problem(arch=arch)):
            seen += 1
            verdict = judge(variant, config, one, checks=checks, arch=arch)
            assert verdict.ok, f"{one} {config}: {verdict}"
