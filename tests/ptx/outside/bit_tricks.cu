// Warp votes and bit fiddling: which lanes are here, who has my key, packed dot products and saturating packs.
extern "C" __global__ void tricks(const unsigned* in, unsigned* out) {
  const unsigned lane = threadIdx.x, x = in[lane];
  unsigned* mine = out + lane * 8;
  unsigned lt, peers, active, ones, top, field;
  asm("mov.u32 %0, %lanemask_lt;" : "=r"(lt));
  asm volatile("match.any.sync.b32 %0, %1, 0xffffffff;" : "=r"(peers) : "r"(x & 3));
  mine[0] = __popc(peers & lt);
  active = 0;
  if (x & 1) asm volatile("activemask.b32 %0;" : "=r"(active));
  mine[1] = active;
  asm volatile("redux.sync.max.u32 %0, %1, 0xffffffff;" : "=r"(top) : "r"(x));
  mine[2] = top;
  asm("bfind.shiftamt.u32 %0, %1;" : "=r"(ones) : "r"(x));
  asm("bfe.u32 %0, %1, 4, 8;" : "=r"(field) : "r"(x));
  mine[3] = ones << 8 | field;
  asm("dp4a.s32.u32 %0, %1, %2, %3;" : "=r"(field) : "r"(x), "r"(0x01020304), "r"(7));
  mine[4] = field;
  asm("{ .reg .b32 t; cvt.pack.sat.s8.s32.b32 t, %1, %2, 0; cvt.pack.sat.s8.s32.b32 %0, %3, %4, t; }"
      : "=r"(field)
      : "r"(static_cast<int>(x)), "r"(300), "r"(-300), "r"(5));
  mine[5] = field;
  asm("{ .reg .pred p, q; setp.lt.s32 p|q, %1, %2; selp.u32 %0, 1, 2, p; @q add.u32 %0, %0, 4; }"
      : "=&r"(field)
      : "r"(static_cast<int>(x)), "r"(1000));
  mine[6] = field;
  asm("vabsdiff4.u32.u32.u32.add %0, %1, %2, %3;" : "=r"(field) : "r"(x), "r"(0x10203040), "r"(1));
  mine[7] = field;
}
