"""The ``nvidia-smi`` that programs find beside the simulated driver: ``python -m workbench.driver.clients.nvidia_smi``.

It prints the table, answers ``-L`` and ``--query-gpu``, and refuses every other option by name. The process with the
simulated driver describes its devices in an environment variable, so that this program starts no driver.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from workbench.driver.attributes import DeviceFacts, device_facts

VARIABLE = "WORKBENCH_DEVICES"
_DRIVER_VERSION, _CUDA_VERSION = "580.65.06", "13.0"  # the driver that shipped with CUDA 13.0
_CLOCK, _MEMORY_CLOCK, _MAJOR, _MINOR = 13, 36, 75, 76  # numbers of attributes
_NOT_MEASURED = "[N/A]"  # as nvidia-smi prints what a device does not report


@dataclass(frozen=True)
class ListedDevice:
    """One simulated device, with the facts that the table and the queries print."""

    index: int
    count: int
    facts: DeviceFacts
    memory_bytes: int

    @property
    def uuid(self) -> str:
        """Identifier that cuDeviceGetUuid reports."""
        return f"GPU-{uuid.UUID(bytes=f'workbench sim {self.index}'.encode() + bytes(1))}"

    @property
    def bus_id(self) -> str:
        """PCI bus address that cuDeviceGetPCIBusId reports, with nvidia-smi's eight-digit domain."""
        return f"00000000:{self.index:02X}:00.0"

    @property
    def memory_mib(self) -> int:
        """Memory of the device in MiB."""
        return self.memory_bytes >> 20


def describe(facts: DeviceFacts, devices: int, memory_bytes: int) -> None:
    """Describe the simulated devices, in the environment, to programs that this process starts."""
    exact = not facts.name.endswith("(simulated)")
    described = {"model": facts.key, "exact_name": exact, "devices": devices, "memory_bytes": memory_bytes}
    os.environ[VARIABLE] = json.dumps(described)


def _devices() -> list[ListedDevice]:
    given = json.loads(os.environ[VARIABLE])
    facts, count = device_facts(given["model"], given["exact_name"]), given["devices"]
    return [ListedDevice(index, count, facts, given["memory_bytes"]) for index in range(count)]


def _megahertz(number: int) -> Callable[[ListedDevice], str]:
    return lambda device: f"{device.facts.attributes[number] // 1000} MHz"


_FIELDS: dict[str, Callable[[ListedDevice], str]] = {
    "timestamp": lambda device: datetime.datetime.now().strftime("%Y/%m/%d %H:%M:%S.%f")[:-3],
    "driver_version": lambda device: _DRIVER_VERSION,
    "count": lambda device: str(device.count),
    "index": lambda device: str(device.index),
    "name": lambda device: device.facts.name,
    "uuid": lambda device: device.uuid,
    "pci.bus_id": lambda device: device.bus_id,
    "compute_cap": lambda device: f"{device.facts.attributes[_MAJOR]}.{device.facts.attributes[_MINOR]}",
    "compute_mode": lambda device: "Default",
    "mig.mode.current": lambda device: "[N/A]",
    "memory.total": lambda device: f"{device.memory_mib} MiB",
    "clocks.max.sm": _megahertz(_CLOCK),
    "clocks.max.memory": _megahertz(_MEMORY_CLOCK),
} | dict.fromkeys(
    (
        "memory.used", "memory.free", "memory.reserved", "utilization.gpu", "utilization.memory", "temperature.gpu",
        "power.draw", "power.limit", "clocks.sm", "clocks.mem", "pstate", "fan.speed",
    ),
    lambda device: _NOT_MEASURED,
)  # fmt: skip
_FIELDS |= {"gpu_name": _FIELDS["name"], "gpu_uuid": _FIELDS["uuid"], "gpu_bus_id": _FIELDS["pci.bus_id"]}
_HEADER_UNITS = {"memory": " [MiB]", "clocks": " [MHz]", "utilization": " [%]", "power": " [W]"}
_FORMATS = ("csv", "noheader", "nounits")


def _query(fields: Sequence[str], formats: Sequence[str], devices: Sequence[ListedDevice]) -> list[str]:
    plain = "nounits" in formats
    lines = []
    if "noheader" not in formats:
        lines.append(", ".join(name + _HEADER_UNITS.get(name.partition(".")[0], "") for name in fields))
    for device in devices:
        values = [_FIELDS[name](device) for name in fields]
        lines.append(", ".join(one.removesuffix(" MiB").removesuffix(" MHz") if plain else one for one in values))
    return lines


def _table(devices: Sequence[ListedDevice]) -> list[str]:
    line = "+" + "-" * 78 + "+"
    title = f" NVIDIA-SMI (simulated)   Driver Version: {_DRIVER_VERSION}   CUDA Version: {_CUDA_VERSION}"
    rows = [line, f"|{title:<78}|", line, f"|{' GPU  Name':<48}{'Bus-Id':<17}{'Memory':>12} |", line]
    for one in devices:
        rows.append(f"|{one.index:4}  {one.facts.name:<42}{one.bus_id:<17}{one.memory_mib:>9}MiB |")
    return [*rows, line, f"|{' Nothing is measured: no utilization, temperature, power or processes.':<78}|", line]


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",")]


def main(arguments: Sequence[str]) -> int:
    """Run one command line and return the exit status: 9 without a simulated device, as nvidia-smi without a driver."""
    parser = argparse.ArgumentParser("nvidia-smi", description="The simulated GPUs.", allow_abbrev=False)
    parser.add_argument("-L", "--list-gpus", action="store_true", help="a line for each device")
    parser.add_argument("-i", "--id", type=_words, help="only these devices, by index, UUID or bus id")
    parser.add_argument("--query-gpu", type=_words, metavar="FIELD,...", help="these fields of each device")
    parser.add_argument("--format", type=_words, metavar="csv[,noheader][,nounits]", help="how --query-gpu prints")
    given, others = parser.parse_known_args(arguments)
    if others:
        parser.error(f"{' '.join(others)}: the simulated nvidia-smi has the table, -L, -i, --query-gpu and --format")
    if VARIABLE not in os.environ:
        print("nvidia-smi: no simulated device: start it from a process that has one", file=sys.stderr)
        return 9
    devices = _devices()
    if given.id is not None:
        names = {name: one for one in devices for name in (str(one.index), one.uuid, one.bus_id)}
        if unknown := [name for name in given.id if name not in names]:
            parser.error(f"-i {unknown[0]}: no such device; there are {', '.join(names)}")
        devices = [names[name] for name in given.id]
    if (given.query_gpu is None) != (given.format is None):
        parser.error("--query-gpu needs --format=csv, and --format needs --query-gpu")
    if given.list_gpus:
        lines = [f"GPU {one.index}: {one.facts.name} (UUID: {one.uuid})" for one in devices]
    elif given.query_gpu is not None:
        if unknown := [name for name in given.query_gpu if name not in _FIELDS]:
            parser.error(f"--query-gpu: no field {unknown[0]}; there are {', '.join(sorted(_FIELDS))}")
        if "csv" not in given.format or set(given.format) - set(_FORMATS):
            parser.error(f"--format: got {','.join(given.format)}; allowed: csv, with noheader and nounits")
        lines = _query(given.query_gpu, given.format, devices)
    else:
        lines = _table(devices)
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
