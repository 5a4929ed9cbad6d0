// What policies ask of a layer without encoding it.
#include <cstring>

#include "kernels.h"
#include "parallel.h"

namespace laconic {

namespace {

constexpr size_t BINS = 1 << 15;  // exponent and seven bits of mantissa: values of a bin differ by less than 2^-7

float edge(size_t bin) {
  uint32_t bits = uint32_t(bin) << 16;
  float out;
  std::memcpy(&out, &bits, 4);
  return out;
}

}  // namespace

void top_k_errors(const float* x, size_t n, const size_t* ks, size_t rungs, double* errors, int threads) {
  std::vector<Stretch> parts = stretches(n, 16, threads);
  std::vector<std::vector<uint32_t>> tallies(parts.size(), std::vector<uint32_t>(BINS));
  at_once(parts.size(), [&](size_t part) {
    uint32_t* tally = tallies[part].data();
    for (size_t i = parts[part].from; i < parts[part].to; ++i) {
      uint32_t bits;
      std::memcpy(&bits, x + i, 4);
      ++tally[bits >> 16 & 0x7fff];
    }
  });
  // Left behind by top-k are the n - k smallest: from below, whole bins and then a part of one.
  for (size_t rung = 0; rung < rungs; ++rung) {
    double error = 0.0;
    size_t left = ks[rung] < n ? n - ks[rung] : 0;
    for (size_t bin = 0; bin < BINS && left; ++bin) {
      size_t count = 0;
      for (const auto& tally : tallies) count += tally[bin];
      if (!count) continue;
      if (count > left) count = left;
      double low = edge(bin), high = edge(bin + 1);
      error += double(count) * (low * low + low * high + high * high) / 3.0;
      left -= count;
    }
    errors[rung] = error;
  }
}

}  // namespace laconic
