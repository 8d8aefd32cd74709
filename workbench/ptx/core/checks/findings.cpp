#include <algorithm>

#include "debug/debugger.hpp"
#include "warp.hpp"

namespace workbench::ptx {
namespace {

bool earlier(const Finding& a, const Finding& b) {
  if (a.block != b.block) return a.block < b.block;
  if (a.thread != b.thread) return a.thread < b.thread;
  return a.address < b.address;
}

}  // namespace

void FindingList::add(const Finding& finding) {
  for (Finding& known : items_) {
    if (known.problem != finding.problem || known.pc != finding.pc ||
        known.other_pc != finding.other_pc || known.exchanged != finding.exchanged)
      continue;
    if ((known.other_block < 0) != (finding.other_block < 0)) continue;
    const u64 count = known.count + finding.count, least = std::min(known.least, finding.least),
              most = std::max(known.most, finding.most);
    if (earlier(finding, known)) known = finding;
    known.count = count, known.least = least, known.most = most;
    return;
  }
  items_.push_back(finding);
}

void FindingList::merge(const FindingList& other) {
  for (const Finding& finding : other.items_) add(finding);
}

void Block::problem(Problem kind, const Instruction& in, s32 thread, u64 address, u32 bytes,
                    std::string text) {
  const Finding finding{.problem = kind,
                        .pc = pc_of(in),
                        .block = index,
                        .thread = thread,
                        .address = address,
                        .bytes = bytes,
                        .text = std::move(text)};
  if (!launch->checks) throw Stop{finding};
  note(finding);
}

void Block::print(const std::string& text) {
  constexpr std::size_t kMost =
      1 << 20;  // limit in characters of one block, as the GPU's buffer is limited too
  if (printed->empty() || printed->back().block != index) printed->push_back({index, {}});
  std::string& all = printed->back().text;
  if (all.size() + text.size() <= kMost) all += text;
}

void Block::note(const Finding& finding) {
  if (!launch->checks) return;
  findings->add(finding);
  if (launch->debugger) launch->debugger->note(finding);
}

}  // namespace workbench::ptx
