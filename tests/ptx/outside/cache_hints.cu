// A copy that says all that one can say about caches: policies, prefetches, priorities, evictions.
extern "C" __global__ void hinted_copy(const int4* in, int4* out, int* scratch, int count) {
  unsigned long long keep, stream;
  asm volatile("createpolicy.fractional.L2::evict_last.L2::evict_unchanged.b64 %0, 0.5;\n" : "=l"(keep));
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0;\n" : "=l"(stream));
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  asm volatile("prefetch.global.L2 [%0];\n" ::"l"(in + i));
  asm volatile("prefetch.global.L2::evict_last [%0];\n" ::"l"(in + i));
  asm volatile("prefetchu.L1 [%0];\n" ::"l"(in + i));
  int4 v, w;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.s32 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(in + i));
  asm volatile("ld.global.L1::evict_last.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;\n"
               : "=r"(w.x), "=r"(w.y), "=r"(w.z), "=r"(w.w)
               : "l"(in + i), "l"(keep));
  asm volatile("st.global.L2::cache_hint.v4.b32 [%0], {%1, %2, %3, %4}, %5;\n" ::"l"(out + i), "r"(v.x), "r"(w.y), "r"(v.z),
               "r"(w.w), "l"(stream)
               : "memory");
  asm volatile("red.global.add.L2::cache_hint.u32 [%0], %1, %2;\n" ::"l"(scratch), "r"(1), "l"(keep) : "memory");
  if (i == 0) {
    asm volatile("applypriority.global.L2::evict_normal [%0], 128;\n" ::"l"(scratch + 32) : "memory");
    asm volatile("discard.global.L2 [%0], 128;\n" ::"l"(scratch + 32) : "memory");
  }
}
