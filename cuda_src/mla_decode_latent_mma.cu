// Decode over a paged latent cache (multi-head latent attention, absorbed), on tensor cores: one block per (tile of
// HEADS_PER_BLOCK query heads, sequence, partition of PARTITION_SIZE tokens). All heads share one key per token, and
// its first LATENT_SIZE elements are the value as well. So a token is copied into shared memory once for all heads of
// the tile, and read there twice: as a key, and transposed as a value.
//
//   output        [num_seqs, num_heads, LATENT_SIZE]
//   partial_out, partial_stats, counters [num_seqs, tiles of heads]           see common/partitions.cuh
//   query         [num_seqs, num_heads, KEY_SIZE]                             rows query_stride apart, on 16 bytes
//   latent_cache  [num_blocks, BLOCK_SIZE, KEY_SIZE]                          pages page_stride apart, on 16 bytes
//                 QUANTIZED: [num_blocks, BLOCK_SIZE, STORED_BYTES], a row of LATENT_SIZE codes of e4m3, a scale for
//                 every 128 of them, and the other elements; made values in shared memory once for all heads
//   block_tables  [num_seqs, max_blocks], seq_lens [num_seqs], sinks [num_heads] or null
//
// Tunables: HEADS_PER_BLOCK, BLOCK_SIZE tokens per page, PARTITION_SIZE per block, TILE_TOKENS per tile, NUM_STAGES
// tiles that are under way or in use, NUM_THREADS. Idea: FlashMLA (DeepSeek, 2025) for the tile that is key and value,
// Flash-Decoding (Dao et al., 2023) for the split.
#include "common/latent_partitions.cuh"
#include "common/latent_rows.cuh"
#include "common/tensor_cores.cuh"

#ifndef SCALAR
#define SCALAR __nv_bfloat16
#define LATENT_SIZE 512
#define KEY_SIZE 576
#define HEADS_PER_BLOCK 16
#define BLOCK_SIZE 64
#define PARTITION_SIZE 512
#define TILE_TOKENS 32
#define NUM_STAGES 3
#define NUM_THREADS 128
#endif

using Scalar = SCALAR;
constexpr int NUM_WARPS = NUM_THREADS / WARP_SIZE, NUM_PAGES = PARTITION_SIZE / BLOCK_SIZE;
constexpr int CHUNKS = KEY_SIZE / 8,
              KEY_STEPS = KEY_SIZE / 16;  // of 16 bytes in a row; of a product along it
constexpr int ROW_BYTES = KEY_SIZE * 2;
#ifdef QUANTIZED
using Stored = unsigned char;
constexpr int STORED_BYTES = row_of_codes(LATENT_SIZE, KEY_SIZE);
#else
using Stored = Scalar;
constexpr int STORED_BYTES = ROW_BYTES;
#endif
constexpr int STORED_CHUNKS = STORED_BYTES / 16, STAGE_BYTES = TILE_TOKENS * STORED_BYTES;
constexpr int HEAD_TILES = HEADS_PER_BLOCK / 16, TOKEN_TILES = TILE_TOKENS / 8;  // of a product
constexpr int COLUMNS = LATENT_SIZE / NUM_WARPS;                                 // of values, for each warp
constexpr int ROWS = HEADS_PER_BLOCK / NUM_WARPS;                                // of scores, for each warp
constexpr int LANE_TOKENS = (TILE_TOKENS + WARP_SIZE - 1) / WARP_SIZE;
constexpr int SCORE_STRIDE = TILE_TOKENS + 8;  // so that the rows of a product's scores meet no bank twice

