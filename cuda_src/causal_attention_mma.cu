// Causal attention on tensor cores: one block per (BLOCK_M queries, head, sequence), which reads the keys and values up
// to its last query a tile of BLOCK_N tokens at a time and keeps maxima, sums and output in registers. Tiles are copied
// ahead into NUM_STAGES stages that all warps share; scores do not wait for values. A warp has whole rows of scores.
//
//   output      [num_seqs, num_heads, num_queries, HEAD_SIZE]
//   lse         [num_seqs, num_heads, num_queries] fp32: the logarithm of the sum of exp(score); null for none
//   query       [num_seqs, num_heads, num_queries, HEAD_SIZE]       by its strides, in elements, multiples of 8
//   key, value  [num_seqs, num_heads / group, num_tokens, HEAD_SIZE]             likewise
//   query_lens, seq_lens [num_seqs]: of the queries and tokens those that are no padding; null for all
//
// The queries of a sequence are the last of its tokens. Rows of padding get zeros, and minus infinity in lse.
//
// Tunables: BLOCK_M queries, BLOCK_N tokens per tile, NUM_STAGES tiles that are under way or in use, NUM_THREADS. Idea:
// FlashAttention-2 (Dao, 2023): rows split over warps, weights that stay in registers, one division at the end.
#include "common/exponentials.cuh"
#include "common/reductions.cuh"
#include "common/tensor_cores.cuh"
#include "common/vectors.cuh"

#ifndef SCALAR
#define SCALAR __half
#define HEAD_SIZE 64
#define BLOCK_M 64
#define BLOCK_N 64
#define NUM_STAGES 2
#define NUM_THREADS 128
#endif

using Scalar = SCALAR;
constexpr int NUM_WARPS = NUM_THREADS / WARP_SIZE, WARP_ROWS = BLOCK_M / NUM_WARPS, ROW_TILES = WARP_ROWS / 16;
constexpr int HEAD_STEPS = (HEAD_SIZE + 15) / 16, CHUNKS = 2 * HEAD_STEPS;  // of a product; of 16 bytes
constexpr int QUERY_BYTES = BLOCK_M * CHUNKS * 16, TILE_BYTES = BLOCK_N * CHUNKS * 16;
constexpr bool QUERIES_STAY = ROW_TILES * HEAD_STEPS <= 8;  // in registers, if they are few
constexpr int PENDING = 2 * (NUM_STAGES - 1) - 1;  // groups of copies younger than the one that is waited for
// Few sums leave room for 12 warps, at 168 registers; left alone, ptxas may take more, or fewer and spill.
constexpr bool FEW_SUMS = ROW_TILES * (12 * HEAD_STEPS + BLOCK_N / 2) <= 80;
constexpr int MIN_BLOCKS = FEW_SUMS && NUM_WARPS <= 12 ? 12 / NUM_WARPS : 1;
constexpr float LOG2_E = 1.4426950408889634f, LN_2 = 0.6931471805599453f;

// Start copying ROWS rows by all threads. Rows from `count` on become zeros, so that no NaN of padding comes in.
template <int ROWS>
__device__ __forceinline__ void copy_rows(unsigned tile, const Scalar* rows, long long stride, int count) {
  constexpr int COPIES = (ROWS * CHUNKS + NUM_THREADS - 1) / NUM_THREADS;
#pragma unroll(COPIES <= 8 ? COPIES : 4)  // of many at once the addresses would take too many registers
  for (int i = 0; i < ROWS * CHUNKS; i += NUM_THREADS) {
    const int row = (i + threadIdx.x) / CHUNKS, chunk = (i + threadIdx.x) % CHUNKS;
    if (ROWS * CHUNKS % NUM_THREADS && row >= ROWS) break;
    const bool inside = row < count && chunk * 8 < HEAD_SIZE;
    copy_async<16>(tile + swizzled<CHUNKS>(row, chunk), rows + (inside ? row * stride + chunk * 8 : 0),
                   inside ? 16 : 0);
  }
}

