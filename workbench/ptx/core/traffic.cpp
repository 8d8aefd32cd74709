#include "traffic.hpp"

#include "machine.hpp"

namespace workbench::ptx {

Traffic::Traffic(const std::vector<Buffer>& buffers)
    : reads_(buffers.size()), writes_(buffers.size()) {
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const u64 end = (buffers[i].address + buffers[i].size + 31) >> 5;
    reads_[i].size = writes_[i].size = end - (buffers[i].address >> 5);
  }
}

void Traffic::allocate(Map& map, bool with_positions) {
  const auto make = [&map](Memory<u32>& values) {
    values = zeros<u32>(map.size);
    if (!values)
      throw OutOfMemory("%llu bytes of counts by sector",
                        static_cast<unsigned long long>(map.size * sizeof(u32)));
  };
  if (with_positions) make(map.positions);
  make(map.stamps);
}

std::vector<Sectors> Traffic::total(const std::vector<const Traffic*>& workers, bool written) {
  std::vector<Sectors> all;
  if (workers.empty()) return all;
  all.resize(workers[0]->reads_.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::vector<const Map*> maps;
    for (const Traffic* worker : workers) {
      const Map& map = written ? worker->writes_[i] : worker->reads_[i];
      if (!map.stamps) continue;
      maps.push_back(&map);
      all[i].moved += map.seen.moved, all[i].by_blocks += map.seen.by_blocks,
          all[i].distinct += map.seen.distinct;
      for (std::size_t k = 0; k < kDistances; ++k) all[i].again[k] += map.seen.again[k];
    }
    if (maps.size() < 2) continue;
    all[i].distinct = 0;
    for (u64 sector = 0; sector < maps[0]->size; ++sector) {
      bool any = false;
      for (const Map* map : maps) any |= map->stamps[sector] != 0;
      all[i].distinct += any;
    }
  }
  return all;
}

}  // namespace workbench::ptx
