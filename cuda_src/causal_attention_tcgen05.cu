// Causal attention as Blackwell's is written: one block per (BLOCK_M queries, head, sequence). One thread copies tiles
// of BLOCK_N keys and values (TMA), one asks for all products (tcgen05), whose scores and output are in tensor memory,
// a query in each of its lanes. A softmax thread per query turns its scores into weights, which take their place there
// as an operand of the product with the values. Other warps rescale the output where a row's maximum has grown. Of two
// groups of 128 queries one's softmax runs beneath the other's products.
//
//   output      [num_seqs, num_heads, num_queries, HEAD_SIZE]
//   lse         [num_seqs, num_heads, num_queries] fp32: the logarithm of the sum of exp(score); null for none
//   query, key, value: tensor maps of [num_seqs, num_heads (of key and value / group), num_queries or num_tokens,
//               HEAD_SIZE] with boxes of 128 or BLOCK_N rows by 64 elements in the 128-byte swizzle
//   query_lens, seq_lens [num_seqs]: of the queries and tokens those that are no padding; null for all
//
// The queries of a sequence are the last of its tokens. Rows of padding get zeros, and minus infinity in lse.
//
// Tunables: BLOCK_M queries, a group for each 128; BLOCK_N tokens per tile; NUM_STAGES tiles that are under way or in
// use; RESCALE_ABOVE: weights may reach 2^RESCALE_ABOVE before the output is rescaled to a row's new maximum. Idea:
// FlashAttention-4 (Zadouri et al., 2026).
#include "common/blackwell.cuh"
#include "common/exponentials.cuh"
#include "common/packing.cuh"
#include "common/reductions.cuh"

#ifndef SCALAR
#define SCALAR __half
#define HEAD_SIZE 64
#define BLOCK_M 256
#define BLOCK_N 128
#define NUM_STAGES 2
#define RESCALE_ABOVE 8
#endif

using Scalar = SCALAR;
constexpr int GROUP_THREADS = 128, GROUP_ROWS = 128, NUM_GROUPS = BLOCK_M / GROUP_ROWS, GROUP_WARPS = 4;
constexpr int CORRECTION = NUM_GROUPS * GROUP_THREADS, ISSUE = CORRECTION + GROUP_THREADS;
constexpr int NUM_THREADS = ISSUE + GROUP_THREADS;
constexpr int COLUMNS = 64, PARTS = HEAD_SIZE / COLUMNS;  // a tile has rows of 128 bytes, and of larger heads several
constexpr int QUERY_PART = GROUP_ROWS * COLUMNS, TILE_PART = BLOCK_N * COLUMNS, TILE = PARTS * TILE_PART;
constexpr int OUTPUT_COLUMN = NUM_GROUPS * BLOCK_N;  // of tensor memory, behind the scores of all groups
constexpr int TENSOR_COLUMNS = columns_to_allocate(OUTPUT_COLUMN + NUM_GROUPS * HEAD_SIZE);
constexpr unsigned SCORES = product_shape<Scalar>(GROUP_ROWS, BLOCK_N);
constexpr unsigned OUTPUT = product_shape<Scalar>(GROUP_ROWS, HEAD_SIZE, true);
// Of one group two blocks share a multiprocessor where they can: one's softmax runs beneath the other's products.
constexpr int BLOCKS = NUM_GROUPS == 1 && HEAD_SIZE <= 128 && BLOCK_N == 64 ? 2 : 1;
constexpr int SOFTMAX_REGISTERS = NUM_GROUPS == 2 ? 184 : BLOCKS == 2 ? 128 : 240;
constexpr int CORRECTION_REGISTERS = NUM_GROUPS == 2 ? 72 : BLOCKS == 2 ? 48 : 128;
constexpr int ISSUE_REGISTERS = NUM_GROUPS == 2 ? 72 : BLOCKS == 2 ? 64 : 128;
constexpr float LOG2_E = 1.4426950408889634f, LN_2 = 0.6931471805599453f;

// Where 16 bytes of the head lie in a group's rows, in bytes, as the 128-byte swizzle has them.
__device__ __forceinline__ int place(int row, int chunk) {
  return chunk / 8 * QUERY_PART * 2 + row * 128 + (chunk % 8 ^ row % 8) * 16;
}
// All lanes have done what this warp's arrival tells of.
__device__ __forceinline__ void arrive_for_warp(Barrier& barrier) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) arrive(barrier);
}

