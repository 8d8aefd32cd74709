// mov, packing and unpacking of vectors, selp, logic on predicates.
#include "arithmetic/elementwise.hpp"
#include "checks/global_shadow.hpp"
#include "memory/access.hpp"

namespace workbench::ptx {
namespace {

constexpr Class kMove = Class::other;

// 8-bit registers are stored in 16 bits (see operands.py): `Register` is the stored type of a part
// of type `Part`.
template <class Part, class Whole, u32 N, class Register = Part>
void pack(u8* registers, const Instruction& in, u32 mask, Warp&) {
  alignas(64) Whole out[kLanes] = {};
  for (u32 i = 0; i < N; ++i) {
    const Register* part = at<const Register>(registers, in.elementwise.source[i]);
    PTX_LANES {
      out[lane] |=
          static_cast<Whole>(Whole{static_cast<Part>(part[lane])} << (8 * sizeof(Part) * i));
    }
  }
  write_lanes(registers, in.elementwise.destination, mask, out);
}

template <class Part, class Whole, u32 N, class Register = Part>
void unpack(u8* registers, const Instruction& in, u32 mask, Warp&) {
  alignas(64) Whole whole[kLanes];
  alignas(64) Register out[kLanes];
  std::memcpy(whole, at<Whole>(registers, in.unpacking.source), sizeof whole);
  for (u32 i = 0; i < N; ++i) {
    if (in.unpacking.part[i] == kNoSlot) continue;
    if (mask == kAllLanes) {
      Register* const part = at<Register>(registers, in.unpacking.part[i]);
      PTX_LANES {
        part[lane] = static_cast<Part>(whole[lane] >> (8 * sizeof(Part) * i));
      }
      continue;
    }
    PTX_LANES {
      out[lane] = static_cast<Part>(whole[lane] >> (8 * sizeof(Part) * i));
    }
    write_lanes(registers, in.unpacking.part[i], mask, out);
  }
}

template <class T>
void select(u8* registers, const Instruction& in, u32 mask, Warp&) {
  const T* a = at<const T>(registers, in.elementwise.source[0]);
  const T* b = at<const T>(registers, in.elementwise.source[1]);
  const u32 choice = *at<u32>(registers, in.elementwise.source[2]);
  alignas(64) T out[kLanes];
  PTX_LANES {
    out[lane] = (choice >> lane & 1) ? a[lane] : b[lane];
  }
  write_lanes(registers, in.elementwise.destination, mask, out);
}

template <class F>
void logic(u8* registers, const Instruction& in, u32 mask, Warp&) {
  const u32 a = *at<u32>(registers, in.elementwise.source[0]);
  if constexpr (Signature<F>::count == 1)
    set_predicate(registers, in.elementwise.destination, mask, F{}(a));
  else
    set_predicate(registers, in.elementwise.destination, mask,
                  F{}(a, *at<u32>(registers, in.elementwise.source[1])));
}

template <class F>
TableEntry logic_op(const char* name, const char* sources, F) {
  return {name, &logic<F>, Kind::plain, Class::integer, "pred", sources};
}

// clock: the number of instructions that this warp has executed, or waited for others to execute,
// behind that at which the launch begins; it never decreases.
template <class T>
void clock(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  alignas(64) T out[kLanes];
  const T now = static_cast<T>(warp.block->launch->clock_start + warp.now + warp.waited);
  PTX_LANES {
    out[lane] = now;
  }
  write_lanes(registers, in.elementwise.destination, mask, out);
}

void nothing(u8*, const Instruction&, u32, Warp&) {}

// Warps of one worker run in turn; blocks of different workers are ordered by the host's own fence.
// Checks are notified of the fence in both cases.
void fence(u8*, const Instruction& in, u32, Warp& warp) {
  if (warp.block->launch->threads > 1) std::atomic_thread_fence(std::memory_order_seq_cst);
  Shadow* shadow = warp.block->shadow;
  if (!shadow) return;
  const bool wide = !(in.flags & kBlockScope);
  if (wide) warp.block->launch->global_shadow->fenced(warp);
  shadow->clocks.fence(warp.agent, wide);
}

// Launches run one after the other, so nothing has to be waited for; checks are notified of the
// wait.
void dependency_wait(u8*, const Instruction&, u32, Warp& warp) {
  Block& block = *warp.block;
  if (block.shadow && block.launch->overlapped)
    block.dependency_waits.emplace_back(warp.agent, block.shadow->clocks.now(warp.agent));
}

// fence.mbarrier_init: a fence after which initialised mbarriers are visible to the async proxy.
void initialisation_fence(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  fence(registers, in, mask, warp);
  if (warp.block->shadow) warp.block->shadow->make_initialised_known(warp);
}

// fence.proxy: the writes that the warp has seen become visible to the async proxy.
void proxy_fence(u8*, const Instruction&, u32, Warp& warp) {
  Shadow* shadow = warp.block->shadow;
  if (!shadow) return;
  shadow->clocks.proxy_fence(warp.agent, warp.block->launch->strict);
  shadow->make_initialised_known(warp);
}

}  // namespace

void add_moves(Table& table) {
  auto add = [&](const char* name, Handler run, const char* destinations, const char* sources,
                 Class group = kMove) {
    table.push_back({name, run, Kind::plain, group, destinations, sources});
  };
  table.push_back(op("mov.b16", kMove, [](u16 a) -> u16 { return a; }));
  table.push_back(op("mov.b32", kMove, [](u32 a) -> u32 { return a; }));
  table.push_back(op("mov.b64", kMove, [](u64 a) -> u64 { return a; }));
  add("pack.b16.2", &pack<u8, u16, 2, u16>, "b16", "b16,b16");
  add("pack.b32.4", &pack<u8, u32, 4, u16>, "b32", "b16,b16,b16,b16");
  add("pack.b32.2", &pack<u16, u32, 2>, "b32", "b16,b16");
  add("pack.b64.2", &pack<u32, u64, 2>, "b64", "b32,b32");
  add("pack.b64.4", &pack<u16, u64, 4>, "b64", "b16,b16,b16,b16");
  add("unpack.b16.2", &unpack<u8, u16, 2, u16>, "b16,b16", "b16");
  add("unpack.b32.4", &unpack<u8, u32, 4, u16>, "b16,b16,b16,b16", "b32");
  add("unpack.b32.2", &unpack<u16, u32, 2>, "b16,b16", "b32");
  add("unpack.b64.2", &unpack<u32, u64, 2>, "b32,b32", "b64");
  add("unpack.b64.4", &unpack<u16, u64, 4>, "b16,b16,b16,b16", "b64");
  add("selp.b16", &select<u16>, "b16", "b16,b16,pred");
  add("selp.b32", &select<u32>, "b32", "b32,b32,pred");
  add("selp.b64", &select<u64>, "b64", "b64,b64,pred");
  table.push_back(logic_op("and.pred", "pred,pred", [](u32 a, u32 b) { return a & b; }));
  table.push_back(logic_op("or.pred", "pred,pred", [](u32 a, u32 b) { return a | b; }));
  table.push_back(logic_op("xor.pred", "pred,pred", [](u32 a, u32 b) { return a ^ b; }));
  table.push_back(logic_op("not.pred", "pred", [](u32 a) { return ~a; }));
  table.push_back(logic_op("mov.pred", "pred", [](u32 a) { return a; }));
  table.push_back({"clock.b32", &clock<u32>, Kind::timed, kMove, "b32", ""});
  table.push_back({"clock.b64", &clock<u64>, Kind::timed, kMove, "b64", ""});
  add("nop", &nothing, "", "");
  add("griddepcontrol.launch_dependents", &nothing, "", "", Class::sync);
  add("griddepcontrol.wait", &dependency_wait, "", "", Class::sync);
  add("fence", &fence, "", "", Class::sync);
  add("fence.mbarrier_init", &initialisation_fence, "", "", Class::sync);
  add("fence.proxy.async", &proxy_fence, "", "", Class::sync);
}

}  // namespace workbench::ptx
