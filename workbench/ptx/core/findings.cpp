#include "machine.hpp"

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
    const u64 count = known.count + finding.count;
    if (earlier(finding, known)) known = finding;
    known.count = count;
    return;
  }
  items_.push_back(finding);
}

void FindingList::merge(const FindingList& other) {
  for (const Finding& finding : other.items_) add(finding);
}

}  // namespace workbench::ptx