extern "C" __global__ void __launch_bounds__(NUM_THREADS)
    mla_decode_latent(Scalar* __restrict__ output, float* partial_out, float2* partial_stats, unsigned* counters,
                      const Scalar* __restrict__ query, const Stored* __restrict__ latent_cache,
                      const int* __restrict__ block_tables, const int* __restrict__ seq_lens,
                      const float* __restrict__ sinks, float scale, int num_heads, int table_stride,
                      long long query_stride, long long page_stride) {
  const int first_head = blockIdx.x * HEADS_PER_BLOCK, seq = blockIdx.y, base = blockIdx.z * PARTITION_SIZE;
  const int warp = threadIdx.x / WARP_SIZE, lane = threadIdx.x % WARP_SIZE;
  const int heads = min(HEADS_PER_BLOCK, num_heads - first_head);
  const int seq_len = seq_lens[seq], end = min(seq_len - base, PARTITION_SIZE);  // tokens are counted from `base`
  const long long first_row = (long long)seq * num_heads + first_head;
  if (end <= 0) {
    if (seq_len == 0 && blockIdx.z == 0)
      for (int i = threadIdx.x; i < heads * LATENT_SIZE; i += NUM_THREADS)
        output[first_row * LATENT_SIZE + i] = from_float<Scalar>(0.f);
    return;
  }

  extern __shared__ __align__(128) unsigned char tiles[];  // queries [HEADS_PER_BLOCK], then stages [TILE_TOKENS]
  __shared__ alignas(128) Scalar weights[HEADS_PER_BLOCK * TILE_TOKENS];
  __shared__ float scores[HEADS_PER_BLOCK][SCORE_STRIDE];
  __shared__ float rescale[HEADS_PER_BLOCK];
  __shared__ float2 row_stats[HEADS_PER_BLOCK];  // maximum, and sum of the weights under it
  __shared__ int pages[NUM_PAGES];
  const unsigned query_tile = shared_address(tiles), stages = query_tile + HEADS_PER_BLOCK * ROW_BYTES;
#ifdef QUANTIZED
  unsigned char* stored = tiles + HEADS_PER_BLOCK * ROW_BYTES;
  unsigned char* values = stored + NUM_STAGES * STAGE_BYTES;
#endif

  // 1. Load the queries, zeros for heads that do not exist, and the pages of the partition; then start the first tiles.
  //    Tokens past the end become zeros, because an unused slot may hold NaN, and 0 * NaN is NaN.
  const Scalar* queries = query + seq * query_stride + (long long)first_head * KEY_SIZE;
  for (int i = threadIdx.x; i < HEADS_PER_BLOCK * CHUNKS; i += NUM_THREADS) {
    const int row = i / CHUNKS, chunk = i % CHUNKS;
    const Scalar* from = queries + min(row, heads - 1) * KEY_SIZE + chunk * 8;
    copy_async<16>(query_tile + swizzled<CHUNKS>(row, chunk), from, row < heads ? 16 : 0);
  }
  const int* table = block_tables + (long long)seq * table_stride + base / BLOCK_SIZE;
  for (int i = threadIdx.x; i < NUM_PAGES; i += NUM_THREADS) pages[i] = i * BLOCK_SIZE < end ? table[i] : 0;
  __syncthreads();
  const int num_tiles = (end + TILE_TOKENS - 1) / TILE_TOKENS;
  const auto copy_tile = [&](int tile) {
    const unsigned stage = stages + tile % NUM_STAGES * STAGE_BYTES;
    if (tile < num_tiles)
      for (int i = threadIdx.x; i < TILE_TOKENS * STORED_CHUNKS; i += NUM_THREADS) {
        const int row = i / STORED_CHUNKS, chunk = i % STORED_CHUNKS, token = tile * TILE_TOKENS + row;
        const int within = min(token, end - 1);
        const Stored* from = latent_cache + pages[within / BLOCK_SIZE] * page_stride;
        from += (within % BLOCK_SIZE * STORED_BYTES + chunk * 16) / (int)sizeof(Stored);
#ifdef QUANTIZED
        const unsigned to = stage + i * 16;
#else
        const unsigned to = stage + swizzled<CHUNKS>(row, chunk);
#endif
        copy_async<16>(to, from, token < end ? 16 : 0);
      }
    commit_copies();  // also of nothing, so that the count of groups stays right
  };
#pragma unroll
  for (int tile = 0; tile < NUM_STAGES - 1; ++tile) copy_tile(tile);  // the first group has the queries, too

  float out[HEAD_TILES][COLUMNS / 8][4] = {}, max_score[ROWS], total[ROWS] = {};
#pragma unroll
  for (int i = 0; i < ROWS; ++i) max_score[i] = -infinity();
#pragma unroll 1
  for (int tile = 0; tile < num_tiles; ++tile) {
    wait_for_copies<NUM_STAGES - 2>();
    __syncthreads();  // the tile of every thread is here, and the one before is done with
    copy_tile(tile + NUM_STAGES - 1);
#ifdef QUANTIZED
    const unsigned char* rows = stored + tile % NUM_STAGES * STAGE_BYTES;
    for (int i = threadIdx.x; i < TILE_TOKENS * CHUNKS; i += NUM_THREADS)
      *reinterpret_cast<uint4*>(values + swizzled<CHUNKS>(i / CHUNKS, i % CHUNKS)) =
          values_of<Scalar, LATENT_SIZE>(rows + i / CHUNKS * STORED_BYTES, i % CHUNKS);
    __syncthreads();
    const unsigned tokens = shared_address(values);
#else
    const unsigned tokens = stages + tile % NUM_STAGES * STAGE_BYTES;
#endif

    // 2. Score: a warp takes products of 16 heads and 8 tokens, two steps of the key at a time.
    for (int unit = warp; unit < HEAD_TILES * TOKEN_TILES; unit += NUM_WARPS) {
      const int head = unit / TOKEN_TILES * 16, token = unit % TOKEN_TILES * 8;
      float score[4] = {};
#pragma unroll 4
      for (int step = 0; step < KEY_STEPS; step += 2) {
        unsigned q[4], key[4];
        load_matrices(key, tokens + swizzled<CHUNKS>(token + lane % 8, 2 * step + lane / 8));
        load_matrices(q, query_tile + swizzled<CHUNKS>(head + lane % 16, 2 * step + lane / 16));
        multiply_add<Scalar>(score, q, key[0], key[1]);
        load_matrices(q, query_tile + swizzled<CHUNKS>(head + lane % 16, 2 * step + 2 + lane / 16));
        multiply_add<Scalar>(score, q, key[2], key[3]);
      }
#pragma unroll
      for (int e = 0; e < 4; e += 2) {
        float* to = &scores[head + lane / 4 + e * 4][token + lane % 4 * 2];
        *reinterpret_cast<float2*>(to) = make_float2(score[e] * (scale * LOG2_E), score[e + 1] * (scale * LOG2_E));
      }
    }
    __syncthreads();

    // 3. Rescale: the weights of each head under the maximum so far, a warp for every NUM_WARPS-th head. A tile has a
    //    token inside, so that the maximum is finite.
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
      const int row = warp + i * NUM_WARPS;
      float score[LANE_TOKENS], new_max = max_score[i], sum = 0.f;
#pragma unroll
      for (int t = 0; t < LANE_TOKENS; ++t) {
        const int token = t * WARP_SIZE + lane;
        const bool inside = token < TILE_TOKENS && tile * TILE_TOKENS + token < end;
        score[t] = inside ? scores[row][token] : -infinity();
        new_max = fmaxf(new_max, score[t]);
      }
      new_max = max_over_lanes<1, WARP_SIZE>(new_max);
#pragma unroll
      for (int t = 0; t < LANE_TOKENS; ++t) {
        const int token = t * WARP_SIZE + lane;
        const float weight = exp2_or_zero(score[t] - new_max);
        sum += weight;
        if (token < TILE_TOKENS)
          weights[swizzled<TOKEN_TILES>(row, token / 8) / 2 + token % 8] = from_float<Scalar>(weight);
      }
      const float shrink = exp2_or_zero(max_score[i] - new_max);
      max_score[i] = new_max, total[i] = total[i] * shrink + sum_over_lanes<1, WARP_SIZE>(sum);
      if (lane == 0) rescale[row] = shrink;
    }
    __syncthreads();

    // 4. Accumulate: weights [16 heads, 16 tokens] times values [16 tokens, 16 columns of the warp's].
#pragma unroll
    for (int h = 0; h < HEAD_TILES; ++h) {
      const float upper = rescale[16 * h + lane / 4], lower = rescale[16 * h + lane / 4 + 8];
#pragma unroll
      for (int n = 0; n < COLUMNS / 8; ++n)
        out[h][n][0] *= upper, out[h][n][1] *= upper, out[h][n][2] *= lower, out[h][n][3] *= lower;
    }
#pragma unroll
    for (int token = 0; token < TILE_TOKENS; token += 16) {
      unsigned weight[HEAD_TILES][4];
#pragma unroll
      for (int h = 0; h < HEAD_TILES; ++h)
        load_matrices(weight[h],
                      shared_address(weights) + swizzled<TOKEN_TILES>(16 * h + lane % 16, token / 8 + lane / 16));
#pragma unroll
      for (int n = 0; n < COLUMNS / 8; n += 2) {
        unsigned value[4];
        load_matrices_transposed(value,
                                 tokens + swizzled<CHUNKS>(token + lane % 16, warp * (COLUMNS / 8) + n + lane / 16));
#pragma unroll
        for (int h = 0; h < HEAD_TILES; ++h) {
          multiply_add<Scalar>(out[h][n], weight[h], value[0], value[1]);
          multiply_add<Scalar>(out[h][n + 1], weight[h], value[2], value[3]);
        }
      }
    }
  }

  // 5. Store: with one partition that is the answer; else leave the sums for the block that is done last.
