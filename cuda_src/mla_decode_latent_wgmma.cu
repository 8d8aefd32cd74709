// Decode over a paged latent cache as Hopper's is written: one block per (tile of 64 query heads, sequence, partition of
// PARTITION_SIZE tokens). Tiles of tokens are copied out of pages (TMA) into NUM_STAGES stages; two warp groups multiply
// them (wgmma), as keys and, over their rows, as values. Each group scores one half of a tile's tokens and sums one half
// of the value's columns: threads of the same number have the same rows in both, so that each gives the other its maxima
// and weights as they lie in registers. The softmax of a tile runs beneath the product of the tile before with its
// values. No warp does nothing but copy: a ninth warp would leave the others 168 registers instead of 255. A cluster of two
// blocks is one tile of 128 heads: each copies one half of the boxes of a tile of tokens to both.
//
//   output        [num_seqs, num_heads, LATENT_SIZE]
//   partial_out, partial_stats, counters [num_seqs, tiles of heads]           see common/partitions.cuh
//   query         tensor map of [num_seqs, num_heads, KEY_SIZE], boxes of 64 heads by 64 elements
//   latent_cache  tensor map of [num_blocks, BLOCK_SIZE, KEY_SIZE], boxes of up to a tile's tokens by 64 elements,
//                 both in the 128-byte swizzle. QUANTIZED: of [num_blocks, BLOCK_SIZE, STORED_BYTES / 4], whole rows of
//                 codes and scales (common/latent_rows.cuh), which become values in one of two tiles
//   block_tables  [num_seqs, max_blocks], seq_lens [num_seqs], sinks [num_heads] or null
//
// Tunables: CLUSTER_BLOCKS, BLOCK_SIZE tokens per page, PARTITION_SIZE per block, TILE_TOKENS per tile, NUM_STAGES tiles
// that are under way or in use. Idea: FlashMLA (DeepSeek, 2025) for the tile that is key and value, FlashAttention-3
// (Shah et al., 2024) for what runs beneath what.
#include "common/latent_partitions.cuh"
#include "common/latent_tiles.cuh"

#ifndef SCALAR
#define SCALAR __nv_bfloat16
#define LATENT_SIZE 512
#define KEY_SIZE 576
#define CLUSTER_BLOCKS 2
#define BLOCK_SIZE 64
#define PARTITION_SIZE 512
#define TILE_TOKENS 64
#define NUM_STAGES 2
#endif

using Scalar = SCALAR;
constexpr int GROUP_THREADS = 128, NUM_THREADS = 2 * GROUP_THREADS, HEADS = 64;
constexpr int PARTS = (KEY_SIZE + 63) / 64, KEY_STEPS = KEY_SIZE / 16;  // of 128 bytes in a row; of a product along it
constexpr int QUERY_PART = HEADS * 64, TILE_PART = TILE_TOKENS * 64, TILE = PARTS * TILE_PART;
#ifdef QUANTIZED
// Bytes of a stored row, which is one box wide; tiles of values, one read as keys and one as values.
constexpr int STORED_BYTES = row_of_codes(LATENT_SIZE, KEY_SIZE), STORED_PARTS = 1, TILES = 2;
#else
constexpr int STORED_BYTES = 128, STORED_PARTS = PARTS, TILES = NUM_STAGES;  // of a row of a part
#endif
constexpr int STAGE_BYTES = TILE_TOKENS * STORED_BYTES * STORED_PARTS;
constexpr int HALF = TILE_TOKENS / 2, COLUMNS = LATENT_SIZE / 2, STEPS = TILE_TOKENS / 16;

