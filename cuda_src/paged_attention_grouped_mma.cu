// Paged attention of one new token per sequence, the query heads of a group packed into one tile for tensor cores: one
// block per (KV head, sequence, partition of PARTITION_SIZE tokens), so that every byte of K and V is read once. A warp
// is a pipeline of its own: it takes every NUM_WARPS-th tile of TILE_TOKENS tokens, copies ahead into NUM_STAGES stages
// of shared memory that is its own, and meets the other warps only at the end. Scores do not wait for values.
//
//   output        [num_seqs, num_heads, HEAD_SIZE]
//   partial_out, partial_stats, counters [num_seqs, num_kv_heads]             see common/partitions.cuh
//   query         [num_seqs, num_heads, HEAD_SIZE]                            rows query_stride apart
//   key_cache, value_cache   "nhd" [num_blocks, BLOCK_SIZE, num_kv_heads, HEAD_SIZE] or
//                            "hnd" [num_blocks, num_kv_heads, BLOCK_SIZE, HEAD_SIZE]; pages *_page_stride apart
//   block_tables  [num_seqs, max_blocks], seq_lens [num_seqs]
//   k_scale, v_scale [1], [num_kv_heads], or with TOKEN_SCALES [num_blocks, BLOCK_SIZE, num_kv_heads]: by their strides
//   alibi_slopes, sinks [num_heads]: null where not used, like the scales of a cache that is not quantized
//
// Products of a quantized cache are in fp16 (common/operands.cuh); a query is brought to numbers below 2 by a power of
// two, so that those of a bf16 one fit. Scales of K multiply scores, scales of V sums, or the weights of their tokens.
//
// Tunables: BLOCK_SIZE tokens per page, PARTITION_SIZE per block, TILE_TOKENS per tile, NUM_STAGES tiles of a warp that
// are under way or in use, NUM_THREADS. Idea: Flash-Decoding (Dao et al., 2023) for the split, FlashInfer (Ye et al.,
// 2025) for the packed group, FlashAttention-2 (Dao, 2023) for weights that stay in registers.
#include "common/exponentials.cuh"
#include "common/operands.cuh"
#include "common/paged_tiles.cuh"
#include "common/partitions.cuh"
#include "common/token_scales.cuh"

#ifndef SCALAR
#define SCALAR __half
#define CACHE __half
#define TOKEN_SCALES 0
#define GROUP 4
#define HEAD_SIZE 128
#define BLOCK_SIZE 16
#define PARTITION_SIZE 512
#define TILE_TOKENS 16
#define NUM_STAGES 3
#define NUM_THREADS 128
#endif

using Scalar = SCALAR;
using Cache = CACHE;
using Elements = Operands<Cache>;
using Operand = Elements::Operand;
using Tile = PagedTile<Cache, HEAD_SIZE, BLOCK_SIZE, TILE_TOKENS>;
constexpr int NUM_WARPS = NUM_THREADS / WARP_SIZE, NUM_PAGES = PARTITION_SIZE / BLOCK_SIZE;
constexpr int QUERY_TILES = (GROUP + 7) / 8, QUERY_ROWS = 8 * QUERY_TILES;  // a product has 8 columns
constexpr int HEAD_STEPS = (HEAD_SIZE + 15) / 16, STEPS = Elements::STEPS;  // of a product along the head; in a load
constexpr bool QUERIES_STAY = HEAD_STEPS * (QUERY_TILES + TILE_TOKENS / 16) <= 32;  // in registers, if they are few
constexpr int CHUNKS = Tile::CHUNKS, SCALE_BYTES = TOKEN_SCALES ? TILE_TOKENS * 4 : 0;
constexpr int STAGE_BYTES = 2 * Tile::BYTES + 2 * SCALE_BYTES;
constexpr int OUT_STRIDE = HEAD_STEPS * 16 + 4;        // four floats more, so that a warp's stores meet no bank twice
constexpr int SUM_BYTES = QUERY_ROWS * OUT_STRIDE * 4;  // in the end the sums of a warp take the place of its tiles
constexpr int WARP_BYTES = NUM_STAGES * STAGE_BYTES > SUM_BYTES ? NUM_STAGES * STAGE_BYTES : SUM_BYTES;
// Small tiles leave room for 12 warps, at 168 registers; left alone, ptxas may take more, for nothing.
constexpr int RESIDENT_WARPS = QUERY_TILES * HEAD_STEPS <= 8 && Tile::BYTES <= 4096 ? 12 : 8;
constexpr int MIN_BLOCKS = RESIDENT_WARPS > NUM_WARPS ? RESIDENT_WARPS / NUM_WARPS : 1;
constexpr int PENDING = 2 * (NUM_STAGES - 1) - 1;  // groups of copies younger than the one that is waited for

