// Attention of new tokens over a paged cache, on tensor cores, for prompts, pieces of prompts and
// decode steps in one launch: one block per (tile of BLOCK_M rows, KV head). A row is one query
// head of one new token. The GROUP heads that share a KV head and BLOCK_Q tokens of one sequence
// are packed into a tile, so that a block reads each key and value that they see once, BLOCK_N
// tokens at a time, and keeps maxima, sums and output in registers.
//
//   output        [num_tokens, num_heads, HEAD_SIZE]
//   query         [num_tokens, num_heads, HEAD_SIZE]           rows query_stride apart, on 16 bytes
//   key_cache, value_cache   "nhd" [num_blocks, BLOCK_SIZE, num_kv_heads, HEAD_SIZE] or
//                            "hnd" [num_blocks, num_kv_heads, BLOCK_SIZE, HEAD_SIZE]; pages
//                            *_page_stride apart
//   block_tables  [num_seqs, max_blocks], seq_lens [num_seqs]
//   cu_seqlens_q  [num_seqs + 1]: where the new tokens of a sequence, the last of its tokens, start
//   in query sinks [num_heads], tree_mask [num_tokens] int64: null where not used
//
// Tunables: BLOCK_M rows, BLOCK_N tokens per tile, BLOCK_SIZE tokens per page, NUM_STAGES tiles
// that are under way or in use, NUM_THREADS. Idea: FlashAttention-2 (Dao, 2023) for rows split over
// warps, vLLM's unified attention for the packed group and for tiles that are numbered without
// knowing lengths.
#include "common/exponentials.cuh"
#include "common/packed_rows.cuh"

#ifndef SCALAR
#define SCALAR __half
#define HEAD_SIZE 128
#define GROUP 4
#define TREE 0
#define BLOCK_M 64
#define BLOCK_N 32
#define BLOCK_SIZE 16
#define NUM_STAGES 2
#define NUM_THREADS 128
#endif

using Scalar = SCALAR;
constexpr int NUM_WARPS = NUM_THREADS / WARP_SIZE, WARP_ROWS = BLOCK_M / NUM_WARPS, ROW_TILES = WARP_ROWS / 16;
constexpr int BLOCK_Q = BLOCK_M / GROUP;  // tokens of a tile
// Steps of a product along the head, and chunks of 16 bytes in a row.
constexpr int HEAD_STEPS = (HEAD_SIZE + 15) / 16, CHUNKS = 2 * HEAD_STEPS;
constexpr int QUERY_BYTES = BLOCK_M * CHUNKS * 16;
constexpr bool QUERIES_STAY = ROW_TILES * HEAD_STEPS <= 8;  // in registers, if they are few
using Pair = PagedPair<Scalar, HEAD_SIZE, BLOCK_SIZE, BLOCK_N, NUM_THREADS>;
constexpr int NO_WINDOW = 0x7fffffff;
constexpr float LOG2_E = 1.4426950408889634f;

