// The linker, from PTX to PTX. Numba and cuda.core link everything that they compile.
#include <fstream>
#include <sstream>

#include "driver.hpp"

namespace workbench::driver {
namespace {

struct Link {
  Logs logs;
  std::vector<std::string> modules = {};
  bool device_runtime = false;
  std::string image = {};
};

std::unordered_map<u64, std::shared_ptr<Link>>& links() {
  static auto* all = new std::unordered_map<u64, std::shared_ptr<Link>>;
  return *all;
}

void add(Link& link, std::string image, const std::string& name) {
  constexpr const char* archive = "!<arch>";
  if (image.starts_with(archive) && name.ends_with("libcudadevrt.a")) {
    // The link adds this package's PTX of it.
    link.device_runtime = true;
    return;
  }
  std::string unpacked;
  if (unpack_fat_binary(image.c_str(), unpacked)) image = unpacked;
  check_image(image.c_str());
  if (image.find(".version") == std::string::npos) {
    throw Refused{CUDA_ERROR_NOT_SUPPORTED,
                  "the linker takes PTX; libraries and objects are machine code: compile them with "
                  "-ptx -rdc=true"};
  }
  link.modules.push_back(std::move(image));
}

// Runs one step of a link, and writes its message to the link's logs.
template <class Body>
CUresult step(void* handle, Body&& body) {
  std::shared_ptr<Link> link;
  const CUresult result = entry([&](Call& call) {
    call.context();
    link = find_handle(links(), handle, "link");
    body(*link, call);
  });
  return link ? link->logs.written(result) : result;
}

}  // namespace
}  // namespace workbench::driver

using namespace workbench::driver;

CU_API cuLinkCreate_v2(unsigned count, int* options, void** values, void** out) {
  return entry([&](Call& call) {
    call.context();
    void*& handle = needed(out, "link");
    const u64 number = new_handle();
    links()[number] = std::make_shared<Link>(Link{.logs = Logs(count, options, values)});
    handle = reinterpret_cast<void*>(number);
  });
}

CU_API cuLinkAddData_v2(void* handle, int, void* data, std::size_t size, const char* name, unsigned,
                        int*, void**) {
  return step(handle, [&](Link& link, Call&) {
    const char* from = &needed(static_cast<const char*>(data), "data");
    if (!mapped(reinterpret_cast<u64>(from), size))
      throw Refused{CUDA_ERROR_INVALID_VALUE, "there is no such data"};
    add(link, std::string(from, size), name ? name : "");
  });
}

CU_API cuLinkAddFile_v2(void* handle, int, const char* path, unsigned, int*, void**) {
  return step(handle, [&](Link& link, Call&) {
    std::ifstream file(&needed(path, "path"), std::ios::binary);
    if (!file) throw Refused{CUDA_ERROR_FILE_NOT_FOUND, path};
    std::ostringstream all;
    all << file.rdbuf();
    add(link, all.str(), path);
  });
}

CU_API cuLinkComplete(void* handle, void** image, std::size_t* size) {
  return step(handle, [&](Link& link, Call& call) {
    if (link.modules.empty())
      throw Refused{CUDA_ERROR_INVALID_VALUE, "nothing was added to the link"};
    std::vector<const char*> modules;
    for (const std::string& one : link.modules) modules.push_back(one.c_str());
    const auto put = [](void* to, const char* text, u64 length) {
      try {
        static_cast<std::string*>(to)->assign(text, length);
        return 1;
      } catch (const std::exception&) {
        return 0;
      }
    };
    ask(call, hooks().link, modules.data(), static_cast<u32>(modules.size()),
        static_cast<u32>(link.device_runtime), static_cast<void*>(&link.image), +put);
    needed(image, "image") = link.image.data();
    if (size) *size = link.image.size() + 1;
  });
}

CU_API cuLinkDestroy(void* handle) {
  return entry([&](Call&) {
    find_handle(links(), handle, "link");
    links().erase(reinterpret_cast<u64>(handle));
  });
}
