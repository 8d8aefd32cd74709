// C = alpha * op(A) + beta * op(B), between any orders and types.
#include "lt.hpp"

using namespace workbench::host;

namespace {

template <class T>
void run(Frame& frame, const TransformDesc& desc, T alpha, const Layout& a, const void* from_a,
         T beta, const Layout& b, const void* from_b, const Layout& c, void* to) {
  for (i64 i = 0; i < c.batch_count; ++i) {
    std::vector<T> sum(static_cast<std::size_t>(c.rows * c.columns));
    const auto add = [&](const char* argument, T factor, const Layout& layout, const void* from,
                         int op) {
      if (factor == T{}) return;
      const std::vector<T> values =
          dense<T>(layout, matrix_of(frame, argument, layout, from, i, Access::reads),
                   operation(op, argument));
      for (std::size_t at = 0; at < sum.size(); ++at) sum[at] += factor * values[at];
    };
    add("A", alpha, a, from_a, desc.op_a);
    add("B", beta, b, from_b, desc.op_b);
    write(c, sum, matrix_of(frame, "C", c, to, i, Access::writes));
  }
}

void check_shape(const Layout& c, const Layout& one, int op, const char* argument) {
  check_layout(one, argument);
  const bool turned = operation(op, argument) != 'N';
  if ((turned ? one.columns : one.rows) != c.rows ||
      (turned ? one.rows : one.columns) != c.columns || one.batch_count != c.batch_count)
    throw Failed{kInvalidValue, std::string("op(") + argument + ") has not the shape of C"};
}

}  // namespace

LT_API cublasLtMatrixTransform(void* handle, const TransformDesc* given, const void* alpha,
                               const void* a, const Layout* layout_a, const void* beta,
                               const void* b, const Layout* layout_b, void* c,
                               const Layout* layout_c, CUstream stream) {
  return call("cublasLtMatrixTransform", [&] {
    if (!handle) throw Failed{kNotInitialized, "the handle is a null pointer"};
    const TransformDesc desc = needed(given, "transformDesc");
    if (desc.pointer_mode > 1) throw Failed{kNotSupported, "alpha and beta as vectors"};
    const Layout to = needed(layout_c, "Cdesc");
    check_layout(to, "C");
    const Layout empty{to.type, 0, 0, 0, 1, to.batch_count, 0, 0, 0};
    const Layout one = layout_a ? *layout_a : empty, two = layout_b ? *layout_b : empty;
    if (layout_a) check_shape(to, one, desc.op_a, "A");
    if (layout_b) check_shape(to, two, desc.op_b, "B");
    if (desc.scale == kHalf || desc.scale == kBfloat || is_integer(desc.scale))
      throw Failed{kNotSupported,
                   "the scale type; float32, float64 and the complex ones are there"};
    const bool on_device = desc.pointer_mode == 1;
    with_computed(desc.scale, [&](auto number) {
      using T = decltype(number);
      const auto* by = static_cast<const T*>(alpha);
      const auto* keep = static_cast<const T*>(beta);
      const T known_a = layout_a && !on_device ? needed(by, "alpha") : T{};
      const T known_b = layout_b && !on_device ? needed(keep, "beta") : T{};
      enqueue(
          stream, "cublasLtMatrixTransform",
          sizes({{"rows", static_cast<i64>(to.rows)}, {"columns", static_cast<i64>(to.columns)}}),
          [=](Frame& frame) {
            const T of_a = layout_a && on_device ? *frame.vector("alpha", by, 1) : known_a;
            const T of_b = layout_b && on_device ? *frame.vector("beta", keep, 1) : known_b;
            run<T>(frame, desc, of_a, one, a, of_b, two, b, to, c);
          });
    });
  });
}
