#include "checks/traffic.hpp"

#include "machine.hpp"

namespace workbench::ptx {

Traffic::Traffic(const std::vector<Buffer>& buffers)
    : reads_(buffers.size()), writes_(buffers.size()) {
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const u64 end = (buffers[i].address + buffers[i].size + 31) >> 5;
    reads_[i].size = writes_[i].size = end - (buffers[i].address >> 5);
    reads_[i].before = buffers[i].address & 31;
    reads_[i].bytes_of_buffer = buffers[i].size;
  }
}

void Traffic::allocate(Map& map, bool of_reads) {
  const auto make = [&map](Memory<u32>& values) {
    values = zeros<u32>(map.size);
    if (!values)
      throw OutOfMemory("%llu bytes of counts by sector",
                        static_cast<unsigned long long>(map.size * sizeof(u32)));
  };
  if (of_reads) make(map.positions), make(map.bytes);
  make(map.stamps);
}

void Traffic::count_unread(const std::vector<const Map*>& maps, Sectors& seen) {
  const Map& any = *maps[0];
  for (u64 sector = 0; sector < any.size; ++sector) {
    u32 read = 0;
    for (const Map* map : maps) read |= map->bytes[sector];
    if (!sector) read |= (1u << any.before) - 1;
    const u64 end = any.before + any.bytes_of_buffer - 32 * sector;
    if (end < 32) read |= ~u32{0} << end;
    const u32 missing = ~read;
    if (!missing) continue;
    const u64 start = 32 * sector - any.before;
    if (!seen.unread) seen.first_unread = start + static_cast<u64>(__builtin_ctz(missing));
    seen.last_unread = start + 31 - static_cast<u64>(__builtin_clz(missing));
    seen.unread += static_cast<u64>(__builtin_popcount(missing));
  }
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
    if (!written && !maps.empty()) count_unread(maps, all[i]);
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
