// Elements above a threshold. Magnitudes are compared as integers: the bits of |x| order like |x|.
#pragma once
#include "loops/sums.h"

namespace {

using laconic::Candidates;

template <bool RESIDUAL>
inline size_t collected(float* x, const float* residual, size_t from, size_t n, int32_t least, Candidates& found, double* energy) {
  Doubles sum = nothing();
  size_t at = from, count = found.count;
  for (; at < n && count <= found.room; at += LANES) {
    int lanes = n - at < LANES ? int(n - at) : LANES;
    Floats v = load_pack(x + at, lanes);
    if (RESIDUAL) v = v + load_pack(residual + at, lanes);
    add_square_to(sum, v);
    Mask chosen = at_least(magnitude_bits(v), least);
    if (lanes < LANES) chosen = both(chosen, first_lanes(lanes));
    if (bits_of(chosen)) {
      count += append(chosen, v, uint32_t(at), found.values + count, found.indices + count);
      store_pack(x + at, cleared(chosen, v), lanes);
    } else if (RESIDUAL) {
      store_pack(x + at, v, lanes);
    }
  }
  found.count = count;
  *energy += total(sum);
  return at < n ? at : n;
}

inline size_t collect_loop(float* x, const float* residual, size_t from, size_t n, int32_t least, Candidates& found, double* energy) {
  return residual ? collected<true>(x, residual, from, n, least, found, energy)
                  : collected<false>(x, x, from, n, least, found, energy);
}

inline size_t count_at_least_loop(const float* x, size_t n, int32_t least) {
  size_t count = 0;
  each_pack(n, [&](size_t i, int lanes) {
    uint32_t bits = bits_of(at_least(magnitude_bits(load_pack(x + i, lanes)), least));
    count += size_t(__builtin_popcount(bits & ((1u << lanes) - 1)));
  });
  return count;
}

}  // namespace
