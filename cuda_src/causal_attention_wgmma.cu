// Causal attention as Hopper's is written: one block per (BLOCK_M queries, head, sequence). A warp copies tiles of
// BLOCK_N keys and values (TMA) into NUM_STAGES stages; warp groups of 64 queries each multiply them (wgmma) and take
// turns, so that one's softmax runs beneath another's products. So does, within a group, the softmax of a tile beneath
// the product of the tile before with its values.
//
//   output      [num_seqs, num_heads, num_queries, HEAD_SIZE]
//   lse         [num_seqs, num_heads, num_queries] fp32: the logarithm of the sum of exp(score); null for none
//   query, key, value: tensor maps of [num_seqs, num_heads (of key and value / group), num_queries or num_tokens,
//               HEAD_SIZE] with boxes of 64 or BLOCK_N rows by 64 elements in the 128-byte swizzle
//   query_lens, seq_lens [num_seqs]: of the queries and tokens those that are no padding; null for all
//
// The queries of a sequence are the last of its tokens. Rows of padding get zeros, and minus infinity in lse.
//
// Tunables: BLOCK_M queries, a warp group for each 64; BLOCK_N tokens per tile; NUM_STAGES tiles that are under way or
// in use. Idea: FlashAttention-3 (Shah et al., 2024).
#include "common/exponentials.cuh"
#include "common/hopper.cuh"
#include "common/packing.cuh"
#include "common/reductions.cuh"

#ifndef SCALAR
#define SCALAR __half
#define HEAD_SIZE 64
#define BLOCK_M 128
#define BLOCK_N 128
#define NUM_STAGES 2
#endif

using Scalar = SCALAR;
constexpr int GROUP_THREADS = 128, GROUP_ROWS = 64, NUM_CONSUMERS = BLOCK_M / GROUP_ROWS;
constexpr int PRODUCER = NUM_CONSUMERS * GROUP_THREADS, NUM_THREADS = PRODUCER + GROUP_THREADS;
constexpr int COLUMNS = 64, PARTS = HEAD_SIZE / COLUMNS;  // a tile has rows of 128 bytes, and of larger heads several
constexpr int QUERY_PART = GROUP_ROWS * COLUMNS, TILE_PART = BLOCK_N * COLUMNS, TILE = PARTS * TILE_PART;
// What a thread has of the registers of a block: all of a multiprocessor's, of one consumer half.
constexpr int PRODUCER_REGISTERS = NUM_CONSUMERS == 3 ? 32 : 24;
constexpr int CONSUMER_REGISTERS = NUM_CONSUMERS == 1 ? 232 : NUM_CONSUMERS == 2 ? 240 : 160;
constexpr float LOG2_E = 1.4426950408889634f, LN_2 = 0.6931471805599453f;

// Where 16 bytes of the head lie in a warp group's rows, in bytes, as the 128-byte swizzle has them.
__device__ __forceinline__ int place(int row, int chunk) {
  return chunk / 8 * QUERY_PART * 2 + row * 128 + (chunk % 8 ^ row % 8) * 16;
}