extern "C" __global__ void __launch_bounds__(NUM_THREADS, MIN_BLOCKS)
causal_attention_mma(Scalar* __restrict__ output, float* __restrict__ lse, const Scalar* __restrict__ query,
                     const Scalar* __restrict__ key, const Scalar* __restrict__ value,
                     const int* __restrict__ query_lens, const int* __restrict__ seq_lens, float scale, int num_queries,
                     int num_tokens, int group, long long query_seq_stride, long long query_head_stride,
                     long long query_token_stride, long long key_seq_stride, long long key_head_stride,
                     long long key_token_stride, long long value_seq_stride, long long value_head_stride,
                     long long value_token_stride) {
  const int head = blockIdx.y, seq = blockIdx.z, warp = threadIdx.x / WARP_SIZE, lane = threadIdx.x % WARP_SIZE;
  const int first_row = (gridDim.x - 1 - blockIdx.x) * BLOCK_M;  // the blocks with most to do come first
  const int query_len = query_lens ? query_lens[seq] : num_queries, seq_len = seq_lens ? seq_lens[seq] : num_tokens;
  const int num_rows = min(query_len - first_row, BLOCK_M);  // 0 or less: nothing but padding
  const int position = seq_len - query_len + first_row;      // of the first query among the tokens
  const int end = num_rows > 0 ? position + num_rows : 0;    // of the tokens that are seen
  const int num_tiles = (end + BLOCK_N - 1) / BLOCK_N;

  extern __shared__ __align__(128) unsigned char tiles[];  // queries, then [NUM_STAGES][K, V]
  const unsigned query_tile = shared_address(tiles), stages = query_tile + QUERY_BYTES;

  // 1. Load the queries, padded with zeros, and the first tiles.
  const Scalar* queries_of_head = query + seq * query_seq_stride + head * query_head_stride;
  copy_rows<BLOCK_M>(query_tile, queries_of_head + first_row * query_token_stride, query_token_stride, num_rows);
  commit_copies();
  const Scalar* keys = key + seq * key_seq_stride + head / group * key_head_stride;
  const Scalar* values = value + seq * value_seq_stride + head / group * value_head_stride;
  const auto copy_keys = [&](int stage, int tile) {
    const int start = tile * BLOCK_N;
    if (tile < num_tiles)
      copy_rows<BLOCK_N>(stages + 2 * stage * TILE_BYTES, keys + start * key_token_stride, key_token_stride,
                         end - start);
    commit_copies();  // also of nothing, so that the count of groups stays right
  };
  const auto copy_values = [&](int stage, int tile) {
    const int start = tile * BLOCK_N;
    if (tile < num_tiles)
      copy_rows<BLOCK_N>(stages + (2 * stage + 1) * TILE_BYTES, values + start * value_token_stride,
                         value_token_stride, end - start);
    commit_copies();
  };
#pragma unroll
  for (int tile = 0; tile < NUM_STAGES - 1; ++tile) {
    copy_keys(tile, tile);
    copy_values(tile, tile);
  }

  // Row and chunk of the lane in a 16x16 piece of four 8x8 matrices: rows first for queries and values, chunks first
  // for keys, whose rows are the columns of a product.
  const int row_of_lane = lane % 16, chunk_of_lane = lane / 16;
  const int token_of_lane = lane / 16 * 8 + lane % 8, key_chunk_of_lane = lane / 8 % 2;
  unsigned queries[ROW_TILES][HEAD_STEPS][4];
  const auto load_queries = [&](int step) {
#pragma unroll
    for (int r = 0; r < ROW_TILES; ++r)
      load_matrices(queries[r][step], query_tile + swizzled<CHUNKS>(warp * WARP_ROWS + 16 * r + row_of_lane,
                                                                    2 * step + chunk_of_lane));
  };
  wait_for_copies<2 * (NUM_STAGES - 1)>();
  __syncthreads();  // the queries of every thread are here
#pragma unroll
  for (int step = 0; step < HEAD_STEPS; ++step)
    if (QUERIES_STAY) load_queries(step);

  const float factor = scale * LOG2_E;
  float max_score[ROW_TILES][2], sum[ROW_TILES][2] = {}, out[ROW_TILES][2 * HEAD_STEPS][4] = {};
#pragma unroll
  for (int r = 0; r < ROW_TILES; ++r) max_score[r][0] = max_score[r][1] = -infinity();
#pragma unroll 1
  for (int tile = 0, stage = 0, free_stage = NUM_STAGES - 1; tile < num_tiles; ++tile) {
    const unsigned key_tile = stages + 2 * stage * TILE_BYTES, value_tile = key_tile + TILE_BYTES;
    const int start = tile * BLOCK_N;
    wait_for_copies<PENDING>();
    __syncthreads();  // the keys of every thread are here, and the tile before is done with
    copy_keys(free_stage, tile + NUM_STAGES - 1);

    // 2. Score: queries [16, 16] times keys [16, 8 tokens], a lane holds two tokens of rows lane / 4 and lane / 4 + 8.
    float score[ROW_TILES][BLOCK_N / 8][4] = {};
#pragma unroll
    for (int step = 0; step < HEAD_STEPS; ++step) {
      if (!QUERIES_STAY) load_queries(step);
#pragma unroll
      for (int n = 0; n < BLOCK_N / 8; n += 2) {
        unsigned piece[4];
        load_matrices(piece, key_tile + swizzled<CHUNKS>(8 * n + token_of_lane, 2 * step + key_chunk_of_lane));
#pragma unroll
        for (int r = 0; r < ROW_TILES; ++r) {
          multiply_add<Scalar>(score[r][n], queries[r][step], piece[0], piece[1]);
          multiply_add<Scalar>(score[r][n + 1], queries[r][step], piece[2], piece[3]);
        }
      }
    }
    const bool on_diagonal = start + BLOCK_N - 1 > position + warp * WARP_ROWS;  // some row does not see all of it
#pragma unroll
    for (int r = 0; r < ROW_TILES; ++r) {
      const int seen = position + warp * WARP_ROWS + 16 * r + lane / 4 - (start + lane % 4 * 2);
#pragma unroll
      for (int n = 0; n < BLOCK_N / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          score[r][n][e] *= factor;
          if (on_diagonal && 8 * n + e % 2 > seen + e / 2 * 8) score[r][n][e] = -infinity();
        }
      }
    }

    // 3. Rescale what was summed under the old maximum. Every row sees token 0, so that the new one is finite.
#pragma unroll
    for (int r = 0; r < ROW_TILES; ++r) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float new_max = max_score[r][half];
#pragma unroll
        for (int n = 0; n < BLOCK_N / 8; ++n)
          new_max = fmaxf(new_max, fmaxf(score[r][n][2 * half], score[r][n][2 * half + 1]));
        new_max = max_over_lanes<1, 4>(new_max);
        const float rescale = exp2_or_zero(max_score[r][half] - new_max);
        max_score[r][half] = new_max;
        sum[r][half] *= rescale;
#pragma unroll
        for (int n = 0; n < BLOCK_N / 8; ++n) {
#pragma unroll
          for (int e = 2 * half; e < 2 * half + 2; ++e) {
            score[r][n][e] = exp2_or_zero(score[r][n][e] - new_max);
            sum[r][half] += score[r][n][e];
          }
        }
#pragma unroll
        for (int d = 0; d < 2 * HEAD_STEPS; ++d) out[r][d][2 * half] *= rescale, out[r][d][2 * half + 1] *= rescale;
      }
    }

    // 4. Accumulate: weights [16, 16 tokens] times values [16 tokens, 8 of the head]. The weights already lie in
    //    registers as the product wants them.
    wait_for_copies<PENDING>();
    __syncthreads();  // the values of every thread are here
    copy_values(free_stage, tile + NUM_STAGES - 1);