extern "C" __global__ void __cluster_dims__(CLUSTER_BLOCKS, 1, 1) __launch_bounds__(NUM_THREADS, 1)
    mla_decode_wgmma(Scalar* __restrict__ output, float* partial_out, float2* partial_stats, unsigned* counters,
                     const __grid_constant__ TensorMap query, const __grid_constant__ TensorMap latent_cache,
                     const int* __restrict__ block_tables, const int* __restrict__ seq_lens,
                     const float* __restrict__ sinks, float scale, int num_heads, int table_stride) {
  const int first_head = blockIdx.x * HEADS, seq = blockIdx.y, base = blockIdx.z * PARTITION_SIZE;
  const int heads = min(HEADS, num_heads - first_head);
  const int seq_len = seq_lens[seq], end = min(seq_len - base, PARTITION_SIZE);  // tokens are counted from `base`
  const long long first_row = (long long)seq * num_heads + first_head;
  if (end <= 0) {
    if (seq_len == 0 && blockIdx.z == 0)
      for (int i = threadIdx.x; i < heads * LATENT_SIZE / 2; i += NUM_THREADS)
        reinterpret_cast<unsigned*>(output + first_row * LATENT_SIZE)[i] = pack<Scalar>(0.f, 0.f);
    return;
  }
  extern __shared__ __align__(1024) unsigned char shared[];
  Scalar* queries = reinterpret_cast<Scalar*>(shared);  // [PARTS][HEADS][64]
  Scalar* tiles = queries + PARTS * QUERY_PART;         // [TILES][PARTS][TILE_TOKENS][64]
#ifdef QUANTIZED
  unsigned char* stored = reinterpret_cast<unsigned char*>(tiles + TILES * TILE);  // [NUM_STAGES][TILE_TOKENS]
#else
  unsigned char* stored = reinterpret_cast<unsigned char*>(tiles);
#endif
  __shared__ uint4 given_weights[2][STEPS / 2][GROUP_THREADS];
  __shared__ float2 given[2][GROUP_THREADS];  // of a thread's two rows the maxima, in the end the sums of weights
  __shared__ Barrier full[NUM_STAGES], empty[NUM_STAGES];  // the first phase of full[0] has the queries, too
  const int group = threadIdx.x / GROUP_THREADS, thread = threadIdx.x % GROUP_THREADS;
  const int warp = thread / 32, lane = thread % 32, own_row = 16 * warp + lane / 4;  // and that 8 further on
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < NUM_STAGES; ++stage) init(full[stage], 1), init(empty[stage], CLUSTER_BLOCKS);
    fence_init();
  }
  meet_all<CLUSTER_BLOCKS>();  // the mbarriers are there for all

  // 1. Load the queries, zeros for heads that do not exist, and the first tiles, by one warp, a lane for each box. Tokens
  //    past the end become zeros, because an unused slot may hold NaN, and 0 * NaN is NaN.
  const int num_tiles = (end + TILE_TOKENS - 1) / TILE_TOKENS;
  const int* table = block_tables + (long long)seq * table_stride;
  const auto copy_tile = [&](int tile) {
    if (threadIdx.x >= 32 || tile >= num_tiles) return;
    const int start = tile * TILE_TOKENS, stage = tile % NUM_STAGES;
    if (CLUSTER_BLOCKS > 1 && tile >= NUM_STAGES) wait_in_cluster(empty[stage], (tile / NUM_STAGES - 1) % 2);
    copy_tokens<CLUSTER_BLOCKS, BLOCK_SIZE, TILE_TOKENS, STORED_PARTS, STORED_BYTES>(
        stored + stage * STAGE_BYTES, latent_cache, table, base + start, min(end - start, TILE_TOKENS), full[stage],
        tile == 0 ? PARTS * QUERY_PART * 2 : 0);
  };
  // All threads are done with the stage of a tile: it is free once those of the other block are, too.
  const auto copy_next = [&](int tile) {
    if (CLUSTER_BLOCKS > 1 && threadIdx.x < CLUSTER_BLOCKS && tile + NUM_STAGES < num_tiles)
      arrive_in(empty[tile % NUM_STAGES], threadIdx.x);
    copy_tile(tile + NUM_STAGES);
  };
  for (int tile = 0; tile < NUM_STAGES; ++tile) copy_tile(tile);
  if (threadIdx.x == 0)
    for (int part = 0; part < PARTS; ++part)
      load_tile(queries + part * QUERY_PART, query, part * 64, first_head, seq, full[0]);
  const auto await_tile = [&](int tile) {
    wait_in_cluster(full[tile % NUM_STAGES], tile / NUM_STAGES % 2);
    const int tokens = end - tile * TILE_TOKENS;
#ifdef QUANTIZED
    widen_rows<Scalar, LATENT_SIZE, KEY_SIZE, TILE_TOKENS, NUM_THREADS>(
        tiles + tile % TILES * TILE, stored + tile % NUM_STAGES * STAGE_BYTES, tokens);
    copy_next(tile);
#else
    if (tokens < TILE_TOKENS) clear_rows<TILE_TOKENS, PARTS, NUM_THREADS>(tiles + tile % TILES * TILE, tokens);
#endif
  };

  const float factor = scale * LOG2_E;
  float max_score[2] = {-infinity(), -infinity()}, sum[2] = {}, rescale[2], out[COLUMNS / 2] = {}, score[HALF / 2];
  unsigned weights[STEPS][4];

  // 2. Score: queries [64, 16] times the group's keys [16, HALF], for each step along the key.
  const auto multiply_keys = [&](int at) {
#pragma unroll
    for (int step = 0; step < KEY_STEPS; ++step)
      multiply<Scalar>(score, descriptor(queries + step / 4 * QUERY_PART) + step % 4 * 2,
                       descriptor(tiles + at * TILE + step / 4 * TILE_PART + group * HALF * 64) + step % 4 * 2,
                       step > 0);
    commit_products();
  };
  // 3. Rescale: the weights under the maximum so far of both halves. A tile has a token inside, so that it is finite.
  const auto weigh = [&](int start) {
    const int inside = end - start - group * HALF - lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < HALF / 2; ++i) score[i] = i / 4 * 8 + i % 2 < inside ? score[i] * factor : -infinity();
    float highest[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      highest[half] = max_score[half];
#pragma unroll
      for (int i = 2 * half; i < HALF / 2; i += 4) highest[half] = fmaxf(highest[half], fmaxf(score[i], score[i + 1]));
      highest[half] = max_over_lanes<1, 4>(highest[half]);
    }
    given[group][thread] = make_float2(highest[0], highest[1]);
    meet<64>(1 + warp);
    const float2 other = given[group ^ 1][thread];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float new_max = fmaxf(highest[half], half ? other.y : other.x);
      rescale[half] = exp2_or_zero(max_score[half] - new_max);
      max_score[half] = new_max, sum[half] *= rescale[half];
