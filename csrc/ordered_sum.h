// reference.totals for code that is compiled once: blocks of 1024 in sixteen lanes, lanes and blocks folded in halves.
#pragma once
#include <cstddef>
#include <vector>

#include "instruction_sets.h"

namespace laconic {

inline double fold_sums(double* sums, size_t count) {
  while (count > 1) {
    size_t half = (count + 1) / 2;
    for (size_t i = 0; i + half < count; ++i) sums[i] += sums[i + half];
    count = half;
  }
  return count ? sums[0] : 0.0;
}

inline double ordered_sum(const float* v, size_t n) {
  std::vector<double> sums;
  for (size_t from = 0; from < n; from += BLOCK) {
    double lanes[16] = {};
    size_t to = from + BLOCK < n ? from + BLOCK : n, i = from;
    for (; i + 16 <= to; i += 16)
      for (size_t lane = 0; lane < 16; ++lane) lanes[lane] += double(v[i + lane]);
    for (size_t lane = 0; i < to; ++i, ++lane) lanes[lane] += double(v[i]);
    sums.push_back(fold_sums(lanes, 16));
  }
  return fold_sums(sums.data(), sums.size());
}

}  // namespace laconic