extern "C" __global__ void __launch_bounds__(NUM_THREADS)
    paged_prefill_packed(Scalar* __restrict__ output, const Scalar* __restrict__ query,
                         const Scalar* __restrict__ key_cache, const Scalar* __restrict__ value_cache,
                         const int* __restrict__ block_tables, const int* __restrict__ seq_lens,
                         const int* __restrict__ cu_seqlens_q, const float* __restrict__ sinks,
                         const long long* __restrict__ tree_mask, float scale, float soft_cap, int sliding_window,
                         int num_seqs, int table_stride, long long query_stride, long long key_page_stride,
                         long long value_page_stride, int head_stride, int token_stride) {
  const int kv_head = blockIdx.y, first_head = kv_head * GROUP, num_heads = gridDim.y * GROUP;
  const int warp = threadIdx.x / WARP_SIZE, lane = threadIdx.x % WARP_SIZE;
  const int seq = sequence_of<BLOCK_Q>(cu_seqlens_q, num_seqs, blockIdx.x);
  const int start_of_seq = cu_seqlens_q[seq], query_len = cu_seqlens_q[seq + 1] - start_of_seq;
  // The tile's first token among the new ones, and how many it has.
  const int first_new = ((int)blockIdx.x - start_of_seq / BLOCK_Q - seq) * BLOCK_Q;
  const int num_new = min(query_len - first_new, BLOCK_Q);
  if (num_new <= 0) return;
  const int context = seq_lens[seq] - query_len, num_rows = num_new * GROUP;
  const int window = sliding_window > 0 ? sliding_window : NO_WINDOW;
  const bool tree = TREE && query_len <= MOST_DRAFTS;
  // Tokens [begin, end) are seen by some row. A draft's position is at least that of the first new token.
  const int begin = max(context + (tree ? 0 : first_new) - window + 1, 0), end = context + first_new + num_new;
  const int first_tile = begin / BLOCK_N, num_tiles = (end + BLOCK_N - 1) / BLOCK_N;

  extern __shared__ __align__(128) unsigned char tiles[];  // queries, then [NUM_STAGES][K, V]
  const unsigned query_tile = shared_address(tiles), stages = query_tile + QUERY_BYTES;

  // 1. Load the queries, padded with zeros, and the first tiles.
  const Scalar* queries_of_tile = query + (start_of_seq + first_new) * query_stride + first_head * HEAD_SIZE;
  for (int i = threadIdx.x; i < BLOCK_M * CHUNKS; i += NUM_THREADS) {
    const int row = i / CHUNKS, chunk = i % CHUNKS;
    const bool inside = row < num_rows && chunk * 8 < HEAD_SIZE;
    const long long place = row / GROUP * query_stride + row % GROUP * HEAD_SIZE + chunk * 8;
    copy_async<16>(query_tile + swizzled<CHUNKS>(row, chunk), queries_of_tile + (inside ? place : 0), inside ? 16 : 0);
  }
  const Scalar *keys = key_cache + kv_head * head_stride, *values = value_cache + kv_head * head_stride;
  const int* table = block_tables + (long long)seq * table_stride;
  const Pair pair{keys, values, table, key_page_stride, value_page_stride, token_stride, begin, end};
  const auto copy_tile = [&](int stage, int tile) {
    if (tile < num_tiles) pair.copy(stages + 2 * stage * Pair::BYTES, tile * BLOCK_N);
    commit_copies();  // also of nothing, so that the count of groups stays right
  };
#pragma unroll
  for (int stage = 0; stage < NUM_STAGES - 1; ++stage) copy_tile(stage, first_tile + stage);

  // Row and chunk of the lane in a 16x16 piece of four 8x8 matrices: rows first for queries and values, chunks first
  // for keys, whose rows are the columns of a product.
  const int row_of_lane = lane % 16, chunk_of_lane = lane / 16;
  const int token_of_lane = lane / 16 * 8 + lane % 8, key_chunk_of_lane = lane / 8 % 2;
  const bool has_rows = warp * WARP_ROWS < num_rows;  // of a decode step only the first warp has
  unsigned queries[ROW_TILES][HEAD_STEPS][4];
  const auto load_queries = [&](int step) {
#pragma unroll
    for (int r = 0; r < ROW_TILES; ++r)
      load_matrices(queries[r][step],
                    query_tile + swizzled<CHUNKS>(warp * WARP_ROWS + 16 * r + row_of_lane, 2 * step + chunk_of_lane));
  };

  const long long* masks = tree ? tree_mask + start_of_seq : nullptr;
  // A row of padding sees what the last token does.
  const auto new_of_row = [&](int row) { return first_new + min(row / GROUP, num_new - 1); };
  NewToken<TREE> token_of_row[ROW_TILES][2];
#pragma unroll
  for (int r = 0; r < ROW_TILES; ++r) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
      token_of_row[r][half].place(context, new_of_row(warp * WARP_ROWS + 16 * r + 8 * half + lane / 4), masks);
  }
  // Every row of the warp sees the tokens before the one and after the other.
  const int all_see = tree ? context : context + new_of_row(warp * WARP_ROWS) + 1;
  const int all_look_back = context + new_of_row(warp * WARP_ROWS + WARP_ROWS - 1) - window;

  const float factor = scale * (soft_cap > 0.f ? 1.f / soft_cap : LOG2_E);
  float max_score[ROW_TILES][2], sum[ROW_TILES][2] = {}, out[ROW_TILES][2 * HEAD_STEPS][4] = {};
#pragma unroll
  for (int r = 0; r < ROW_TILES; ++r) max_score[r][0] = max_score[r][1] = -infinity();
