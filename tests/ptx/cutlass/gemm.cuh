// d = a b^T of CUTLASS 3 for sm_90: a [M, K], b [N, K] fp16, d [M, N] fp32. Macros choose the schedule and the cluster,
// and with SPARSE_A, that half of a is stored.
#pragma once
#ifdef __CUDACC_RTC__  // what CUTLASS takes from the C++ standard library, and NVRTC has under another name
#include <cuda/std/type_traits>
namespace std {
using cuda::std::is_pointer_v;
using cuda::std::void_t;
}  // namespace std
#endif
#include <cute/tensor.hpp>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>

using Sm90 = cutlass::arch::Sm90;
using TensorOp = cutlass::arch::OpClassTensorOp;
using Half = cutlass::half_t;
using Rows = cutlass::layout::RowMajor;
using Columns = cutlass::layout::ColumnMajor;
#if SPARSE_A
using OfMainloop = cutlass::arch::OpClassSparseTensorOp;
#else
using OfMainloop = TensorOp;
#endif
using TileShape = cute::Shape<cute::Int<TILE_M>, cute::_64, cute::Int<64 * (1 + SPARSE_A)>>;
using ClusterShape = cute::Shape<cute::Int<CLUSTER>, cute::_1, cute::_1>;

using Epilogue = cutlass::epilogue::collective::CollectiveBuilder<
    Sm90, TensorOp, TileShape, ClusterShape, cutlass::epilogue::collective::EpilogueTileAuto, float, float, void, Rows,
    4, float, Rows, 4, cutlass::epilogue::EPILOGUE>::CollectiveOp;
using Mainloop = cutlass::gemm::collective::CollectiveBuilder<
    Sm90, OfMainloop, Half, Rows, 8, Half, Columns, 8, float, TileShape, ClusterShape,
    cutlass::gemm::collective::StageCount<3>, cutlass::gemm::SCHEDULE>::CollectiveOp;
using Gemm = cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Mainloop, Epilogue>;
