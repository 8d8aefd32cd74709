// Findings for Python.
#include "python_findings.hpp"

namespace nb = nanobind;

namespace workbench::ptx {

nb::dict describe(const Finding& finding) {
  nb::dict row;
  row["problem"] = nb::cast(finding.problem).attr("name");
  row["pc"] = finding.pc, row["other_pc"] = finding.other_pc;
  row["other_block"] = finding.other_block, row["block"] = finding.block,
  row["thread"] = finding.thread, row["other_thread"] = finding.other_thread;
  row["address"] = finding.address, row["bytes"] = finding.bytes, row["count"] = finding.count,
  row["exchanged"] = finding.exchanged;
  row["least"] = finding.least, row["most"] = finding.most;
  row["text"] = nb::bytes(finding.text.data(), finding.text.size());
  return row;
}

}  // namespace workbench::ptx
