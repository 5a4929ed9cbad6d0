// Sums of doubles in the order that the reference fixes, so that a mean or a norm rounds alike everywhere.
#pragma once
#include <cstring>

#include "instruction_sets.h"

namespace {

using laconic::BLOCK;

// Adds the upper half to the lower until one is left; an odd one out meets a zero.
inline double fold_halves(double* sums, size_t count) {
  while (count > 1) {
    size_t half = (count + 1) / 2;
    for (size_t i = 0; i + half < count; ++i) sums[i] += sums[i + half];
    count = half;
  }
  return count ? sums[0] : 0.0;
}

// Calls visit(i, lanes) for every sixteen elements of [0, n); lanes < 16 in the last call only.
template <class Visit> inline void each_pack(size_t n, Visit visit) {
  size_t i = 0;
  for (; i + LANES <= n; i += LANES) visit(i, LANES);
  if (i < n) visit(i, int(n - i));
}

inline Floats load_pack(const float* p, int lanes) { return lanes == LANES ? load(p) : load_some(p, lanes); }
inline void store_pack(float* p, Floats v, int lanes) { lanes == LANES ? store(p, v) : store_some(p, v, lanes); }

template <bool RESIDUAL> inline Floats summed(const float* x, const float* residual, int lanes) {
  Floats v = load_pack(x, lanes);
  return RESIDUAL ? v + load_pack(residual, lanes) : v;
}

// x + residual, stored back into x.
template <bool RESIDUAL> inline Floats folded(float* x, const float* residual, int lanes) {
  Floats v = load_pack(x, lanes);
  if (RESIDUAL) {
    v = v + load_pack(residual, lanes);
    store_pack(x, v, lanes);
  }
  return v;
}

}  // namespace
