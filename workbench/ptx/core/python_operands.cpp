// Names for the columns of a code row that hold operands, used by the families in Python.
#include "python_operands.hpp"

#include <type_traits>

#include "operands.hpp"

namespace nb = nanobind;

namespace workbench::ptx {
namespace {

// Defines a namespace for the operands of one kind: each name is the number of its column; the name
// of an array is that of its first element.
template <class S>
class Columns {
 public:
  explicit Columns(std::size_t first) : first_(first) {}
  template <class M>
  Columns& operand(const char* name, M S::* member) {
    static_assert(sizeof(std::remove_all_extents_t<M>) == sizeof(u32));
    const S all{};
    const auto before =
        reinterpret_cast<const char*>(&(all.*member)) - reinterpret_cast<const char*>(&all);
    columns_[name] = first_ + static_cast<std::size_t>(before) / sizeof(u32);
    return *this;
  }
  operator nb::object() const {
    return nb::module_::import_("types").attr("SimpleNamespace")(**columns_);
  }

 private:
  std::size_t first_;
  nb::dict columns_;
};

}  // namespace

void bind_operands(nb::module_& m, std::size_t first) {
  using namespace operands;
  m.attr("Elementwise") = nb::object(Columns<Elementwise>(first)
                                         .operand("destination", &Elementwise::destination)
                                         .operand("source", &Elementwise::source));
  m.attr("Comparison") = nb::object(Columns<Comparison>(first)
                                        .operand("result", &Comparison::result)
                                        .operand("inverse", &Comparison::inverse)
                                        .operand("a", &Comparison::a)
                                        .operand("b", &Comparison::b)
                                        .operand("third", &Comparison::third));
  m.attr("Unpacking") = nb::object(Columns<Unpacking>(first)
                                       .operand("part", &Unpacking::part)
                                       .operand("source", &Unpacking::source));
  m.attr("Carrying") = nb::object(Columns<Carrying>(first)
                                      .operand("destination", &Carrying::destination)
                                      .operand("a", &Carrying::a)
                                      .operand("b", &Carrying::b)
                                      .operand("c", &Carrying::c)
                                      .operand("carry_in", &Carrying::carry_in)
                                      .operand("carry_out", &Carrying::carry_out));
  m.attr("Access") = nb::object(Columns<Access>(first).operand("data", &Access::data));
  m.attr("Atomic") = nb::object(Columns<Atomic>(first)
                                    .operand("old", &Atomic::old)
                                    .operand("operand", &Atomic::operand)
                                    .operand("second", &Atomic::second)
                                    .operand("old_high", &Atomic::old_high)
                                    .operand("operand_high", &Atomic::operand_high)
                                    .operand("second_high", &Atomic::second_high));
  m.attr("AsyncCopy") = nb::object(Columns<AsyncCopy>(first)
                                       .operand("destination", &AsyncCopy::destination)
                                       .operand("size", &AsyncCopy::size)
                                       .operand("ignored", &AsyncCopy::ignored)
                                       .operand("offset", &AsyncCopy::offset)
                                       .operand("flags", &AsyncCopy::flags));
  m.attr("AsyncStore") = nb::object(Columns<AsyncStore>(first)
                                        .operand("data", &AsyncStore::data)
                                        .operand("mbarrier", &AsyncStore::mbarrier));
  m.attr("Mbarrier") = nb::object(Columns<Mbarrier>(first)
                                      .operand("result", &Mbarrier::result)
                                      .operand("operand", &Mbarrier::operand)
                                      .operand("expected", &Mbarrier::expected)
                                      .operand("may_give_up", &Mbarrier::may_give_up));
  m.attr("Bulk") = nb::object(Columns<Bulk>(first)
                                  .operand("shared", &Bulk::shared)
                                  .operand("mbarrier", &Bulk::mbarrier)
                                  .operand("size", &Bulk::size)
                                  .operand("coordinate", &Bulk::coordinate)
                                  .operand("multicast", &Bulk::multicast)
                                  .operand("bytes", &Bulk::bytes)
                                  .operand("shared_offset", &Bulk::shared_offset)
                                  .operand("mbarrier_offset", &Bulk::mbarrier_offset)
                                  .operand("global_offset", &Bulk::global_offset)
                                  .operand("reduction", &Bulk::reduction)
                                  .operand("type", &Bulk::type)
                                  .operand("dimensions", &Bulk::dimensions));
  m.attr("MapChange") = nb::object(Columns<MapChange>(first)
                                       .operand("value", &MapChange::value)
                                       .operand("field", &MapChange::field)
                                       .operand("ordinal", &MapChange::ordinal));
  m.attr("MapCopy") = nb::object(Columns<MapCopy>(first)
                                     .operand("source", &MapCopy::source)
                                     .operand("offset", &MapCopy::offset)
                                     .operand("wide", &MapCopy::wide));
  m.attr("Fragment") = nb::object(Columns<Fragment>(first)
                                      .operand("data", &Fragment::data)
                                      .operand("stride", &Fragment::stride)
                                      .operand("rows", &Fragment::rows)
                                      .operand("columns", &Fragment::columns)
                                      .operand("by_row", &Fragment::by_row)
                                      .operand("parts", &Fragment::parts)
                                      .operand("bits", &Fragment::bits)
                                      .operand("leading", &Fragment::leading)
                                      .operand("step", &Fragment::step));
  m.attr("Exchange") = nb::object(Columns<Exchange>(first)
                                      .operand("result", &Exchange::result)
                                      .operand("predicate", &Exchange::predicate)
                                      .operand("value", &Exchange::value)
                                      .operand("lane", &Exchange::lane)
                                      .operand("control", &Exchange::control));
  m.attr("Product") = nb::object(Columns<Product>(first)
                                     .operand("d", &Product::d)
                                     .operand("a", &Product::a)
                                     .operand("b", &Product::b)
                                     .operand("c", &Product::c));
  m.attr("ScaledProduct") = nb::object(Columns<ScaledProduct>(first)
                                           .operand("d", &ScaledProduct::d)
                                           .operand("a", &ScaledProduct::a)
                                           .operand("b", &ScaledProduct::b)
                                           .operand("c", &ScaledProduct::c)
                                           .operand("scale_a", &ScaledProduct::scale_a)
                                           .operand("scale_b", &ScaledProduct::scale_b)
                                           .operand("selectors", &ScaledProduct::selectors));
  m.attr("SparseProduct") = nb::object(Columns<SparseProduct>(first)
                                           .operand("a", &SparseProduct::a)
                                           .operand("b", &SparseProduct::b)
                                           .operand("c", &SparseProduct::c)
                                           .operand("metadata", &SparseProduct::metadata)
                                           .operand("selector", &SparseProduct::selector)
                                           .operand("ordered", &SparseProduct::ordered)
                                           .operand("scale_a", &SparseProduct::scale_a)
                                           .operand("scale_b", &SparseProduct::scale_b)
                                           .operand("selectors", &SparseProduct::selectors));
  m.attr("GroupProduct") = nb::object(Columns<GroupProduct>(first)
                                          .operand("a", &GroupProduct::a)
                                          .operand("b", &GroupProduct::b)
                                          .operand("keeps_d", &GroupProduct::keeps_d)
                                          .operand("metadata", &GroupProduct::metadata)
                                          .operand("flags", &GroupProduct::flags)
                                          .operand("selector", &GroupProduct::selector));
  m.attr("TensorMove") = nb::object(Columns<TensorMove>(first)
                                        .operand("columns", &TensorMove::columns)
                                        .operand("matrix", &TensorMove::matrix)
                                        .operand("reduced", &TensorMove::reduced)
                                        .operand("shape", &TensorMove::shape)
                                        .operand("packed", &TensorMove::packed)
                                        .operand("apart", &TensorMove::apart)
                                        .operand("two_blocks", &TensorMove::two_blocks)
                                        .operand("bits", &TensorMove::bits)
                                        .operand("reduction", &TensorMove::reduction));
  m.attr("TensorProduct") =
      nb::object(Columns<TensorProduct>(first)
                     .operand("a", &TensorProduct::a)
                     .operand("b", &TensorProduct::b)
                     .operand("descriptor", &TensorProduct::descriptor)
                     .operand("keeps_d", &TensorProduct::keeps_d)
                     .operand("scale_a", &TensorProduct::scale_a)
                     .operand("scale_b", &TensorProduct::scale_b)
                     .operand("zero_columns", &TensorProduct::zero_columns)
                     .operand("metadata", &TensorProduct::metadata)
                     .operand("a_offset", &TensorProduct::a_offset)
                     .operand("scale_a_offset", &TensorProduct::scale_a_offset)
                     .operand("scale_b_offset", &TensorProduct::scale_b_offset)
                     .operand("metadata_offset", &TensorProduct::metadata_offset)
                     .operand("kind", &TensorProduct::kind)
                     .operand("flags", &TensorProduct::flags)
                     .operand("shift", &TensorProduct::shift));
  m.attr("TensorCommit") =
      nb::object(Columns<TensorCommit>(first).operand("blocks", &TensorCommit::blocks));
  m.attr("Barrier") = nb::object(Columns<Barrier>(first)
                                     .operand("result", &Barrier::result)
                                     .operand("number", &Barrier::number)
                                     .operand("threads", &Barrier::threads)
                                     .operand("vote", &Barrier::vote)
                                     .operand("unaligned", &Barrier::unaligned));
  m.attr("Call") = nb::object(Columns<Call>(first)
                                  .operand("frame", &Call::frame)
                                  .operand("target", &Call::target)
                                  .operand("caller_bytes", &Call::caller_bytes)
                                  .operand("callee_bytes", &Call::callee_bytes));
  m.attr("ParameterCopy") = nb::object(Columns<ParameterCopy>(first)
                                           .operand("frame", &ParameterCopy::frame)
                                           .operand("source", &ParameterCopy::source)
                                           .operand("destination", &ParameterCopy::destination)
                                           .operand("bytes", &ParameterCopy::bytes));
  m.attr("SystemCall") = nb::object(Columns<SystemCall>(first)
                                        .operand("frame", &SystemCall::frame)
                                        .operand("argument", &SystemCall::argument)
                                        .operand("result", &SystemCall::result));
}

}  // namespace workbench::ptx
