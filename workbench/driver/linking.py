"""The driver's linker: it joins PTX modules that use each other's functions and variables into one."""

from __future__ import annotations

import re
from collections.abc import Sequence

from workbench.errors import ArgumentError
from workbench.toolchain import nvrtc
from workbench.toolchain.source import Source

_HEADER = re.compile(r"^[ \t]*\.(version|target|address_size)[ \t]+([^\n]*)\n", re.MULTILINE)
_LINKS = r"(?P<links>(?:\.(?:visible|extern|weak|common)[ \t]+)*)"
_FUNCTION = re.compile(rf"^[ \t]*{_LINKS}\.(?:func|entry)\b\s*(?:\([^)]*\)\s*)?(?P<name>[\w$]+)", re.MULTILINE)
_VARIABLE = re.compile(
    rf"^[ \t]*{_LINKS}\.(?:global|const|shared)\b[^;={{]*?\s(?P<name>[\w$]+)\s*(?:\[[^\]]*\]\s*)*[;=]", re.MULTILINE
)
_END = re.compile(r"[;{]")
_FILE_NUMBER = re.compile(r"^([ \t]*\.(?:file|loc)[ \t]+)(\d+)", re.MULTILINE)

# libcudadevrt.a's functions for grid synchronization, which Numba calls; newer CUDA headers define them inline.
_DEVICE_RUNTIME = """
#include <cooperative_groups.h>
extern "C" __device__ unsigned long long cudaCGGetIntrinsicHandle(cudaCGScope scope) { return scope; }
extern "C" __device__ cudaError_t cudaCGSynchronize(unsigned long long handle, unsigned flags) {
  cooperative_groups::this_grid().sync();
  return cudaSuccess;
}
"""
_ITS_FUNCTIONS = re.compile(r"\bcudaCG(?:GetIntrinsicHandle|Synchronize)\b")
_DYNAMIC_PARALLELISM = re.compile(r"(?:__cudaCDP2|cuda)(?:GetParameterBuffer|LaunchDevice)")


def linked(modules: Sequence[str], arch: str, device_runtime: bool = False) -> str:
    """Return one PTX module in which each module's declarations are bound to the definitions in the others.

    With ``device_runtime`` the result includes libcudadevrt.a's functions for cooperative groups, compiled for
    ``arch``, if a module calls them. Raises ArgumentError for a name that two modules define, and for dynamic
    parallelism.
    """
    texts = list(modules)
    if device_runtime and any(map(_ITS_FUNCTIONS.search, texts)):
        source = Source(_DEVICE_RUNTIME, "device_runtime.cu", "device_runtime.cu", None)
        texts.append(nvrtc.compile(source, [], arch, ["--relocatable-device-code=true"], [], machine_code=False).ptx)
    version = max(
        (_header(text, "version", r"\d+\.\d+") for text in texts), key=lambda text: [*map(int, text.split("."))]
    )
    target = max(
        (_header(text, "target", r"sm_\d+[af]?") for text in texts), key=lambda text: int(text[3:].rstrip("af"))
    )
    defined: dict[str, int] = {}
    public: set[str] = set()
    for number, text in enumerate(texts):
        for match in _definitions(text):
            name, visible = match["name"], "visible" in match["links"]
            if visible and name in public:
                raise ArgumentError("link", name, "one definition", "Make one of them static, or leave one out.")
            if visible or name not in defined:
                defined[name] = number
            if visible:
                public.add(name)
    for text in texts:
        _check_declared(text)
    if len(texts) == 1:
        return texts[0]
    parts = [_part(text, number, defined) for number, text in enumerate(texts)]
    return f".version {version}\n.target {target}\n.address_size 64\n" + "\n".join(parts)


def _header(text: str, which: str, pattern: str) -> str:
    found = re.search(rf"^[ \t]*\.{which}[ \t]+({pattern})(?![\w.])", text, re.MULTILINE)
    if found is None:
        raise ArgumentError("link", f"PTX without .{which}", f"PTX with .{which}", "Pass PTX as a compiler wrote it.")
    return found[1]


def _definitions(text: str) -> list[re.Match[str]]:
    """Find the definitions of a module: functions with a body, and variables that are not extern."""
    found = [match for match in _VARIABLE.finditer(text) if "extern" not in match["links"]]
    for match in _FUNCTION.finditer(text):
        end = _END.search(text, match.end())
        if end is not None and end[0] == "{":
            found.append(match)
    return found


def _part(text: str, number: int, defined: dict[str, int]) -> str:
    """Rewrite one module as a part of the linked one.

    Private names that clash get the module's number, file numbers and labels become unique, and extern declarations of
    names that other modules define are removed.
    """
    own = {m["name"] for m in _definitions(text) if "visible" not in m["links"] and defined[m["name"]] != number}
    text = _HEADER.sub("", text.rstrip("\0"))
    for name in sorted(own):
        text = re.sub(rf"(?<![\w$]){re.escape(name)}(?![\w$])", f"{name}__{number + 1}", text)
    text = re.sub(r"(\$L__info_string)", rf"\1_{number}_", text)
    text = _FILE_NUMBER.sub(lambda m: f"{m[1]}{1000 * number + int(m[2])}", text)
    for match in reversed(list(_FUNCTION.finditer(text))):
        if "extern" in match["links"] and match["name"] in defined:
            text = text[: match.start("links")] + text[match.end("links") :]
    for match in reversed(list(_VARIABLE.finditer(text))):
        if "extern" in match["links"] and match["name"] in defined:
            text = text[: match.start()] + text[match.end() :]
    return text


def _check_declared(text: str) -> None:
    """Refuse calls of dynamic parallelism; the machine refuses other undefined names when a kernel calls them."""
    for match in _FUNCTION.finditer(text):
        if _DYNAMIC_PARALLELISM.match(match["name"]):
            remedy = "Dynamic parallelism is not supported: launch from the host."
            raise ArgumentError("link", match["name"], "functions of the modules themselves", remedy)
