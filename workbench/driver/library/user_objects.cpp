// A client's objects that graphs keep alive. Their destructor functions may call the interpreter,
// so they are called without the lock.
#include <algorithm>

#include "driver.hpp"

namespace workbench::driver {
namespace {

// The pending destructor functions of user objects.
struct Ends {
  std::mutex mutex;
  std::list<std::pair<CUhostFn, void*>> waiting;
};

Ends& ends() {
  static auto* one = new Ends;
  return *one;
}

std::shared_ptr<UserReferences> references_of(void* object) {
  auto found = find_handle(state().user_objects, object, "user object");
  if (found->object.expired())
    throw Refused{CUDA_ERROR_INVALID_HANDLE, "the last reference to the user object was released"};
  return found;
}

void give_up(std::vector<std::shared_ptr<UserObject>>& held,
             const std::shared_ptr<UserObject>& wanted, unsigned count) {
  const auto there = std::ranges::count(held, wanted);
  if (there < count)
    throw Refused{CUDA_ERROR_INVALID_VALUE,
                  std::to_string(count) + " references to the user object, of which there are " +
                      std::to_string(there)};
  for (; count; --count) held.erase(std::ranges::find(held, wanted));
}

}  // namespace

UserObject::~UserObject() {
  std::lock_guard lock(ends().mutex);
  ends().waiting.splice(ends().waiting.end(), end_);
}

void call_ends() {
  std::list<std::pair<CUhostFn, void*>> waiting;
  {
    std::lock_guard lock(ends().mutex);
    waiting.swap(ends().waiting);
  }
  for (const auto& [end, data] : waiting) end(data);
}

}  // namespace workbench::driver

using namespace workbench::driver;

CU_API cuUserObjectCreate(void** out, void* data, CUhostFn end, unsigned count, unsigned) {
  return entry([&](Call&) {
    void*& object = needed(out, "object");
    if (!end || !count)
      throw Refused{CUDA_ERROR_INVALID_VALUE,
                    "a user object has a function that ends it, and at least one reference"};
    std::erase_if(state().user_objects,
                  [](const auto& item) { return item.second->object.expired(); });
    const auto made = std::make_shared<UserObject>(end, data);
    const u64 number = new_handle();
    state().user_objects[number] =
        std::make_shared<UserReferences>(UserReferences{made, {count, made}});
    object = reinterpret_cast<void*>(number);
  });
}

CU_API cuUserObjectRetain(void* object, unsigned count) {
  return entry([&](Call&) {
    const auto found = references_of(object);
    found->own.insert(found->own.end(), count, found->object.lock());
  });
}

CU_API cuUserObjectRelease(void* object, unsigned count) {
  return entry([&](Call&) {
    const auto found = references_of(object);
    give_up(found->own, found->object.lock(), count);
  });
}

CU_API cuGraphRetainUserObject(CUgraph handle, void* object, unsigned count, unsigned flags) {
  return entry([&](Call&) {
    Graph& graph = *find_handle(state().graphs, handle, "graph");
    const auto found = references_of(object);
    const auto wanted = found->object.lock();
    if (flags & CU_GRAPH_USER_OBJECT_MOVE) give_up(found->own, wanted, count);
    graph.kept.insert(graph.kept.end(), count, wanted);
  });
}

CU_API cuGraphReleaseUserObject(CUgraph handle, void* object, unsigned count) {
  return entry([&](Call&) {
    give_up(find_handle(state().graphs, handle, "graph")->kept,
            references_of(object)->object.lock(), count);
  });
}