#pragma unroll
      for (int i = 2 * half; i < HALF / 2; i += 4) {
        score[i] = exp2_or_zero(score[i] - new_max), score[i + 1] = exp2_or_zero(score[i + 1] - new_max);
        sum[half] += score[i] + score[i + 1];
      }
    }
  };
  // The weights lie in registers as the product with the values wants them; those of the other half, too.
  const auto exchange_weights = [&] {
    unsigned own[STEPS / 2][4];
#pragma unroll
    for (int i = 0; i < HALF / 4; ++i) own[i / 4][i % 4] = pack<Scalar>(score[2 * i], score[2 * i + 1]);
#pragma unroll
    for (int step = 0; step < STEPS / 2; ++step)
      given_weights[group][step][thread] = make_uint4(own[step][0], own[step][1], own[step][2], own[step][3]);
    __syncthreads();
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
      const uint4 four = given_weights[step / (STEPS / 2)][step % (STEPS / 2)][thread];
      weights[step][0] = four.x, weights[step][1] = four.y, weights[step][2] = four.z, weights[step][3] = four.w;
    }
  };
  // 4. Accumulate: weights [64, 16 tokens] times values [16 tokens, the group's COLUMNS].
  const auto multiply_values = [&](int at) {
    const Scalar* values = tiles + at * TILE + group * (COLUMNS / 64) * TILE_PART;
#pragma unroll
    for (int step = 0; step < STEPS; ++step)
      multiply<Scalar>(out, weights[step], descriptor_of_columns<TILE_PART * 2>(values + step * 16 * 64));
    commit_products();
  };

  await_tile(0);
  open_products();
  multiply_keys(0);
  wait_for_products<0>();
  weigh(0);
  exchange_weights();
