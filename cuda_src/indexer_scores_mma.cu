// Scores of an indexer over a paged cache of keys, on tensor cores: one block per (tile of TILE_TOKENS tokens,
// sequence). All heads share one key per token, so that keys times queries is a product of matrices, [tokens, heads];
// its positive elements are weighted and summed over the heads where they are, in registers.
//
//   output        [num_seqs, max_seq_len] fp32, minus infinity past the end
//   query         [num_seqs, NUM_HEADS, HEAD_SIZE], on 16 bytes
//   weights       [num_seqs, NUM_HEADS] fp32
//   index_cache   [num_blocks, BLOCK_SIZE, HEAD_SIZE]                       pages page_stride apart, on 16 bytes
//                 QUANTIZED: queries are codes of e4m3; a page is BLOCK_SIZE rows of codes, then a scale for each
//   block_tables  [num_seqs, max_blocks], seq_lens [num_seqs]
//
// Tunables: BLOCK_SIZE tokens per page, TILE_TOKENS per block, NUM_THREADS. Idea: DeepGEMM (DeepSeek, 2025),
// fp8_paged_mqa_logits.
#include "common/eight_bits.cuh"
#include "common/reductions.cuh"
#include "common/tensor_cores.cuh"

#ifndef SCALAR
#define SCALAR __nv_bfloat16
#define NUM_HEADS 64
#define HEAD_SIZE 128
#define BLOCK_SIZE 64
#define TILE_TOKENS 64
#define NUM_THREADS 128
#endif

using Scalar = SCALAR;
constexpr int NUM_WARPS = NUM_THREADS / WARP_SIZE;
constexpr int CHUNKS = HEAD_SIZE / 8, STEPS = HEAD_SIZE / 16;  // of 16 bytes in a row; of a product along it
constexpr int HEADS = (NUM_HEADS + 15) / 16 * 16;
constexpr int MAX_PAGES = (TILE_TOKENS + BLOCK_SIZE - 2) / BLOCK_SIZE + 1;  // that a tile has tokens in
#ifdef QUANTIZED
using Stored = unsigned char;
constexpr float UNIT = EightBits<__nv_fp8_e4m3>::UNIT * EightBits<__nv_fp8_e4m3>::UNIT;
#else
using Stored = Scalar;
#endif

// Copy eight elements of a row to its chunk of a tile, codes as fp16; zeros unless `used`.
__device__ __forceinline__ void copy_chunk(unsigned char* tile, int row, int chunk, const Stored* from, bool used) {
  unsigned char* to = tile + swizzled<CHUNKS>(row, chunk);
#ifdef QUANTIZED
  const uint2 codes = used ? *reinterpret_cast<const uint2*>(from + chunk * 8) : make_uint2(0u, 0u);
  uint4 halves;
  unsigned even, odd;
  widen_even_odd<__nv_fp8_e4m3>(codes.x, even, odd);
  halves.x = __byte_perm(even, odd, 0x5410), halves.y = __byte_perm(even, odd, 0x7632);
  widen_even_odd<__nv_fp8_e4m3>(codes.y, even, odd);
  halves.z = __byte_perm(even, odd, 0x5410), halves.w = __byte_perm(even, odd, 0x7632);
  *reinterpret_cast<uint4*>(to) = halves;
#else
  copy_async<16>(shared_address(to), from + chunk * 8, used ? 16 : 0);
#endif
}

