"""Bytes that a run of a variant of paged attention asks for, beside those that must cross memory."""


def counted(variant, config, one, sim):
    """Return the report of a run, whose result is right, and the bytes that must cross memory."""
    problem = one.problem(config)
    tensors = one.inputs(problem)
    report = variant.run(config, problem, tensors, sim, statistics=True)
    assert one.check(tensors.out).ok
    return report, one.minimum_bytes(problem)


def assert_each_byte_once(variant, config, one, sim, *, asked=1.02):
    """Assert that distinct bytes are at most 2 % more than must cross memory, and those asked for ``asked`` times.

    Returns the report.
    """
    report, minimum = counted(variant, config, one, sim)
    assert minimum <= report.unique_bytes_read + report.unique_bytes_written <= 1.02 * minimum
    assert minimum <= sum(line.bytes_moved for line in report.lines if line.space == "global") <= asked * minimum
    return report