#pragma unroll 1
  for (int tile = first_tile, stage = 0, free_stage = NUM_STAGES - 1; tile < num_tiles; ++tile) {
    const unsigned key_tile = stages + 2 * stage * Pair::BYTES, value_tile = key_tile + Pair::BYTES;
    const int start = tile * BLOCK_N;
    wait_for_copies<NUM_STAGES - 2>();
    __syncthreads();  // the tile of every thread is here, and the one before is done with
    copy_tile(free_stage, tile + NUM_STAGES - 1);
    free_stage = stage;
    stage = stage + 1 < NUM_STAGES ? stage + 1 : 0;
    if (!has_rows) continue;
    if (QUERIES_STAY && tile == first_tile) {
#pragma unroll
      for (int step = 0; step < HEAD_STEPS; ++step) load_queries(step);
    }

    // 2. Score: queries [16, 16] times keys [16, 8 tokens], a lane holds two tokens of rows lane /
    // 4 and lane / 4 + 8.
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
    const bool partly_seen = start + BLOCK_N > all_see || start <= all_look_back;
#pragma unroll
    for (int r = 0; r < ROW_TILES; ++r) {
#pragma unroll
      for (int n = 0; n < BLOCK_N / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          score[r][n][e] *= factor;
          if (soft_cap > 0.f) score[r][n][e] = soft_cap * LOG2_E * tanh_of(score[r][n][e]);
          const int token = start + 8 * n + lane % 4 * 2 + e % 2;
          if (partly_seen && !token_of_row[r][e / 2].sees(token, context, window)) score[r][n][e] = -infinity();
        }
      }
    }

    // 3. Rescale what was summed under the old maximum. A row may have seen nothing yet: in a
    // window that begins
    //    later, or of drafts alone.
#pragma unroll
    for (int r = 0; r < ROW_TILES; ++r) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float new_max = max_score[r][half];
#pragma unroll
        for (int n = 0; n < BLOCK_N / 8; ++n)
          new_max = fmaxf(new_max, fmaxf(score[r][n][2 * half], score[r][n][2 * half + 1]));
        new_max = max_over_lanes<1, 4>(new_max);
        const float under = new_max == -infinity() ? 0.f : new_max;
        const float rescale = exp2_or_zero(max_score[r][half] - under);
        max_score[r][half] = new_max;
        sum[r][half] *= rescale;
#pragma unroll
        for (int n = 0; n < BLOCK_N / 8; ++n) {
#pragma unroll
          for (int e = 2 * half; e < 2 * half + 2; ++e) {
            score[r][n][e] = exp2_or_zero(score[r][n][e] - under);
            sum[r][half] += score[r][n][e];
          }
        }
#pragma unroll
        for (int d = 0; d < 2 * HEAD_STEPS; ++d) out[r][d][2 * half] *= rescale, out[r][d][2 * half + 1] *= rescale;
      }
    }

    // 4. Accumulate: weights [16, 16 tokens] times values [16 tokens, 8 of the head]. The weights
    // already lie in
    //    registers as the product wants them.
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
  }

  // 5. Reduce over the lanes of a row and divide. A warp's output takes the place of its queries,
  // to leave in whole
  //    16-byte chunks.
  if (!has_rows) return;
  __syncwarp();
#pragma unroll
  for (int r = 0; r < ROW_TILES; ++r) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = warp * WARP_ROWS + 16 * r + 8 * half + lane / 4;
      float total = sum_over_lanes<1, 4>(sum[r][half]);
      if (sinks) total += exp2f(sinks[first_head + row % GROUP] * LOG2_E - max_score[r][half]);
      const float share = __fdividef(1.f, total);
#pragma unroll
      for (int d = 0; d < 2 * HEAD_STEPS; ++d)
        *reinterpret_cast<unsigned*>(tiles + swizzled<CHUNKS>(row, d) + lane % 4 * 4) =
            pack<Scalar>(out[r][d][2 * half] * share, out[r][d][2 * half + 1] * share);
    }
  }
  __syncwarp();
  constexpr int ROW_CHUNKS = HEAD_SIZE / 8;
  for (int i = lane; i < WARP_ROWS * ROW_CHUNKS; i += WARP_SIZE) {
    const int row = warp * WARP_ROWS + i / ROW_CHUNKS, chunk = i % ROW_CHUNKS;
    const long long token = start_of_seq + first_new + row / GROUP;
    if (row < num_rows)
      __stwb(reinterpret_cast<uint4*>(output + (token * num_heads + first_head + row % GROUP) * HEAD_SIZE) + chunk,
             *reinterpret_cast<const uint4*>(tiles + swizzled<CHUNKS>(row, chunk)));
  }
}