extern "C" __global__ void __launch_bounds__(NUM_THREADS, MIN_BLOCKS)
paged_attention_grouped(Scalar* __restrict__ output, float* partial_out, float2* partial_stats, unsigned* counters,
                        const Scalar* __restrict__ query, const Cache* __restrict__ key_cache,
                        const Cache* __restrict__ value_cache, const int* __restrict__ block_tables,
                        const int* __restrict__ seq_lens, const float* __restrict__ k_scale,
                        const float* __restrict__ v_scale, const float* __restrict__ alibi_slopes,
                        const float* __restrict__ sinks, float scale, float soft_cap, int sliding_window,
                        int table_stride, long long query_stride, long long key_page_stride,
                        long long value_page_stride, int head_stride, int token_stride, long long k_scale_page,
                        int k_scale_token, int k_scale_head, long long v_scale_page, int v_scale_token,
                        int v_scale_head) {
  const int kv_head = blockIdx.x, seq = blockIdx.y, first_head = kv_head * GROUP, num_heads = gridDim.x * GROUP;
  const int warp = threadIdx.x / WARP_SIZE, lane = threadIdx.x % WARP_SIZE;
  const int base = blockIdx.z * PARTITION_SIZE;  // tokens are counted from here
  const int seq_len = seq_lens[seq];
  const int window_start = sliding_window > 0 ? max(seq_len - sliding_window, 0) : 0;
  const int begin = max(window_start - base, 0), end = min(seq_len - base, PARTITION_SIZE);
  if (begin >= end) {  // the whole block: past the sequence, or before the window
    if (seq_len == 0 && blockIdx.z == 0)
      for (int i = threadIdx.x; i < GROUP * HEAD_SIZE; i += NUM_THREADS)
        output[(seq * num_heads + first_head) * (long long)HEAD_SIZE + i] = from_float<Scalar>(0.f);
    return;
  }

  extern __shared__ __align__(128) unsigned char tiles[];  // [NUM_WARPS][NUM_STAGES][K, V, scales of K, of V]
  __shared__ alignas(128) Operand query_tile[QUERY_ROWS * HEAD_STEPS * 16];
  __shared__ float query_unit[QUERY_ROWS], sink[QUERY_ROWS];
  __shared__ int pages[NUM_PAGES];
  __shared__ float warp_max[NUM_WARPS][QUERY_ROWS], warp_sum[NUM_WARPS][QUERY_ROWS];

  // 1. Load the queries of the group, padded with zeros to whole tiles, and the pages of the partition, so that no
  //    copy of K or V waits for the block table.
  const int* table = block_tables + (long long)seq * table_stride + base / BLOCK_SIZE;
  for (int i = threadIdx.x; i < NUM_PAGES; i += NUM_THREADS)
    pages[i] = i * BLOCK_SIZE < end && (i + 1) * BLOCK_SIZE > begin ? table[i] : 0;
  for (int row = warp; row < QUERY_ROWS; row += NUM_WARPS)
    query_unit[row] = load_query<Elements, HEAD_SIZE>(
        query_tile, row, query + seq * query_stride + (first_head + row) * HEAD_SIZE, row < GROUP);
  if (threadIdx.x < GROUP) sink[threadIdx.x] = sinks ? sinks[first_head + threadIdx.x] * LOG2_E : -infinity();
  __syncthreads();

  const int first_tile = begin / TILE_TOKENS + warp, num_tiles = (end + TILE_TOKENS - 1) / TILE_TOKENS;
  const unsigned own = shared_address(tiles) + warp * WARP_BYTES;
  const Cache *keys = key_cache + kv_head * head_stride, *values = value_cache + kv_head * head_stride;
  const float *key_scales = k_scale + kv_head * k_scale_head, *value_scales = v_scale + kv_head * v_scale_head;
  const auto copy_keys = [&](unsigned stage, int tile) {  // and the scales of both
    const int start = tile * TILE_TOKENS;
    if (tile < num_tiles) {
      Tile::copy(stage, keys, pages, key_page_stride, token_stride, start, begin, end);
      if (TOKEN_SCALES) {
        const unsigned to = stage + 2 * Tile::BYTES;
        Tile::copy_scales(to, key_scales, pages, k_scale_page, k_scale_token, start, begin, end);
        Tile::copy_scales(to + SCALE_BYTES, value_scales, pages, v_scale_page, v_scale_token, start, begin, end);
      }
    }
    commit_copies();  // also of nothing, so that the count of groups stays right
  };
  const auto copy_values = [&](unsigned stage, int tile) {
    const int start = tile * TILE_TOKENS;
    if (tile < num_tiles)
      Tile::copy(stage + Tile::BYTES, values, pages, value_page_stride, token_stride, start, begin, end);
    commit_copies();
  };
#pragma unroll
  for (int stage = 0; stage < NUM_STAGES - 1; ++stage) {
    copy_keys(own + stage * STAGE_BYTES, first_tile + stage * NUM_WARPS);
    copy_values(own + stage * STAGE_BYTES, first_tile + stage * NUM_WARPS);
  }

  // Row and chunk of the lane in a 16x16 piece of four 8x8 matrices, for K, V and the query alike.
  const int piece_row = lane / 16 * 8 + lane % 8, piece_chunk = lane / 8 % 2;
  const auto in_tile = [&](int i, int first) {  // of tokens 16 * i and on and of the steps from `first` on
    const int chunk = 2 * first / STEPS + piece_chunk;  // where their number is odd, the last one is loaded twice
    return swizzled<CHUNKS>(16 * i + piece_row, CHUNKS % 2 ? min(chunk, CHUNKS - 1) : chunk);
  };
  const auto load_queries = [&](unsigned (&to)[4], int step) {
    unsigned piece[4];  // rows 8 to 15 are the same again where there is one tile of queries
    load_matrices(piece, shared_address(query_tile) +
                             swizzled<2 * HEAD_STEPS>(piece_row % QUERY_ROWS, 2 * step + piece_chunk));
    to[0] = piece[0], to[2] = piece[1];
    to[1] = QUERY_TILES > 1 ? piece[2] : 0u, to[3] = QUERY_TILES > 1 ? piece[3] : 0u;
  };
  unsigned queries[HEAD_STEPS][4];
#pragma unroll
  for (int step = 0; step < HEAD_STEPS; ++step)
    if (QUERIES_STAY) load_queries(queries[step], step);

  const float value_scale = v_scale && !TOKEN_SCALES ? *value_scales : 1.f;
  ValueScales<TILE_TOKENS, TOKEN_SCALES> value_unit;
  float factor[QUERY_TILES], max_score[QUERY_TILES], sum[QUERY_TILES] = {}, slope[QUERY_TILES] = {};
  float out[QUERY_TILES][HEAD_STEPS][4] = {};
#pragma unroll
  for (int q = 0; q < QUERY_TILES; ++q) {
    max_score[q] = -infinity();
    factor[q] = scale * (soft_cap > 0.f ? 1.f / soft_cap : LOG2_E);
    factor[q] *= Elements::UNIT * query_unit[8 * q + lane / 4];
    if (k_scale && !TOKEN_SCALES) factor[q] *= *key_scales;
    if (alibi_slopes && 8 * q + lane / 4 < GROUP) slope[q] = alibi_slopes[first_head + 8 * q + lane / 4] * LOG2_E;
  }
#pragma unroll 1
  for (int tile = first_tile, stage = 0, free_stage = NUM_STAGES - 1; tile < num_tiles; tile += NUM_WARPS) {
    const unsigned key_tile = own + stage * STAGE_BYTES, value_tile = key_tile + Tile::BYTES;
    const unsigned scales = value_tile + Tile::BYTES, free_tiles = own + free_stage * STAGE_BYTES;
    const int start = tile * TILE_TOKENS, next = tile + (NUM_STAGES - 1) * NUM_WARPS;
    wait_for_copies<PENDING>();
    __syncwarp();  // the keys of every lane are here, and the tile before is done with
    copy_keys(free_tiles, next);

    // 2. Score: queries [16, 16] times keys [16, 8 tokens], a lane holds two tokens of query lane / 4 (+ 8).
    float score[TILE_TOKENS / 8][4] = {};
#pragma unroll
    for (int first = 0; first < HEAD_STEPS; first += STEPS) {
#pragma unroll
      for (int step = first; step < min(first + STEPS, HEAD_STEPS); ++step)
        if (!QUERIES_STAY) load_queries(queries[step], step);
#pragma unroll
      for (int i = 0; i < TILE_TOKENS / 16; ++i) {
        unsigned piece[4], key[STEPS][4];
        load_matrices(piece, key_tile + in_tile(i, first));
        Elements::unpack_keys(key, piece);
#pragma unroll
        for (int step = first; step < min(first + STEPS, HEAD_STEPS); ++step) {
          multiply_add<Operand>(score[2 * i], queries[step], key[step - first][0], key[step - first][1]);
          multiply_add<Operand>(score[2 * i + 1], queries[step], key[step - first][2], key[step - first][3]);
        }
      }
    }
    const int first = start + lane % 4 * 2;  // the lane's first token
    const float distance = base + first - (seq_len - 1);
#pragma unroll
    for (int n = 0; n < TILE_TOKENS / 8; ++n) {
      const float2 key_scale = TOKEN_SCALES ? load_floats(scales + 32 * n + lane % 4 * 8) : make_float2(1.f, 1.f);
#pragma unroll
      for (int e = 0; e < 2 * QUERY_TILES; ++e) {
        score[n][e] *= factor[e / 2] * (e % 2 ? key_scale.y : key_scale.x);
        if (soft_cap > 0.f) score[n][e] = soft_cap * LOG2_E * tanh_of(score[n][e]);
        if (alibi_slopes) score[n][e] += slope[e / 2] * (distance + (8 * n + e % 2));
      }
    }
    if (start < begin || start + TILE_TOKENS > end) {
#pragma unroll
      for (int n = 0; n < TILE_TOKENS / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 2 * QUERY_TILES; ++e)
          if (8 * n + e % 2 < begin - first || 8 * n + e % 2 >= end - first) score[n][e] = -infinity();
      }
    }

    // 3. Rescale what was summed under the old maximum. A tile has a token inside, so that the new one is finite. The
    //    sums of values are held elsewhere: a lane has queries 2 * (lane % 4) and the one after it.
    const float shrink = value_unit.next(scales + SCALE_BYTES);
#pragma unroll
    for (int q = 0; q < QUERY_TILES; ++q) {
      float new_max = max_score[q];
#pragma unroll
      for (int n = 0; n < TILE_TOKENS / 8; ++n)
        new_max = fmaxf(new_max, fmaxf(score[n][2 * q], score[n][2 * q + 1]));
      new_max = max_over_lanes<1, 4>(new_max);
      const float rescale = exp2_or_zero(max_score[q] - new_max);
      max_score[q] = new_max;
      sum[q] *= rescale;
#pragma unroll
      for (int n = 0; n < TILE_TOKENS / 8; ++n) {
#pragma unroll
        for (int e = 2 * q; e < 2 * q + 2; ++e) {
          score[n][e] = exp2_or_zero(score[n][e] - new_max);
          sum[q] += score[n][e];
          score[n][e] *= value_unit.of(n, e % 2);
        }
      }
      const float even = __shfl_sync(ALL_LANES, rescale, lane % 4 * 8) * shrink;
      const float odd = __shfl_sync(ALL_LANES, rescale, lane % 4 * 8 + 4) * shrink;
#pragma unroll
      for (int d = 0; d < HEAD_STEPS; ++d)
        out[q][d][0] *= even, out[q][d][1] *= odd, out[q][d][2] *= even, out[q][d][3] *= odd;
    }

    // 4. Accumulate: values [16 of the head, 16 tokens] times weights [16 tokens, 8 queries]. The weights already lie
    //    in registers as the product wants them.
    wait_for_copies<PENDING>();
    __syncwarp();  // the values of every lane are here
    copy_values(free_tiles, next);
#pragma unroll
    for (int i = 0; i < TILE_TOKENS / 16; ++i) {
#pragma unroll
      for (int first = 0; first < HEAD_STEPS; first += STEPS) {
        unsigned piece[4], value[STEPS][4];
        load_matrices_transposed(piece, value_tile + in_tile(i, first));
        Elements::unpack_values(value, piece);
#pragma unroll
        for (int d = first; d < min(first + STEPS, HEAD_STEPS); ++d) {
#pragma unroll
          for (int q = 0; q < QUERY_TILES; ++q)
            multiply_add<Operand>(out[q][d], value[d - first],
                                  pack<Operand>(score[2 * i][2 * q], score[2 * i][2 * q + 1]),
                                  pack<Operand>(score[2 * i + 1][2 * q], score[2 * i + 1][2 * q + 1]));
        }
      }
    }
    free_stage = stage;
    stage = stage + 1 < NUM_STAGES ? stage + 1 : 0;
  }

  // 5. Reduce over the lanes of a query, then over the warps, each under its own maximum; a warp without a tile has
  //    minus infinity and counts for nothing. A warp's tiles are done with, and their place takes its sums.
  __syncwarp();
  const float unit = Elements::UNIT * value_unit.sums_unit();
  const auto warp_out = [&](int of) { return reinterpret_cast<float*>(tiles + of * WARP_BYTES); };
