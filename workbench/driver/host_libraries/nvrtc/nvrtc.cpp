// libnvrtc.so.13 in front of NVIDIA's, which does the work. A client that requests machine code (a
// real architecture, sm_90) gets the PTX that NVRTC made as an intermediate step, because the
// simulated driver runs PTX. Programs are compiled with line numbers that refer to a kept copy of
// their source.
#include <dlfcn.h>

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace {

using Program = void*;
using Status = int;
enum : Status { kSuccess = 0, kInternalError = 11 };

// Writes the path of the kept copy of a source with this file name. Returns 0 if there is none.
using Keep = int (*)(const char* source, const char* name, char* path, std::size_t room);

struct State {
  void* library = nullptr;
  Keep keep = nullptr;
};

State& state() {
  static State one;
  return one;
}

template <class... Arguments>
Status forward(const char* name, Arguments... arguments) {
  void* function = state().library ? dlsym(state().library, name) : nullptr;
  if (!function) return kInternalError;
  return reinterpret_cast<Status (*)(Arguments...)>(function)(arguments...);
}

std::string placed(const char* source, const char* name) {
  constexpr std::size_t kMostPath = 4096;
  char path[kMostPath];
  const State& all = state();
  if (!all.keep || !all.keep(source, name ? name : "default_program", path, kMostPath))
    return source;
  return "#line 1 \"" + std::string(path) + "\"\n" + source;
}

bool wants_lines(const std::vector<const char*>& options) {
  for (const std::string_view one : options)
    if (one == "-lineinfo" || one == "--generate-line-info" || one == "-G" ||
        one == "--device-debug")
      return false;
  return true;
}

// The size of a program's PTX with the NUL at its end; 0 if it has none, as with -dlto.
std::size_t ptx_size(Program program) {
  std::size_t size = 0;
  return forward("nvrtcGetPTXSize", program, &size) == kSuccess && size > 1 ? size : 0;
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED int workbench_nvrtc_start(const char* library, Keep keep) {
  State& all = state();
  if (!all.library) all.library = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  all.keep = keep;
  return all.library != nullptr;
}

EXPORTED Status nvrtcCreateProgram(Program* program, const char* source, const char* name,
                                   int count, const char* const* headers,
                                   const char* const* names) {
  if (!source) return forward("nvrtcCreateProgram", program, source, name, count, headers, names);
  const std::string text = placed(source, name);
  return forward("nvrtcCreateProgram", program, text.c_str(), name, count, headers, names);
}

EXPORTED Status nvrtcCompileProgram(Program program, int count, const char* const* options) {
  if (count < 0 || (count && !options))
    return forward("nvrtcCompileProgram", program, count, options);
  std::vector<const char*> all(options, options + count);
  if (wants_lines(all)) all.push_back("-lineinfo");
  return forward("nvrtcCompileProgram", program, static_cast<int>(all.size()),
                 static_cast<const char* const*>(all.data()));
}

EXPORTED Status nvrtcGetCUBINSize(Program program, std::size_t* size) {
  const Status status = forward("nvrtcGetCUBINSize", program, size);
  if (status != kSuccess || !*size) return status;  // a virtual architecture has no machine code
  if (const std::size_t found = ptx_size(program)) *size = found;
  return status;
}

EXPORTED Status nvrtcGetCUBIN(Program program, char* content) {
  std::size_t size = 0;
  const Status status = nvrtcGetCUBINSize(program, &size);
  if (status != kSuccess) return status;
  return forward(size && ptx_size(program) ? "nvrtcGetPTX" : "nvrtcGetCUBIN", program, content);
}

EXPORTED const char* nvrtcGetErrorString(Status status) {
  void* library = state().library;
  void* function = library ? dlsym(library, "nvrtcGetErrorString") : nullptr;
  if (!function) return "NVIDIA's libnvrtc.so.13 is not installed: pip install nvidia-cuda-nvrtc";
  return reinterpret_cast<const char* (*)(Status)>(function)(status);
}

#define FORWARDED(name, parameters, ...) \
  EXPORTED Status name parameters { return forward(#name __VA_OPT__(, ) __VA_ARGS__); }

FORWARDED(nvrtcVersion, (int* major, int* minor), major, minor)
FORWARDED(nvrtcGetNumSupportedArchs, (int* count), count)
FORWARDED(nvrtcGetSupportedArchs, (int* archs), archs)
FORWARDED(nvrtcDestroyProgram, (Program * program), program)
FORWARDED(nvrtcGetPTXSize, (Program program, std::size_t* size), program, size)
FORWARDED(nvrtcGetPTX, (Program program, char* content), program, content)
FORWARDED(nvrtcGetLTOIRSize, (Program program, std::size_t* size), program, size)
FORWARDED(nvrtcGetLTOIR, (Program program, char* content), program, content)
FORWARDED(nvrtcGetOptiXIRSize, (Program program, std::size_t* size), program, size)
FORWARDED(nvrtcGetOptiXIR, (Program program, char* content), program, content)
FORWARDED(nvrtcGetProgramLogSize, (Program program, std::size_t* size), program, size)
FORWARDED(nvrtcGetProgramLog, (Program program, char* content), program, content)
FORWARDED(nvrtcAddNameExpression, (Program program, const char* name), program, name)
FORWARDED(nvrtcGetLoweredName, (Program program, const char* name, const char** lowered), program,
          name, lowered)
FORWARDED(nvrtcGetPCHHeapSize, (std::size_t* size), size)
FORWARDED(nvrtcSetPCHHeapSize, (std::size_t size), size)
FORWARDED(nvrtcGetPCHCreateStatus, (Program program), program)
FORWARDED(nvrtcGetPCHHeapSizeRequired, (Program program, std::size_t* size), program, size)
FORWARDED(nvrtcSetFlowCallback, (Program program, int (*callback)(void*, void*), void* payload),
          program, callback, payload)
