// Chunks of shared memory that an instruction reads through the async proxy, such as an operand of
// wgmma, and the lines that contain them.
#pragma once
#include <array>
#include <unordered_map>
#include <vector>

#include "checks/pattern.hpp"

namespace workbench::ptx {

struct Chunks {
  static constexpr u32 kBytes = 16;

  struct Line {
    u32 line;   // number of the line
    u64 part;   // parts of the line, as bits by LineParts::Scale
    u64 bytes;  // chunks of the line, a byte for each: 1 if it is read, otherwise 0
  };
  std::vector<u32> offsets;  // offsets of the chunks in the order in which they are read
  std::vector<Line> lines;   // each line once

  Chunks(std::vector<u32> from, LineParts::Scale scale) : offsets(std::move(from)) {
    for (const u32 offset : offsets) {
      const u32 number = offset >> scale.line, place = offset & ((1u << scale.line) - 1);
      std::size_t at = 0;
      while (at < lines.size() && lines[at].line != number) ++at;
      if (at == lines.size()) lines.push_back({number, 0, 0});
      lines[at].part |= scale.part_of(offset, kBytes);
      lines[at].bytes |= u64{1} << place / kBytes * 8;
    }
  }
};

// The chunk lists of a worker's instructions, by a number that describes their layout.
class ChunkLists {
 public:
  // The list of a number; `make` makes it when the number is new.
  template <class F>
  const Chunks& find(u64 number, F make) {
    Recent& recent = recent_[number * 0x9e3779b97f4a7c15u >> 58];
    if (!recent.chunks || recent.number != number) {
      auto found = all_.find(number);
      if (found == all_.end()) found = all_.emplace(number, make()).first;
      recent.number = number;
      recent.chunks = &found->second;
    }
    return *recent.chunks;
  }
  // Forgets all lists if there are many: lists of earlier blocks are no longer needed.
  void begin_block() {
    if (all_.size() < kMost) return;
    all_.clear();
    recent_.fill({});
  }

 private:
  static constexpr std::size_t kMost = 1024;

  struct Recent {
    u64 number = 0;
    const Chunks* chunks = nullptr;
  };
  std::array<Recent, 64> recent_{};
  std::unordered_map<u64, Chunks> all_;
};

}  // namespace workbench::ptx