#pragma unroll 1
  for (int tile = 1; tile < num_tiles; ++tile) {
    await_tile(tile);
    open_products();
    multiply_keys(tile % TILES);
    multiply_values((tile - 1) % TILES);
    wait_for_products<1>();
    weigh(tile * TILE_TOKENS);
    compute_first(sum[0]), compute_first(sum[1]);  // beneath the product with the values
    wait_for_products<0>();
#pragma unroll
    for (int i = 0; i < COLUMNS / 2; ++i) out[i] *= rescale[i / 2 % 2];
    exchange_weights();
#ifndef QUANTIZED
    copy_next(tile - 1);
#endif
  }
  open_products();
  multiply_values((num_tiles - 1) % TILES);
  wait_for_products<0>();

  // 5. Store: with one partition that is the answer, which takes the place of the queries, to leave in whole chunks; else
  //    leave the sums for the block that is done last.
  const int partitions = (seq_len + PARTITION_SIZE - 1) / PARTITION_SIZE;
  const long long first_place = first_row * gridDim.z;
  sum[0] = sum_over_lanes<1, 4>(sum[0]), sum[1] = sum_over_lanes<1, 4>(sum[1]);
  given[group][thread] = make_float2(sum[0], sum[1]);
  meet_all<CLUSTER_BLOCKS>();  // the queries are done with, and copies to this block and arrivals
  const float2 other = given[group ^ 1][thread];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = own_row + 8 * half;
    const float total = sum[half] + (half ? other.y : other.x);
    const long long at = first_place + (long long)row * gridDim.z + blockIdx.z;
    const float sink = sinks && row < heads ? sinks[first_head + row] * LOG2_E : -infinity();
    const float per_sum = 1.f / (total + exp2_or_zero(sink - max_score[half]));
#pragma unroll
    for (int j = 0; j < COLUMNS / 8; ++j) {
      const float* sums = out + 4 * j + 2 * half;
      if (partitions == 1)
        *reinterpret_cast<unsigned*>(shared + in_tile<HEADS>(row, group * (COLUMNS / 8) + j) + lane % 4 * 4) =
            pack<Scalar>(sums[0] * per_sum, sums[1] * per_sum);
      else if (row < heads)
        *reinterpret_cast<float2*>(partial_out + at * LATENT_SIZE + group * COLUMNS + 8 * j + lane % 4 * 2) =
            make_float2(sums[0], sums[1]);
    }
    if (partitions > 1 && row < heads && group == 0 && lane % 4 == 0)
      partial_stats[at] = make_float2(max_score[half], total);
  }
  __syncwarp();
  if (partitions == 1)
    for (int i = lane; i < 16 * (COLUMNS / 8); i += 32) {
      const int row = 16 * warp + i / (COLUMNS / 8), chunk = group * (COLUMNS / 8) + i % (COLUMNS / 8);
      if (row < heads)
        __stwb(reinterpret_cast<uint4*>(output + (first_row + row) * LATENT_SIZE) + chunk,
               *reinterpret_cast<const uint4*>(shared + in_tile<HEADS>(row, chunk)));
    }
  if (partitions == 1 || !last_to_arrive(counters + seq * gridDim.x + blockIdx.x, partitions)) return;

  // 6. Reduce over the partitions.
  reduce_partitions<LATENT_SIZE, NUM_THREADS>(output + first_row * LATENT_SIZE, partial_out + first_place * LATENT_SIZE,
                                              partial_stats + first_place, sinks ? sinks + first_head : nullptr, heads,
                                              partitions);
}