extern "C" __global__ void __launch_bounds__(NUM_THREADS, NUM_CONSUMERS == 1 ? 2 : 1)
causal_attention_wgmma(Scalar* __restrict__ output, float* __restrict__ lse, const __grid_constant__ TensorMap query,
                       const __grid_constant__ TensorMap key, const __grid_constant__ TensorMap value,
                       const int* __restrict__ query_lens, const int* __restrict__ seq_lens, float scale,
                       int num_queries, int num_tokens, int group) {
  const int head = blockIdx.y, seq = blockIdx.z, first_row = (gridDim.x - 1 - blockIdx.x) * BLOCK_M;
  const int query_len = query_lens ? query_lens[seq] : num_queries, seq_len = seq_lens ? seq_lens[seq] : num_tokens;
  const int num_rows = min(query_len - first_row, BLOCK_M);  // 0 or less: nothing but padding
  const int position = seq_len - query_len + first_row;      // of the first query among the tokens
  const int num_tiles = num_rows > 0 ? (position + num_rows + BLOCK_N - 1) / BLOCK_N : 0;

  extern __shared__ __align__(1024) unsigned char shared[];
  Scalar* queries = reinterpret_cast<Scalar*>(shared);                  // [NUM_CONSUMERS][PARTS][GROUP_ROWS][COLUMNS]
  Scalar* keys = queries + NUM_CONSUMERS * PARTS * QUERY_PART;          // [NUM_STAGES][PARTS][BLOCK_N][COLUMNS]
  Scalar* values = keys + NUM_STAGES * TILE;                            // likewise
  __shared__ Barrier queries_full, keys_full[NUM_STAGES], values_full[NUM_STAGES];
  __shared__ Barrier keys_empty[NUM_STAGES], values_empty[NUM_STAGES], last_values;
  if (threadIdx.x == 0) {
    init(queries_full, 1), init(last_values, 1);
    for (int stage = 0; stage < NUM_STAGES; ++stage) {
      init(keys_full[stage], 1), init(values_full[stage], 1);
      init(keys_empty[stage], NUM_CONSUMERS), init(values_empty[stage], NUM_CONSUMERS);
    }
    fence_init();
  }
  __syncthreads();

  // 1. Load the queries, then keys and values, each tile as soon as its stage is empty.
  if (threadIdx.x >= PRODUCER) {
    give_registers<PRODUCER_REGISTERS>();
    if (threadIdx.x >= PRODUCER + 32 || num_tiles == 0) return;
    const int lane = threadIdx.x % 32, kv_head = head / group;
    const int left = seq_len - (num_tiles - 1) * BLOCK_N;            // tokens of the last tile
    const bool padding = left < BLOCK_N && seq_len < num_tokens;     // past num_tokens the copy itself writes zeros
    if (lane == 0) {
      arrive_and_expect(queries_full, NUM_CONSUMERS * PARTS * QUERY_PART * 2);
      for (int i = 0; i < NUM_CONSUMERS * PARTS; ++i)
        load_tile(queries + i * QUERY_PART, query, i % PARTS * COLUMNS, first_row + i / PARTS * GROUP_ROWS, head, seq,
                  queries_full);
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
      __syncwarp();
      if (lane == 0) arrive(values_full[stage]);
    }
    return;
  }

  take_registers<CONSUMER_REGISTERS>();
  const int consumer = threadIdx.x / GROUP_THREADS, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const bool tells = threadIdx.x % GROUP_THREADS == 0;  // for its group that a stage is empty
  const int own_row = 16 * warp + lane / 4;             // of the group's; and that 8 further on
  Scalar* own_queries = queries + consumer * PARTS * QUERY_PART;
  const float factor = scale * LOG2_E;
  float max_score[2] = {-infinity(), -infinity()}, sum[2] = {}, rescale[2], out[HEAD_SIZE / 2] = {}, score[BLOCK_N / 2];
  unsigned weights[BLOCK_N / 16][4];

  // 2. Score: queries [64, 16] times keys [16, BLOCK_N], for each step along the head.
  const auto multiply_keys = [&](int stage) {
#pragma unroll
    for (int step = 0; step < HEAD_SIZE / 16; ++step)
      multiply<Scalar>(score, descriptor(own_queries + step / 4 * QUERY_PART) + step % 4 * 2,
                       descriptor(keys + stage * TILE + step / 4 * TILE_PART) + step % 4 * 2, step > 0);
    commit_products();
  };
  // 3. Rescale what was summed under the old maximum. Every row sees token 0, so that the new one is finite.
  const auto weigh = [&](int start) {
    const int seen = position + consumer * GROUP_ROWS + own_row - (start + lane % 4 * 2);
    const bool on_diagonal = start + BLOCK_N - 1 > position + consumer * GROUP_ROWS;  // some row does not see it all
#pragma unroll
    for (int i = 0; i < BLOCK_N / 2; ++i) score[i] *= factor;
    if (on_diagonal) {
#pragma unroll
      for (int i = 0; i < BLOCK_N / 2; ++i)
        if (i / 4 * 8 + i % 2 > seen + i / 2 % 2 * 8) score[i] = -infinity();
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float new_max = max_score[half];
#pragma unroll
      for (int i = 2 * half; i < BLOCK_N / 2; i += 4) new_max = fmaxf(new_max, fmaxf(score[i], score[i + 1]));
      new_max = max_over_lanes<1, 4>(new_max);
      rescale[half] = exp2_or_zero(max_score[half] - new_max);
      max_score[half] = new_max;
      sum[half] *= rescale[half];
#pragma unroll
      for (int i = 2 * half; i < BLOCK_N / 2; i += 4) {
        score[i] = exp2_or_zero(score[i] - new_max), score[i + 1] = exp2_or_zero(score[i + 1] - new_max);
        sum[half] += score[i] + score[i + 1];
      }
    }
  };
  // The weights lie in registers as the product with the values wants them.
  const auto pack_weights = [&] {
#pragma unroll
    for (int i = 0; i < BLOCK_N / 4; ++i) weights[i / 4][i % 4] = pack<Scalar>(score[2 * i], score[2 * i + 1]);
  };
  // 4. Accumulate: weights [64, 16 tokens] times values [16 tokens, HEAD_SIZE].
  const auto multiply_values = [&](int stage) {
#pragma unroll
    for (int step = 0; step < BLOCK_N / 16; ++step)
      multiply<Scalar>(out, weights[step],
                       descriptor_of_columns<TILE_PART * 2>(values + stage * TILE + step * 16 * COLUMNS));
    commit_products();
  };

  if (num_tiles > 0) {
    wait(queries_full, 0);
    wait(keys_full[0], 0);
    open_products();
    multiply_keys(0);
    wait_for_products<0>();
    if (tells) arrive(keys_empty[0]);
    weigh(0);
    pack_weights();
    if (NUM_CONSUMERS > 1 && consumer == NUM_CONSUMERS - 1 && num_tiles > 1) announce<2 * GROUP_THREADS>(1);
    int stage = 0, parity = 0;
#pragma unroll 1
    for (int tile = 1; tile < num_tiles; ++tile) {
      const int before = stage, parity_before = parity;
      if (++stage == NUM_STAGES) stage = 0, parity ^= 1;
      wait(keys_full[stage], parity);
      wait(values_full[before], parity_before);  // before both products: the assembler would part them otherwise
      if (NUM_CONSUMERS > 1) meet<2 * GROUP_THREADS>(1 + consumer);  // it is this group's turn
      open_products();
      multiply_keys(stage);
      multiply_values(before);
      if (NUM_CONSUMERS > 1 && (consumer < NUM_CONSUMERS - 1 || tile < num_tiles - 1))
        announce<2 * GROUP_THREADS>(1 + (consumer + 1) % NUM_CONSUMERS);
      wait_for_products<1>();
      if (tells) arrive(keys_empty[stage]);
      weigh(tile * BLOCK_N);
      compute_first(sum[0]), compute_first(sum[1]);  // beneath the product with the values
      wait_for_products<0>();
      if (tells) arrive(values_empty[before]);
#pragma unroll
      for (int i = 0; i < HEAD_SIZE / 2; ++i) out[i] *= rescale[i / 2 % 2];
      pack_weights();
    }
    wait(values_full[stage], parity);
    open_products();
    multiply_values(stage);
    wait_for_products<0>();
  }

  // 5. Reduce over the lanes of a row and divide. A warp's output takes the place of its queries, to leave in whole
  //    16-byte chunks.
  const int group_row = first_row + consumer * GROUP_ROWS, rows_to_write = min(num_queries - group_row, GROUP_ROWS);
  const int valid_rows = query_len - group_row;
  const long long first_place = ((long long)seq * gridDim.y + head) * num_queries + group_row;
  unsigned char* rows = reinterpret_cast<unsigned char*>(own_queries);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = own_row + 8 * half;
    const float total = sum_over_lanes<1, 4>(sum[half]), share = __fdividef(1.f, total);
#pragma unroll
    for (int chunk = 0; chunk < HEAD_SIZE / 8; ++chunk) {
      const int i = 4 * chunk + 2 * half;
      const unsigned pair = pack<Scalar>(out[i] * share, out[i + 1] * share);
      *reinterpret_cast<unsigned*>(rows + place(row, chunk) + lane % 4 * 4) = row < valid_rows ? pair : 0u;
    }
    if (lse && lane % 4 == 0 && row < rows_to_write)
      lse[first_place + row] = row < valid_rows ? (max_score[half] + __log2f(total)) * LN_2 : -infinity();
  }
  __syncwarp();
  constexpr int ROW_CHUNKS = HEAD_SIZE / 8;
  for (int i = lane; i < 16 * ROW_CHUNKS; i += 32) {
    const int row = 16 * warp + i / ROW_CHUNKS, chunk = i % ROW_CHUNKS;
    if (row < rows_to_write)
      __stwb(reinterpret_cast<uint4*>(output + (first_place + row) * HEAD_SIZE) + chunk,
             *reinterpret_cast<const uint4*>(rows + place(row, chunk)));
  }
}