#pragma unroll
  for (int i = 0; i < ROWS; ++i)
    if (lane == 0) row_stats[warp + i * NUM_WARPS] = make_float2(max_score[i], total[i]);
  __syncthreads();
  const int partitions = (seq_len + PARTITION_SIZE - 1) / PARTITION_SIZE;
  const long long first_place = first_row * gridDim.z;
#pragma unroll
  for (int h = 0; h < HEAD_TILES; ++h) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = 16 * h + 8 * half + lane / 4;
      if (row >= heads) continue;
      const long long place = first_place + (long long)row * gridDim.z + blockIdx.z;
      const float sink = sinks ? sinks[first_head + row] * LOG2_E : -infinity();
      const float per_sum = 1.f / (row_stats[row].y + exp2_or_zero(sink - row_stats[row].x));
#pragma unroll
      for (int n = 0; n < COLUMNS / 8; ++n) {
        const int column = warp * COLUMNS + 8 * n + lane % 4 * 2;
        const float* sums = out[h][n] + 2 * half;
        if (partitions == 1)
          *reinterpret_cast<unsigned*>(output + (first_row + row) * LATENT_SIZE + column) =
              pack<Scalar>(sums[0] * per_sum, sums[1] * per_sum);
        else
          *reinterpret_cast<float2*>(partial_out + place * LATENT_SIZE + column) = make_float2(sums[0], sums[1]);
      }
      if (partitions > 1 && warp == 0 && lane % 4 == 0) partial_stats[place] = row_stats[row];
    }
  }
  if (partitions == 1 || !last_to_arrive(counters + seq * gridDim.x + blockIdx.x, partitions)) return;

  // 6. Reduce over the partitions.
  reduce_partitions<LATENT_SIZE, NUM_THREADS>(output + first_row * LATENT_SIZE, partial_out + first_place * LATENT_SIZE,
                                              partial_stats + first_place, sinks ? sinks + first_head : nullptr, heads,
                                              partitions);
}
