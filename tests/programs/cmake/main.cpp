#include <cstdio>
#include "parts.h"
int main() {
  int v = doubled(21);
  std::printf("%d\n", v);
  return v != 42;
}
