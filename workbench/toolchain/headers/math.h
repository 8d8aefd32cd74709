#pragma once
// NVRTC declares the functions of this header by itself.
#ifndef INFINITY
#define INFINITY __builtin_bit_cast(float, 0x7f800000)
#endif
#ifndef NAN
#define NAN __builtin_bit_cast(float, 0x7fc00000)
#endif
#ifndef HUGE_VAL
#define HUGE_VAL __builtin_bit_cast(double, 0x7ff0000000000000LL)
#define HUGE_VALF __builtin_bit_cast(float, 0x7f800000)
#define HUGE_VALL __builtin_bit_cast(double, 0x7ff0000000000000LL)
#endif
#ifndef SNAN
#define SNAN __builtin_bit_cast(double, 0x7ff4000000000000LL)
#define SNANF __builtin_bit_cast(float, 0x7fa00000)
#define SNANL __builtin_bit_cast(double, 0x7ff4000000000000LL)
#endif