extern "C" __global__ void __launch_bounds__(NUM_THREADS)
    indexer_scores(float* __restrict__ output, const Stored* __restrict__ query, const float* __restrict__ weights,
                   const Stored* __restrict__ index_cache, const int* __restrict__ block_tables,
                   const int* __restrict__ seq_lens, int max_seq_len, long long table_stride, long long page_stride) {
  const int first = blockIdx.x * TILE_TOKENS, seq = blockIdx.y, seq_len = seq_lens[seq];
  const int warp = threadIdx.x / WARP_SIZE, lane = threadIdx.x % WARP_SIZE;
  output += (long long)seq * max_seq_len;
  if (first >= seq_len) {
    for (int token = first + threadIdx.x; token < min(first + TILE_TOKENS, max_seq_len); token += NUM_THREADS)
      output[token] = -infinity();
    return;
  }
  extern __shared__ __align__(128) unsigned char tiles[];  // queries [HEADS], then keys [TILE_TOKENS]
  __shared__ float head_weights[HEADS];
  __shared__ int pages[MAX_PAGES];
  unsigned char* keys = tiles + HEADS * CHUNKS * 16;

  // 1. Load the queries of all heads, zeros for heads that do not exist, and the keys of the tile, zeros past the end.
  query += (long long)seq * NUM_HEADS * HEAD_SIZE;
  for (int i = threadIdx.x; i < HEADS * CHUNKS; i += NUM_THREADS) {
    const int head = i / CHUNKS;
    copy_chunk(tiles, head, i % CHUNKS, query + min(head, NUM_HEADS - 1) * HEAD_SIZE, head < NUM_HEADS);
  }
  for (int i = threadIdx.x; i < HEADS; i += NUM_THREADS)
    head_weights[i] = i < NUM_HEADS ? weights[(long long)seq * NUM_HEADS + i] : 0.f;
  const int first_page = first / BLOCK_SIZE, last_page = (seq_len - 1) / BLOCK_SIZE;
  const int* table = block_tables + seq * table_stride;
  for (int i = threadIdx.x; i < MAX_PAGES; i += NUM_THREADS) pages[i] = table[min(first_page + i, last_page)];
  __syncthreads();
  for (int i = threadIdx.x; i < TILE_TOKENS * CHUNKS; i += NUM_THREADS) {
    const int row = i / CHUNKS, token = min(first + row, seq_len - 1);
    const Stored* page = index_cache + pages[token / BLOCK_SIZE - first_page] * page_stride;
    copy_chunk(keys, row, i % CHUNKS, page + token % BLOCK_SIZE * HEAD_SIZE, first + row < seq_len);
  }
  commit_copies();
  wait_for_copies<0>();
  __syncthreads();

  for (int strip = warp; strip < TILE_TOKENS / 16; strip += NUM_WARPS) {
    // 2. Score: a warp keeps 16 keys, and takes 16 heads at a time.
    unsigned key[STEPS][4];
#pragma unroll
    for (int step = 0; step < STEPS; ++step)
      load_matrices(key[step],
                    shared_address(keys) + swizzled<CHUNKS>(strip * 16 + lane % 16, 2 * step + lane / 16));
    float score[2] = {};  // of tokens lane / 4 and lane / 4 + 8
    for (int head = 0; head < HEADS; head += 16) {
      float products[2][4] = {};
#pragma unroll
      for (int step = 0; step < STEPS; ++step) {
        unsigned q[4];
        load_matrices(q, shared_address(tiles) + swizzled<CHUNKS>(head + lane / 16 * 8 + lane % 8,
                                                                  2 * step + lane / 8 % 2));
        multiply_add<Scalar>(products[0], key[step], q[0], q[1]);
        multiply_add<Scalar>(products[1], key[step], q[2], q[3]);
      }
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        const float weight = head_weights[head + e / 4 * 8 + lane % 4 * 2 + e % 2];
        score[e % 4 / 2] += weight * fmaxf(products[e / 4][e % 4], 0.f);
      }
    }

    // 3. Store: the four lanes of a token add up their heads.
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = sum_over_lanes<1, 4>(score[half]);
      const int token = first + strip * 16 + half * 8 + lane / 4;
      if (lane % 4 || token >= max_seq_len) continue;
#ifdef QUANTIZED
      const int within = min(token, seq_len - 1);
      const Stored* page = index_cache + pages[within / BLOCK_SIZE - first_page] * page_stride;
      const float scale = reinterpret_cast<const float*>(page + BLOCK_SIZE * HEAD_SIZE)[within % BLOCK_SIZE] * UNIT;
#else
      constexpr float scale = 1.f;
#endif
      output[token] = token < seq_len ? sum * scale : -infinity();
    }
  }
}