#pragma unroll
  for (int q = 0; q < QUERY_TILES; ++q) {
#pragma unroll
    for (int d = 0; d < HEAD_STEPS; ++d) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int row = 8 * q + lane % 4 * 2 + e % 2;
        warp_out(warp)[row * OUT_STRIDE + 16 * d + e / 2 * 8 + lane / 4] = out[q][d][e] * unit;
      }
    }
    sum[q] = sum_over_lanes<1, 4>(sum[q]);
    if (lane % 4 == 0) warp_max[warp][8 * q + lane / 4] = max_score[q], warp_sum[warp][8 * q + lane / 4] = sum[q];
  }
  __syncthreads();

  // 6. With one partition that is the answer; else leave the sums for the block that is done last. It adds up the
  //    partitions, each warp every NUM_WARPS-th, and the warps as above.
  const int first = window_start / PARTITION_SIZE, last = (seq_len + PARTITION_SIZE - 1) / PARTITION_SIZE;
  const long long row_of_all = seq * num_heads + first_head, first_place = row_of_all * gridDim.z;
  Scalar* output_rows = output + row_of_all * HEAD_SIZE;
  const auto all_warps = [&](int row, int place) {
    return over_warps<NUM_WARPS>(&warp_max[0][row], &warp_sum[0][row], QUERY_ROWS,
                                 warp_out(0) + row * OUT_STRIDE + place, WARP_BYTES / sizeof(float));
  };
  for (int i = threadIdx.x; i < GROUP * HEAD_SIZE; i += NUM_THREADS) {
    const int row = i / HEAD_SIZE, element = i % HEAD_SIZE;
    Sums all = all_warps(row, element / 16 * 16 + Elements::value_place(element % 16));
    all.of_values *= value_scale;
    if (last - first == 1) {
      output_rows[i] = from_float<Scalar>(all.average(sink[row]));
    } else {
      const long long place = first_place + (long long)row * gridDim.z + blockIdx.z;
      if (element == 0) partial_stats[place] = make_float2(all.max, all.of_weights);
      partial_out[place * HEAD_SIZE + element] = all.of_values;
    }
  }
  if (last - first == 1 || !last_to_arrive(counters + seq * gridDim.x + kv_head, last - first)) return;
  add_partitions<GROUP, HEAD_SIZE, NUM_WARPS, OUT_STRIDE>(
      warp_max[warp], warp_sum[warp], warp_out(warp), partial_out + first_place * HEAD_SIZE,
      partial_stats + first_place, first + warp, last, gridDim.z);
  __syncthreads();
  for (int i = threadIdx.x; i < GROUP * HEAD_SIZE; i += NUM_THREADS)
    output_rows[i] = from_float<Scalar>(all_warps(i / HEAD_SIZE, i % HEAD_SIZE).average(sink[i / HEAD_SIZE]));
}
