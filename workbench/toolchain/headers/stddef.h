#pragma once
typedef unsigned long size_t;
typedef long ptrdiff_t;
#define offsetof(type, member) ((size_t)&reinterpret_cast<const volatile char &>(((type *)0)->member))