extern "C" __global__ void __launch_bounds__(NUM_THREADS, BLOCKS)
causal_attention_tcgen05(Scalar* __restrict__ output, float* __restrict__ lse, const __grid_constant__ TensorMap query,
                         const __grid_constant__ TensorMap key, const __grid_constant__ TensorMap value,
                         const int* __restrict__ query_lens, const int* __restrict__ seq_lens, float scale,
                         int num_queries, int num_tokens, int group_size) {
  const int head = blockIdx.y, seq = blockIdx.z, first_row = (gridDim.x - 1 - blockIdx.x) * BLOCK_M;
  const int query_len = query_lens ? query_lens[seq] : num_queries, seq_len = seq_lens ? seq_lens[seq] : num_tokens;
  const int num_rows = min(query_len - first_row, BLOCK_M);  // 0 or less: nothing but padding
  const int position = seq_len - query_len + first_row;      // of the first query among the tokens
  const auto tiles_of = [&](int group) {  // that some row of the group sees
    const int rows = min(num_rows, (group + 1) * GROUP_ROWS);
    return rows > group * GROUP_ROWS ? (position + rows + BLOCK_N - 1) / BLOCK_N : 0;
  };
  const int last_group = num_rows > 0 ? (num_rows - 1) / GROUP_ROWS : 0, num_tiles = tiles_of(last_group);
  const long long first_place = ((long long)seq * gridDim.y + head) * num_queries + first_row;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  extern __shared__ __align__(1024) unsigned char shared[];
  Scalar* queries = reinterpret_cast<Scalar*>(shared);          // [NUM_GROUPS][PARTS][GROUP_ROWS][COLUMNS]
  Scalar* keys = queries + NUM_GROUPS * PARTS * QUERY_PART;     // [NUM_STAGES][PARTS][BLOCK_N][COLUMNS]
  Scalar* values = keys + NUM_STAGES * TILE;                    // likewise
  __shared__ Barrier queries_full, keys_full[NUM_STAGES], values_full[NUM_STAGES];
  __shared__ Barrier keys_empty[NUM_STAGES], values_empty[NUM_STAGES], last_values;
  __shared__ Barrier scores_full[NUM_GROUPS], factors_full[NUM_GROUPS], weights_full[NUM_GROUPS];
  __shared__ Barrier shares_full[NUM_GROUPS], output_full[NUM_GROUPS], output_read;
  __shared__ float factors[NUM_GROUPS][GROUP_ROWS], shares[NUM_GROUPS][GROUP_ROWS];
  __shared__ unsigned tensor_memory;
  if (threadIdx.x == 0) {
    init(queries_full, 1), init(last_values, 1), init(output_read, GROUP_WARPS);
    for (int stage = 0; stage < NUM_STAGES; ++stage) {
      init(keys_full[stage], 1), init(values_full[stage], 1);
      init(keys_empty[stage], 1), init(values_empty[stage], 1);
    }
    for (int group = 0; group < NUM_GROUPS; ++group) {
      init(scores_full[group], 1), init(output_full[group], 1);
      init(factors_full[group], GROUP_WARPS), init(shares_full[group], GROUP_WARPS);
      init(weights_full[group], 2 * GROUP_WARPS);  // of the softmax and of the correction
    }
    fence_init();
  }
  if (warp == ISSUE / 32) allocate_columns<TENSOR_COLUMNS>(tensor_memory);
  __syncthreads();
  const unsigned columns = tensor_memory;

  if (threadIdx.x >= ISSUE) {
    give_registers<ISSUE_REGISTERS>();
    // 1. Load the queries, then keys and values, each tile as soon as its stage is empty.
    if (warp == ISSUE / 32 + 1 && num_tiles > 0) {
      const int kv_head = head / group_size;
      const int left = seq_len - (num_tiles - 1) * BLOCK_N;         // tokens of the last tile
      const bool padding = left < BLOCK_N && seq_len < num_tokens;  // past num_tokens the copy itself writes zeros
      if (lane == 0) {
        arrive_and_expect(queries_full, NUM_GROUPS * PARTS * QUERY_PART * 2);
        for (int i = 0; i < NUM_GROUPS * PARTS; ++i)
          load_tile(queries + i * QUERY_PART, query, i % PARTS * COLUMNS, first_row + i / PARTS * GROUP_ROWS, head,
                    seq, queries_full);
        const auto copy = [&](Scalar* tile, const TensorMap& map, int start, Barrier& full) {
          arrive_and_expect(full, TILE * 2);
          for (int part = 0; part < PARTS; ++part)
            load_tile(tile + part * TILE_PART, map, part * COLUMNS, start, kv_head, seq, full);
        };
        int stage = 0, parity = 0;
#pragma unroll 1  // few registers
        for (int tile = 0; tile < num_tiles; ++tile) {
          wait(keys_empty[stage], parity ^ 1);
          copy(keys + stage * TILE, key, tile * BLOCK_N, keys_full[stage]);
          wait(values_empty[stage], parity ^ 1);
          copy(values + stage * TILE, value, tile * BLOCK_N,
               padding && tile == num_tiles - 1 ? last_values : values_full[stage]);
          if (++stage == NUM_STAGES) stage = 0, parity ^= 1;
        }
      }
      __syncwarp();
      if (padding) {  // its values, which may be NaN, become zeros
        const int stage = (num_tiles - 1) % NUM_STAGES;
        wait(last_values, 0);
#pragma unroll 1
        for (int i = lane; i < (BLOCK_N - left) * PARTS * 8; i += 32)
          reinterpret_cast<uint4*>(values + stage * TILE + i % PARTS * TILE_PART + left * COLUMNS)[i / PARTS] =
              make_uint4(0, 0, 0, 0);
        fence_async();
        arrive_for_warp(values_full[stage]);
      }
    }
    if (warp == ISSUE / 32) {
      if (lane == 0 && num_tiles > 0) {
        // 2. Score: queries [128, 16] times keys [16, BLOCK_N], for each step along the head.
        const auto multiply_keys = [&](int group, int stage) {
          const Scalar *own = queries + group * PARTS * QUERY_PART, *tile = keys + stage * TILE;
#pragma unroll
          for (int step = 0; step < HEAD_SIZE / 16; ++step)
            multiply(columns + group * BLOCK_N, tile_of(own + step / 4 * QUERY_PART) + step % 4 * 2,
                     tile_of(tile + step / 4 * TILE_PART) + step % 4 * 2, SCORES, step > 0);
          arrive_after_products(scores_full[group]);
          if (group == last_group) arrive_after_products(keys_empty[stage]);
        };
        // 4. Accumulate: weights [128, 16 tokens], which lie where scores were, times values [16 tokens, HEAD_SIZE].
        const auto multiply_values = [&](int group, int stage, bool first) {
          const Scalar* tile = values + stage * TILE;
#pragma unroll
          for (int step = 0; step < BLOCK_N / 16; ++step)
            multiply(columns + OUTPUT_COLUMN + group * HEAD_SIZE, columns + group * BLOCK_N + step * 8,
                     tile_of_columns<TILE_PART * 2>(tile + step * 16 * COLUMNS), OUTPUT, step > 0 || !first);
        };
        wait(queries_full, 0);
        wait(keys_full[0], 0);
#pragma unroll 1
        for (int group = 0; group <= last_group; ++group) multiply_keys(group, 0);
        int stage = 0, parity = 0;
#pragma unroll 1
        for (int tile = 0; tile < num_tiles; ++tile) {
          const int next = stage + 1 == NUM_STAGES ? 0 : stage + 1, next_parity = next ? parity : parity ^ 1;
          wait(values_full[stage], parity);
#pragma unroll 1
          for (int group = 0; group <= last_group; ++group) {
            const int left = tiles_of(group) - tile;
            if (left <= 0) continue;
            wait(weights_full[group], tile & 1);
            fence_after_sync();
            multiply_values(group, stage, tile == 0);
            if (group == last_group) arrive_after_products(values_empty[stage]);
            if (left == 1) {
              arrive_after_products(output_full[group]);
              continue;
            }
            wait(keys_full[next], next_parity);
            multiply_keys(group, next);
          }
          stage = next, parity = next_parity;
        }
      }
      __syncwarp();
      if (num_tiles > 0) wait(output_read, 0);
      free_columns<TENSOR_COLUMNS>(columns);
    }
    return;
  }

  const unsigned lanes = warp % GROUP_WARPS * 32 << 16;  // of tensor memory that this warp reaches
  const int row = threadIdx.x % GROUP_THREADS;           // of its group
  if (threadIdx.x < CORRECTION) {
    take_registers<SOFTMAX_REGISTERS>();
    const int group = threadIdx.x / GROUP_THREADS, group_row = group * GROUP_ROWS + row;
    const unsigned own = columns + lanes + group * BLOCK_N;
    const int own_tiles = tiles_of(group);
    const float factor = scale * LOG2_E;
    float max_score = -infinity(), sum = 0.f;
#pragma unroll 1
    for (int tile = 0; tile < own_tiles; ++tile) {
      const int start = tile * BLOCK_N, seen = position + group_row - start;  // the last token of the tile that it sees
      float score[BLOCK_N];
      wait(scores_full[group], tile & 1);
      fence_after_sync();
#pragma unroll
      for (int i = 0; i < BLOCK_N; i += 32) load_columns(score + i, own + i);
      wait_for_loads(score);
      // 3. Rescale what was summed under the old maximum. Every row sees token 0, so that the new one is finite.
#pragma unroll
      for (int i = 0; i < BLOCK_N; ++i) score[i] *= factor;
      if (start + BLOCK_N - 1 > position + group * GROUP_ROWS) {  // some row does not see it all
#pragma unroll
        for (int i = 0; i < BLOCK_N; ++i)
          if (i > seen) score[i] = -infinity();
      }
      float new_max = max_score;
#pragma unroll
      for (int i = 0; i < BLOCK_N; ++i) new_max = fmaxf(new_max, score[i]);
      if (!(new_max - max_score > RESCALE_ABOVE)) new_max = max_score;
      const float rescale = exp2_or_zero(max_score - new_max);
      max_score = new_max;
      if (tile > 0) {
        factors[group][row] = rescale;
        arrive_for_warp(factors_full[group]);
      }
      sum *= rescale;
#pragma unroll
      for (int i = 0; i < BLOCK_N; i += 64) {
        unsigned weights[32];
#pragma unroll
        for (int j = 0; j < 32; ++j) {
          const float first = exp2_or_zero(score[i + 2 * j] - new_max);
          const float second = exp2_or_zero(score[i + 2 * j + 1] - new_max);
          sum += first + second;
          weights[j] = pack<Scalar>(first, second);
        }
        store_columns(own + i / 2, weights);
      }
      wait_for_column_stores();
      fence_before_sync();
      arrive_for_warp(weights_full[group]);
    }
    const bool valid = group_row < num_rows;
    if (lse && group_row < num_queries - first_row)
      lse[first_place + group_row] = valid ? (max_score + __log2f(sum)) * LN_2 : -infinity();
    if (own_tiles > 0) {
      shares[group][row] = __fdividef(1.f, sum);
      arrive_for_warp(shares_full[group]);
    }
    return;
  }

  give_registers<CORRECTION_REGISTERS>();
  if (num_tiles > 0) {  // there is no output yet
#pragma unroll 1
    for (int group = 0; group <= last_group; ++group) arrive_for_warp(weights_full[group]);
  }
#pragma unroll 1
  for (int tile = 1; tile < num_tiles; ++tile) {
#pragma unroll 1
    for (int group = 0; group <= last_group; ++group) {
      if (tile >= tiles_of(group)) continue;
      wait(factors_full[group], (tile - 1) & 1);
      fence_after_sync();
      const float rescale = factors[group][row];
      if (__any_sync(ALL_LANES, rescale != 1.f)) {
#pragma unroll 1
        for (int i = 0; i < HEAD_SIZE; i += 32) {
          const unsigned own = columns + lanes + OUTPUT_COLUMN + group * HEAD_SIZE + i;
          float out[32];
          load_columns(out, own);
          wait_for_loads(out);
#pragma unroll
          for (int j = 0; j < 32; ++j) out[j] *= rescale;
          store_columns(own, out);
        }
        wait_for_column_stores();
        fence_before_sync();
      }
      arrive_for_warp(weights_full[group]);
    }
  }

  // 5. Divide. A warp's output takes the place of its queries, to leave in whole 16-byte chunks.
  constexpr int ROW_CHUNKS = HEAD_SIZE / 8;
#pragma unroll 1
  for (int group = 0; group < NUM_GROUPS; ++group) {
    unsigned char* rows = reinterpret_cast<unsigned char*>(queries + group * PARTS * QUERY_PART);
    const int left = num_queries - first_row - group * GROUP_ROWS;  // rows to write
    const bool any = tiles_of(group) > 0;
    if (any) {
      wait(shares_full[group], 0);
      wait(output_full[group], 0);
      fence_after_sync();
      const float share = shares[group][row];
      const bool valid = group * GROUP_ROWS + row < num_rows;
#pragma unroll 1
      for (int i = 0; i < HEAD_SIZE; i += 32) {
        float out[32];
        load_columns(out, columns + lanes + OUTPUT_COLUMN + group * HEAD_SIZE + i);
        wait_for_loads(out);
#pragma unroll
        for (int j = 0; j < 32; j += 8) {
          uint4 chunk = make_uint4(0, 0, 0, 0);
          if (valid)
            chunk = make_uint4(pack<Scalar>(out[j] * share, out[j + 1] * share),
                               pack<Scalar>(out[j + 2] * share, out[j + 3] * share),
                               pack<Scalar>(out[j + 4] * share, out[j + 5] * share),
                               pack<Scalar>(out[j + 6] * share, out[j + 7] * share));
          *reinterpret_cast<uint4*>(rows + place(row, (i + j) / 8)) = chunk;
        }
      }
    }
    __syncwarp();
    for (int i = lane; i < 32 * ROW_CHUNKS; i += 32) {
      const int of_group = warp % GROUP_WARPS * 32 + i / ROW_CHUNKS, chunk = i % ROW_CHUNKS;
      if (of_group < left)
        __stwb(reinterpret_cast<uint4*>(output + (first_place + group * GROUP_ROWS + of_group) * HEAD_SIZE) + chunk,
               any ? *reinterpret_cast<const uint4*>(rows + place(of_group, chunk)) : make_uint4(0, 0, 0, 0));
    }
  }
  fence_before_sync();
  if (num_tiles > 0) arrive_for_warp(output_read);
}