#pragma unroll
    for (int n = 0; n < BLOCK_N / 8; n += 2) {
      unsigned weights[ROW_TILES][4];
#pragma unroll
      for (int r = 0; r < ROW_TILES; ++r) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
          weights[r][i] = pack<Scalar>(score[r][n + i / 2][i % 2 * 2], score[r][n + i / 2][i % 2 * 2 + 1]);
      }
#pragma unroll
      for (int step = 0; step < HEAD_STEPS; ++step) {
        unsigned piece[4];
        load_matrices_transposed(piece, value_tile + swizzled<CHUNKS>(8 * n + row_of_lane, 2 * step + chunk_of_lane));
#pragma unroll
        for (int r = 0; r < ROW_TILES; ++r) {
          multiply_add<Scalar>(out[r][2 * step], weights[r], piece[0], piece[1]);
          multiply_add<Scalar>(out[r][2 * step + 1], weights[r], piece[2], piece[3]);
        }
      }
    }
    free_stage = stage;
    stage = stage + 1 < NUM_STAGES ? stage + 1 : 0;
  }

  // 5. Reduce over the lanes of a row and divide. A warp's output takes the place of its queries, to leave in whole
  //    16-byte chunks.
  const long long first_place = ((long long)seq * gridDim.y + head) * num_queries + first_row;
  const int rows_to_write = min(num_queries - first_row, BLOCK_M);
  __syncwarp();
#pragma unroll
  for (int r = 0; r < ROW_TILES; ++r) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = warp * WARP_ROWS + 16 * r + 8 * half + lane / 4;
      const float total = sum_over_lanes<1, 4>(sum[r][half]), share = __fdividef(1.f, total);
#pragma unroll
      for (int d = 0; d < 2 * HEAD_STEPS; ++d) {
        const unsigned pair = pack<Scalar>(out[r][d][2 * half] * share, out[r][d][2 * half + 1] * share);
        *reinterpret_cast<unsigned*>(tiles + swizzled<CHUNKS>(row, d) + lane % 4 * 4) = row < num_rows ? pair : 0u;
      }
      if (lse && lane % 4 == 0 && row < rows_to_write)
        lse[first_place + row] = row < num_rows ? (max_score[r][half] + __log2f(total)) * LN_2 : -infinity();
    }
  }
  __syncwarp();
  constexpr int ROW_CHUNKS = HEAD_SIZE / 8;
  for (int i = lane; i < WARP_ROWS * ROW_CHUNKS; i += WARP_SIZE) {
    const int row = warp * WARP_ROWS + i / ROW_CHUNKS, chunk = i % ROW_CHUNKS;
    if (row < rows_to_write)
      __stwb(reinterpret_cast<uint4*>(output + (first_place + row) * HEAD_SIZE) + chunk,
             *reinterpret_cast<const uint4*>(tiles + swizzled<CHUNKS>(row, chunk)));
  }
}
