#include "registers.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <queue>
#include <utility>

namespace workbench::ptx {
namespace {

constexpr u32 kNone = 0xffffffffu;

// Strongly connected components (R. Tarjan, 1972) in reverse topological order. In each, the block
// that was seen first comes first.
class Components {
 public:
  explicit Components(const Successors& blocks)
      : blocks_(blocks), region_(blocks.size()), index_(blocks.size()), low_(blocks.size()) {}

  // The components of the blocks that the roots reach within region `inside` (0: everywhere).
  std::vector<std::vector<u32>> of(const std::vector<u32>& roots, u32 inside) {
    std::vector<std::vector<u32>> found;
    for (u32 root : roots) {
      if (seen(root)) continue;
      visit(root);
      while (!path_.empty()) {
        auto& [node, next] = path_.back();
        if (next < blocks_[node].size()) {
          const u32 following = blocks_[node][next++];
          if (inside && region_[following] != inside) continue;
          if (!seen(following))
            visit(following);
          else if (on_stack(following))
            low_[node] = std::min(low_[node], index_[following]);
          continue;
        }
        const u32 done = node;
        path_.pop_back();
        if (!path_.empty())
          low_[path_.back().first] = std::min(low_[path_.back().first], low_[done]);
        if (low_[done] == index_[done]) found.push_back(close(done));
      }
    }
    // The blocks of an inner region are visited again.
    for (const auto& component : found)
      for (u32 block : component) index_[block] = 0;
    return found;
  }

  void enclose(const std::vector<u32>& component, u32 region) {
    for (std::size_t i = 1; i < component.size(); ++i) region_[component[i]] = region;
  }
  u32 region(u32 block) const { return region_[block]; }

 private:
  static constexpr u32 kClosed = 1u << 31;

  bool seen(u32 block) const { return index_[block] != 0; }
  bool on_stack(u32 block) const { return !(index_[block] & kClosed); }
  void visit(u32 block) {
    index_[block] = low_[block] = ++count_;
    stack_.push_back(block);
    path_.push_back({block, 0});
  }
  std::vector<u32> close(u32 block) {
    const auto begin = std::find(stack_.rbegin(), stack_.rend(), block).base() - 1;
    std::vector<u32> component(begin, stack_.end());
    stack_.erase(begin, stack_.end());
    for (u32 each : component) index_[each] |= kClosed;
    return component;
  }

