// What policies ask of a layer without encoding it.
#include <algorithm>
#include <cstring>

#include "kernels.h"
#include "parallel.h"

namespace laconic {

namespace {

constexpr size_t BINS = 1 << 15;  // by exponent and seven bits of mantissa

uint32_t bin_of(float v) {
  uint32_t bits;
  std::memcpy(&bits, &v, 4);
  return bits >> 16 & 0x7fff;
}

struct Histogram {
  std::vector<uint32_t> counts = std::vector<uint32_t>(BINS);
  std::vector<double> energies = std::vector<double>(BINS);
};

}  // namespace

// One pass into a histogram of counts and energies. Left behind by top-k are the n - k smallest: whole bins, which the
// histogram knows, and the smaller part of one, whose members a second look at x brings together for all rungs at once.
void top_k_errors(const float* x, size_t n, const size_t* ks, size_t rungs, double* errors, int threads) {
  std::vector<Stretch> parts = stretches(n, 16, threads, 1);  // a histogram each
  std::vector<Histogram> seen(parts.size());
  at_once(parts.size(), threads, [&](size_t part) {
    uint32_t* counts = seen[part].counts.data();
    double* energies = seen[part].energies.data();
    for (size_t i = parts[part].from; i < parts[part].to; ++i) {
      uint32_t bin = bin_of(x[i]);
      ++counts[bin];
      energies[bin] += double(x[i]) * double(x[i]);
    }
  });
  std::vector<size_t> cut(rungs), left(rungs);  // the bin that is divided, and how many of it stay behind
  std::vector<uint8_t> divided(BINS);
  for (size_t rung = 0; rung < rungs; ++rung) {
    size_t bin = 0, staying = ks[rung] < n ? n - ks[rung] : 0;
    errors[rung] = 0.0;
    for (; staying; ++bin) {
      size_t count = 0;
      double energy = 0.0;
      for (const Histogram& each : seen) {
        count += each.counts[bin];
        energy += each.energies[bin];
      }
      if (count > staying) break;
      staying -= count;
      errors[rung] += energy;
    }
    cut[rung] = bin;
    left[rung] = staying;
    if (staying) divided[bin] = 1;
  }
  std::vector<std::vector<std::vector<float>>> members(parts.size(), std::vector<std::vector<float>>(rungs));
  at_once(parts.size(), threads, [&](size_t part) {
    for (size_t i = parts[part].from; i < parts[part].to; ++i)
      if (divided[bin_of(x[i])])
        for (size_t rung = 0; rung < rungs; ++rung)
          if (left[rung] && bin_of(x[i]) == cut[rung]) members[part][rung].push_back(x[i] < 0 ? -x[i] : x[i]);
  });
  for (size_t rung = 0; rung < rungs; ++rung) {
    std::vector<float> all;
    for (auto& part : members) all.insert(all.end(), part[rung].begin(), part[rung].end());
    if (left[rung] < all.size()) std::nth_element(all.begin(), all.begin() + ptrdiff_t(left[rung]), all.end());
    for (size_t i = 0; i < left[rung]; ++i) errors[rung] += double(all[i]) * double(all[i]);
  }
}

}  // namespace laconic
