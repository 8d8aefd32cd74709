// A library's live handles: created and not destroyed.
#pragma once
#include <memory>
#include <mutex>
#include <set>

#include "calls.hpp"

namespace workbench::host {

template <class Handle>
class Live {
 public:
  // The library's only instance. It is never destroyed: clients may destroy handles at process
  // exit.
  static Live& all() {
    static auto* const live = new Live;
    return *live;
  }

  // Throws `status` unless the handle is live; `noun` is the library's word for a handle.
  Handle& checked(Handle* handle, int status, const char* noun) {
    std::lock_guard lock(mutex_);
    if (!handles_.contains(handle)) {
      throw Failed{status,
                   std::string("no such ") + noun + ": it was never created, or is destroyed"};
    }
    return *handle;
  }

  Handle* add(std::unique_ptr<Handle> made) {
    std::lock_guard lock(mutex_);
    handles_.insert(made.get());
    return made.release();
  }

  void destroy(Handle* handle) {
    std::lock_guard lock(mutex_);
    handles_.erase(handle);
    delete handle;
  }

 private:
  std::mutex mutex_;
  std::set<Handle*> handles_;
};

}  // namespace workbench::host
