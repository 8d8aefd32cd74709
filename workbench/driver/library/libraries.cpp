// CUDA 12's libraries, with which cuda.core and Numba load code. Here a library is a module of the
// context in which it was loaded, and a kernel is a function of the module.
#include <algorithm>

#include "driver.hpp"

namespace workbench::driver {
namespace {

std::vector<std::string> names_of_kernels(Call& call, void* library) {
  find_handle(state().modules, library, "library");
  std::vector<std::string> names;
  const auto put = [](void* to, const char* text, u64 length) {
    try {
      static_cast<std::vector<std::string>*>(to)->emplace_back(text, length);
      return 1;
    } catch (const std::bad_alloc&) {
      return 0;
    }
  };
  ask(call, hooks().kernels, reinterpret_cast<u64>(library), static_cast<void*>(&names), +put);
  return names;
}

}  // namespace
}  // namespace workbench::driver

using namespace workbench::driver;

CU_API cuModuleLoadDataEx(CUmodule*, const void*, unsigned, int*, void**);
CU_API cuModuleLoad(CUmodule*, const char*);
CU_API cuModuleUnload(CUmodule);
CU_API cuModuleGetFunction(CUfunction*, CUmodule, const char*);
CU_API cuModuleGetGlobal_v2(CUdeviceptr*, std::size_t*, CUmodule, const char*);
CU_API cuFuncGetAttribute(int*, int, CUfunction);
CU_API cuFuncSetAttribute(CUfunction, int, int);
CU_API cuFuncSetCacheConfig(CUfunction, int);
CU_API cuFuncGetName(const char**, CUfunction);
CU_API cuFuncGetParamCount(CUfunction, std::size_t*);
CU_API cuFuncGetParamInfo(CUfunction, std::size_t, std::size_t*, std::size_t*);

CU_API cuLibraryLoadData(void** library, const void* code, int* options, void** values,
                         unsigned count, int*, void**, unsigned) {
  return cuModuleLoadDataEx(library, code, count, options, values);
}

CU_API cuLibraryLoadFromFile(void** library, const char* path, int*, void**, unsigned, int*, void**,
                             unsigned) {
  return cuModuleLoad(library, path);
}

CU_API cuLibraryUnload(void* library) { return cuModuleUnload(library); }
CU_API cuLibraryGetKernel(void** kernel, void* library, const char* name) {
  return cuModuleGetFunction(kernel, library, name);
}

CU_API cuLibraryGetKernelCount(unsigned* count, void* library) {
  return entry([&](Call& call) {
    needed(count, "count") = static_cast<unsigned>(names_of_kernels(call, library).size());
  });
}

CU_API cuLibraryEnumerateKernels(void** kernels, unsigned count, void* library) {
  std::vector<std::string> names;
  CUresult result = entry([&](Call& call) {
    needed(kernels, "kernels");
    names = names_of_kernels(call, library);
  });
  const std::size_t wanted = std::min<std::size_t>(count, names.size());
  for (std::size_t i = 0; !result && i < wanted; ++i)
    result = cuModuleGetFunction(&kernels[i], library, names[i].c_str());
  return result;
}

CU_API cuLibraryGetModule(CUmodule* module, void* library) {
  return entry([&](Call&) {
    find_handle(state().modules, library, "library"), needed(module, "module") = library;
  });
}

CU_API cuLibraryGetGlobal(CUdeviceptr* address, std::size_t* bytes, void* library,
                          const char* name) {
  return cuModuleGetGlobal_v2(address, bytes, library, name);
}

CU_API cuKernelGetFunction(CUfunction* function, void* kernel) {
  return entry([&](Call&) {
    find_handle(state().functions, kernel, "kernel"), needed(function, "function") = kernel;
  });
}

CU_API cuKernelGetLibrary(void** library, void* kernel) {
  return entry([&](Call&) {
    needed(library, "library") =
        reinterpret_cast<void*>(find_handle(state().functions, kernel, "kernel")->module);
  });
}

CU_API cuKernelGetName(const char** name, void* kernel) { return cuFuncGetName(name, kernel); }
CU_API cuKernelGetParamInfo(void* kernel, std::size_t index, std::size_t* offset,
                            std::size_t* size) {
  return cuFuncGetParamInfo(kernel, index, offset, size);
}
CU_API cuKernelGetParamCount(void* kernel, std::size_t* count) {
  return cuFuncGetParamCount(kernel, count);
}
CU_API cuKernelSetCacheConfig(void* kernel, int config, CUdevice) {
  return cuFuncSetCacheConfig(kernel, config);
}
CU_API cuKernelGetAttribute(int* value, int which, void* kernel, CUdevice) {
  return cuFuncGetAttribute(value, which, kernel);
}
CU_API cuKernelSetAttribute(int which, int value, void* kernel, CUdevice) {
  return cuFuncSetAttribute(kernel, which, value);
}
