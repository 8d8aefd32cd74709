// Operations that run later than the calls that enqueue them, as a GPU may do it (`workbench run
// --late`).
//
// Each stream has a queue of what it was given. An item runs when the host waits for it, after what
// is before it in its queue, and after places in other queues: those of events that its stream has
// waited for, and of the default stream, where streams wait for that. What nothing orders runs in
// the order opposite to that of the calls; with a seed, some of it is run in between.
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "abi.hpp"

namespace workbench::driver {

class Call;
struct Context;
struct Event;
struct LateQueue;

// Runs an operation on a stream.
using Operation = std::function<void(Call&, CUstream)>;

// A place in a queue, with all that is before it; without a queue, nothing.
struct LatePlace {
  std::shared_ptr<LateQueue> queue = nullptr;
  u64 number = 0;
};

bool late_is_on();
// Whether operations of the calling thread are put off. Not while it runs one of them.
bool is_late();
// Puts an operation behind what its stream was given; false if it has to run now.
bool put_off(Call& call, CUstream stream, const Operation& run);
// The place of what a stream was given.
LatePlace late_place(const Context& context, CUstream stream);
// Makes what the stream is given from here on run after a place.
void follow_late(Call& call, CUstream stream, const LatePlace& place);
bool is_pending(const LatePlace& place);

// These run what was put off before a place, of a stream, or of a context, because the host waits
// for it. They refuse if it, or something before, has failed. Unlock meanwhile.
void catch_up(Call& call, LatePlace place);
void catch_up(Call& call, CUstream stream);
void catch_up(Call& call, Context& context);
// Runs what was put off, for a call that works after a fault, too.
void run_late(Call& call, Context& context);
// What was put off will not run: the context is at its end.
void forget_late(const Context& context);

}  // namespace workbench::driver
