// The table of all instructions, with the entries that the scheduler executes itself.
#include "warp.hpp"

namespace workbench::ptx {

const char* const kSpecialNames[] = {"tid.x",
                                     "tid.y",
                                     "tid.z",
                                     "ctaid.x",
                                     "ctaid.y",
                                     "ctaid.z",
                                     "ntid.x",
                                     "ntid.y",
                                     "ntid.z",
                                     "nctaid.x",
                                     "nctaid.y",
                                     "nctaid.z",
                                     "laneid",
                                     "warpid",
                                     "nwarpid",
                                     "smid",
                                     "nsmid",
                                     "gridid",
                                     "lanemask_eq",
                                     "lanemask_le",
                                     "lanemask_lt",
                                     "lanemask_ge",
                                     "lanemask_gt",
                                     "dynamic_smem_size",
                                     "total_smem_size",
                                     "envreg1",
                                     "envreg2",
                                     "clusterid.x",
                                     "clusterid.y",
                                     "clusterid.z",
                                     "nclusterid.x",
                                     "nclusterid.y",
                                     "nclusterid.z",
                                     "cluster_ctaid.x",
                                     "cluster_ctaid.y",
                                     "cluster_ctaid.z",
                                     "cluster_nctaid.x",
                                     "cluster_nctaid.y",
                                     "cluster_nctaid.z",
                                     "cluster_ctarank",
                                     "cluster_nctarank",
                                     "is_explicit_cluster",
                                     "reserved_smem_offset_begin",
                                     "reserved_smem_offset_end",
                                     "reserved_smem_offset_cap",
                                     "reserved_smem_offset_0",
                                     "reserved_smem_offset_1"};

void add_control(Table& table) {
  auto add = [&](const char* name, Kind kind, Class group, const char* destinations = "",
                 const char* sources = "") {
    table.push_back({name, nullptr, kind, group, destinations, sources});
  };
  add("bra", Kind::branch, Class::control);
  add("exit", Kind::exit, Class::control);
  add("trap", Kind::trap, Class::control);
  add("bar.sync", Kind::barrier, Class::sync);
  add("bar.arrive", Kind::barrier, Class::sync);
  add("bar.red.popc", Kind::barrier, Class::sync, "b32", "pred");
  add("bar.red.and", Kind::barrier, Class::sync, "pred", "pred");
  add("bar.red.or", Kind::barrier, Class::sync, "pred", "pred");
}

const std::vector<TableEntry>& instruction_table() {
  static const Table table = [] {
    Table all;
    add_integer(all), add_wide_integer(all), add_fields(all), add_float(all),
        add_special_functions(all), add_half(all), add_contractions(all);
    add_conversions(all), add_float_conversions(all), add_moves(all), add_comparisons(all),
        add_memory(all);
    add_atomics(all), add_async_copies(all), add_mbarriers(all), add_bulk_copies(all),
        add_tensor_maps(all), add_warp_groups(all);
    add_tensor_memory(all);
    add_tensor_products(all);
    add_clusters(all), add_collectives(all), add_matrix(all), add_integer_matrix(all);
    add_byte_matrix(all), add_matrix_memory(all), add_control(all), add_calls(all),
        add_carries(all);
    add_small_matrix(all);
    widen_matrices(all), widen_integer_matrices(all);
    add_sparse_matrix(all);
    return all;
  }();
  return table;
}

}  // namespace workbench::ptx
