#include "host_blas.hpp"

#include <dlfcn.h>

#include <mutex>
#include <unordered_map>

namespace workbench::host {
namespace {

constexpr int kMostThreads = 16;  // OPENBLAS_NUM_THREADS can ask for fewer

struct Library {
  void* handle = nullptr;
  std::string missing;
};

const Library& library() {
  static const Library found = [] {
    Library opened;
    const std::string path = workbench_driver_host_blas();
    if (path.empty()) {
      opened.missing = "there is no BLAS library for the host";
    } else if (!(opened.handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL))) {
      opened.missing = std::string("the host's BLAS library cannot be loaded: ") + dlerror();
    }
    if (!opened.handle) {
      opened.missing += "; install it: python -m pip install scipy-openblas64";
      return opened;
    }
    const auto count =
        reinterpret_cast<int (*)()>(dlsym(opened.handle, "scipy_openblas_get_num_threads64_"));
    const auto set =
        reinterpret_cast<void (*)(int)>(dlsym(opened.handle, "scipy_openblas_set_num_threads64_"));
    if (count && set && count() > kMostThreads) set(kMostThreads);
    return opened;
  }();
  return found;
}

}  // namespace

std::string blas_missing() { return library().missing; }

namespace {

void* symbol(const std::string& name, const char* suffix) {
  static std::mutex mutex;
  static std::unordered_map<std::string, void*> known;
  std::lock_guard lock(mutex);
  void*& address = known[name];
  if (!address && library().handle)
    address = dlsym(library().handle, ("scipy_" + name + suffix).c_str());
  if (!address) {
    throw DriverFailed{CUDA_ERROR_NOT_SUPPORTED, library().missing.empty()
                                                     ? "the host's BLAS library has no " + name
                                                     : library().missing};
  }
  return address;
}

}  // namespace

void* routine(const std::string& name) { return symbol(name, "_64_"); }
void* c_routine(const std::string& name) { return symbol(name, "64_"); }

}  // namespace workbench::host