  const Successors& blocks_;
  std::vector<u32> region_, index_, low_, stack_;
  std::vector<std::pair<u32, u32>> path_;  // (block, which successor is next)
  u32 count_ = 0;
};

}  // namespace

std::vector<u32> order_blocks(const Successors& blocks) {
  struct Task {
    std::vector<u32> roots;
    u32 region;
    bool done;  // whether only the root is left to be placed
  };
  std::vector<u32> order;
  std::vector<Task> tasks{{{0}, 0, false}};
  Components components(blocks);
  u32 regions = 0;
  while (!tasks.empty()) {
    const Task task = std::move(tasks.back());
    tasks.pop_back();
    if (task.done) {
      order.push_back(task.roots[0]);
      continue;
    }
    // Components come in reverse order, so that the first one ends up on top of the stack.
    for (const std::vector<u32>& component : components.of(task.roots, task.region)) {
      const u32 header = component[0];
      if (component.size() > 1) {
        components.enclose(component, ++regions);
        std::vector<u32> entries;
        for (u32 following : blocks[header])
          if (components.region(following) == regions) entries.push_back(following);
        tasks.push_back({std::move(entries), regions, false});
      }
      tasks.push_back({{header}, 0, true});
    }
  }
  return order;
}

RegisterLives find_lives(const std::vector<u32>& lengths, const Successors& successors,
                         const std::vector<RegisterAccess>& reads,
                         const std::vector<RegisterAccess>& writes, u32 registers) {
  RegisterLives lives{std::vector<s64>(registers, RegisterLives::kNever),
                      std::vector<s64>(registers, -1)};
  const auto meet = [&](u32 number, s64 first, s64 last) {
    lives.first[number] = std::min(lives.first[number], first),
    lives.last[number] = std::max(lives.last[number], last);
  };
  for (const RegisterAccess& read : reads) meet(read.number, 2 * s64{read.pc}, 2 * s64{read.pc});
  for (const RegisterAccess& write : writes)
    meet(write.number, 2 * s64{write.pc} + 1, 2 * s64{write.pc} + 1);

  // A register that a block reads before it writes it comes from another block; only such registers
  // live across blocks.
  const u32 blocks = static_cast<u32>(lengths.size());
  std::vector<std::pair<u32, u32>> exposed, killed;  // (block, register)
  std::vector<u32> exposed_in(registers, kNone), killed_in(registers, kNone),
      across(registers, kNone);
  u32 end = 0, bits = 0;
  auto read = reads.begin();
  auto write = writes.begin();
  for (u32 block = 0; block < blocks; ++block) {
    end += lengths[block];
    while ((read != reads.end() && read->pc < end) || (write != writes.end() && write->pc < end)) {
      if (read != reads.end() && (write == writes.end() || read->pc <= write->pc)) {
        const u32 number = read++->number;
        if (killed_in[number] == block || exposed_in[number] == block) continue;
        exposed_in[number] = block, exposed.push_back({block, number});
        if (across[number] == kNone) across[number] = bits++;
      } else {
        const RegisterAccess& one = *write++;
        if (!one.kills || killed_in[one.number] == block) continue;
        killed_in[one.number] = block, killed.push_back({block, one.number});
      }
    }
  }

  // The registers that are live at the beginning and at the end of every block, as bits.
  using Bits = std::vector<u64>;
  const u32 words = (bits + 63) / 64;
  Bits upward(std::size_t{blocks} * words), kept(upward.size(), ~u64{0}), in(upward.size()),
      out(upward.size());
  const auto word = [&](Bits& of, u32 block, u32 bit) -> u64& {
    return of[std::size_t{block} * words + bit / 64];
  };
  for (const auto& [block, number] : exposed)
    word(upward, block, across[number]) |= u64{1} << across[number] % 64;
  for (const auto& [block, number] : killed)
    if (across[number] != kNone)
      word(kept, block, across[number]) &= ~(u64{1} << across[number] % 64);
  for (bool changed = true; changed;) {
    changed = false;
    for (u32 block = blocks; block-- > 0;) {
      const std::size_t at = std::size_t{block} * words;
      for (u32 w = 0; w < words; ++w) {
        u64 leaving = 0;
        for (u32 following : successors[block]) leaving |= in[std::size_t{following} * words + w];
        const u64 entering = upward[at + w] | (leaving & kept[at + w]);
        changed |= entering != in[at + w];
        out[at + w] = leaving, in[at + w] = entering;
      }
    }
  }
  // A register is live from the first block that receives it to the last one that passes it on.
  std::vector<u32> numbers(bits);
  for (u32 number = 0; number < registers; ++number)
    if (across[number] != kNone) numbers[across[number]] = number;
  const auto each = [&](u64 set, u32 w, auto function) {
    for (; set; set &= set - 1) function(numbers[64 * w + static_cast<u32>(__builtin_ctzll(set))]);
  };
  end = 0;
  for (u32 block = 0; block < blocks; ++block) {
    const s64 begins = 2 * s64{end}, ends = 2 * s64{end += lengths[block]};
    for (u32 w = 0; w < words; ++w) {
      each(in[std::size_t{block} * words + w], w,
           [&](u32 number) { lives.first[number] = std::min(lives.first[number], begins); });
      each(out[std::size_t{block} * words + w], w,
           [&](u32 number) { lives.last[number] = std::max(lives.last[number], ends); });
    }
  }
  return lives;
}

u32 take_slot(u32 width, u32& size) {
  // Predicates take 4 bytes, everything else whole cache lines.
  const u32 offset = width ? (size + 63) / 64 * 64 : size;
  size = offset + (width ? 32 * std::max(width, 2u) : 4);
  return offset;
}

std::vector<u32> place_registers(const RegisterLives& lives, const std::vector<u32>& widths,
                                 u32& size) {
  const u32 count = static_cast<u32>(widths.size());
  std::vector<u32> offsets(count), order;
  for (u32 number = 0; number < count; ++number)
    if (lives.last[number] >= 0) order.push_back(number);
  std::stable_sort(order.begin(), order.end(),
                   [&](u32 a, u32 b) { return lives.first[a] < lives.first[b]; });
  using Ending = std::pair<s64, u32>;
  std::priority_queue<Ending, std::vector<Ending>, std::greater<>> active;
  std::array<std::vector<u32>, 17> free;  // free slots by width
  for (u32 number : order) {
    for (; !active.empty() && active.top().first < lives.first[number]; active.pop()) {
      const u32 ended = active.top().second;
      free[widths[ended]].push_back(offsets[ended]);
    }
    std::vector<u32>& mine = free[widths[number]];
    if (mine.empty()) {
      offsets[number] = take_slot(widths[number], size);
    } else {
      offsets[number] = mine.back();
      mine.pop_back();
    }
    active.push({lives.last[number], number});
  }
  return offsets;
}

}  // namespace workbench::ptx
