// Products of matrices of any type: elements are converted, exactly, to the type of the
// computation, the host's BLAS multiplies, and the result is rounded once.
#pragma once
#include <vector>

#include "host_blas.hpp"

namespace workbench::host {

// A matrix in memory, column by column.
template <class Pointer>
struct Stored {
  int type;
  Pointer data;
  i64 rows, columns, stride;
};
using Given = Stored<const void*>;
using Result = Stored<void*>;

std::size_t bytes_of(int type);

// The matrix as elements of T: itself, or converted into `room`; `stride` is set for either.
template <class T>
const T* loaded(const Given& matrix, std::vector<T>& room, i64& stride) {
  if (matrix.type == code_of<T>()) {
    stride = matrix.stride;
    return static_cast<const T*>(matrix.data);
  }
  stride = std::max<i64>(1, matrix.rows);
  room.resize(static_cast<std::size_t>(matrix.rows * matrix.columns));
  with_type(matrix.type, "a matrix", 0, [&](auto element) {
    const auto* from = static_cast<const decltype(element)*>(matrix.data);
    for (i64 column = 0; column < matrix.columns; ++column)
      for (i64 row = 0; row < matrix.rows; ++row)
        room[static_cast<std::size_t>(column * matrix.rows + row)] =
            converted<T>(from[column * matrix.stride + row]);
  });
  return room.data();
}

template <class T>
void store(const T* from, const Result& matrix) {
  with_type(matrix.type, "a matrix", 0, [&](auto element) {
    auto* to = static_cast<decltype(element)*>(matrix.data);
    for (i64 column = 0; column < matrix.columns; ++column)
      for (i64 row = 0; row < matrix.rows; ++row)
        to[column * matrix.stride + row] =
            converted<decltype(element)>(from[column * matrix.rows + row]);
  });
}

// to = alpha * op_a(a) * op_b(b) + beta * to; `k` is the length of the sums.
template <class T>
void multiply(char op_a, char op_b, i64 k, T alpha, const Given& a, const Given& b, T beta, T* to,
              i64 rows, i64 columns, i64 stride) {
  std::vector<T> room_a, room_b;
  i64 lda = 1, ldb = 1;
  const T* from_a = loaded<T>(a, room_a, lda);
  const T* from_b = loaded<T>(b, room_b, ldb);
  blas<T>("gemm", &op_a, &op_b, &rows, &columns, &k, &alpha, from_a, &lda, from_b, &ldb, &beta, to,
          &stride);
}

// The product for a result of any type, rounded once.
template <class T>
void multiply(char op_a, char op_b, i64 k, T alpha, const Given& a, const Given& b, T beta,
              const Result& to) {
  if (to.type == code_of<T>()) {
    return multiply(op_a, op_b, k, alpha, a, b, beta, static_cast<T*>(to.data), to.rows, to.columns,
                    to.stride);
  }
  std::vector<T> room(static_cast<std::size_t>(to.rows * to.columns));
  if (beta != T{}) {
    i64 stride = 0;
    loaded<T>({to.type, to.data, to.rows, to.columns, to.stride}, room, stride);
  }
  multiply(op_a, op_b, k, alpha, a, b, beta, room.data(), to.rows, to.columns,
           std::max<i64>(1, to.rows));
  store(room.data(), to);
}

// The type of a product's computation, and that of alpha and beta, from cublasComputeType_t and the
// types of the matrices. Throws Failed(`refused`) for a combination without one.
struct Computed {
  int type, scale;
};
Computed computed_in(int compute, int type_a, int type_b, int type_c, int refused);

// Calls `body` with a value of a computation's type.
template <class Body>
auto with_computed(int type, Body&& body) {
  switch (type) {
    case kFloat: return body(float{});
    case kComplex: return body(Complex{});
    case kDoubleComplex: return body(DoubleComplex{});
    default: return body(double{});
  }
}

}  // namespace workbench::host
