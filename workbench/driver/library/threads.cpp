// State of each thread of a client. It is not thread_local, because the C library ends the process
// if there is no memory for such variables at a thread's first use.
#include <pthread.h>

#include "driver.hpp"

namespace workbench::driver {

ThreadState* thread_state() noexcept {
  static const pthread_key_t key = [] {
    pthread_key_t made{};
    pthread_key_create(&made, [](void* state) { delete static_cast<ThreadState*>(state); });
    return made;
  }();
  if (void* known = pthread_getspecific(key)) return static_cast<ThreadState*>(known);
  auto* made = new (std::nothrow) ThreadState;
  if (made && pthread_setspecific(key, made)) {
    delete made;
    return nullptr;
  }
  return made;
}

ThreadState& needed_thread_state() {
  ThreadState* found = thread_state();
  if (!found) throw std::bad_alloc();
  return *found;
}

std::vector<u64>& context_stack() { return needed_thread_state().contexts; }

}  // namespace workbench::driver
