// Kernels that must know something of the whole layer before they can finish an element: signs and powers of two.
#include <cmath>
#include <cstring>

#include "kernels.h"
#include "ordered_sum.h"
#include "parallel.h"
#include "scratch.h"

namespace laconic {

namespace {

const float* after(const float* residual, size_t from) { return residual ? residual + from : nullptr; }
constexpr size_t AT_A_TIME = 256 * BLOCK;  // of a pass that goes backwards: long enough for the hardware to read ahead

size_t blocks(size_t n) { return (n + BLOCK - 1) / BLOCK; }

}  // namespace

Signs sign(float* x, const float* residual, size_t n, uint8_t* bits, bool two_sided, int threads) {
  thread_local Scratch scratch;
  double* above = scratch.of<double>(2 * blocks(n));
  double* below = above + blocks(n);
  std::vector<Stretch> parts = stretches(n, BLOCK, threads);
  std::vector<Survey> found(parts.size());
  at_once(parts.size(), threads, [&](size_t i) {
    size_t from = parts[i].from, first = from / BLOCK;
    table().sign(x + from, after(residual, from), parts[i].to - from, bits + from / 8, above + first, two_sided ? below + first : nullptr, found[i]);
  });
  double energy = 0.0;
  size_t ups = 0;
  for (const Survey& each : found) {
    energy += each.energy;
    ups += each.ups;
  }
  if (!std::isfinite(energy)) {
    std::memset(x, 0, n * sizeof(float));
    std::memset(bits, 0xff, n / 8);
    if (n % 8) bits[n / 8] = uint8_t((1u << n % 8) - 1);
    return {energy, two_sided ? 0.0f : -0.0f, 0.0f};
  }
  auto mean = [](double sum, size_t count) { return float(sum / double(count ? count : 1)); };
  float up = mean(fold_sums(above, blocks(n)), two_sided ? ups : n);
  float down = two_sided ? mean(fold_sums(below, blocks(n)), n - ups) : -up;
  at_once(parts.size(), threads, [&](size_t i) {  // backwards: what was seen last is still in the cache
    size_t from = parts[parts.size() - 1 - i].from, to = parts[parts.size() - 1 - i].to;
    while (to > from) {
      size_t start = (to - 1) / AT_A_TIME * AT_A_TIME;
      if (start < from) start = from;
      table().unsign_from(x + start, to - start, down, up);
      to = start;
    }
  });
  return {energy, down, up};
}

void unsign_add(const uint8_t* bits, float clear, float set, float* out, size_t n, int threads) {
  std::vector<Stretch> parts = stretches(n, BLOCK, threads);
  at_once(parts.size(), threads, [&](size_t i) {
    size_t from = parts[i].from;
    table().unsign(bits + from / 8, clear, set, out + from, parts[i].to - from);
  });
}

// Counters as bit planes: plane p holds bit p of 64 counts.
void majority(const uint8_t* rows, size_t count, size_t pitch, uint8_t* out, size_t size) {
  size_t enough = (count + 1) / 2;
  int planes = 1;
  while (count >> planes) ++planes;
  for (size_t at = 0; at < size; at += 8) {
    size_t width = size - at < 8 ? size - at : 8;
    uint64_t counts[64] = {};
    for (size_t row = 0; row < count; ++row) {
      uint64_t carry = 0;
      std::memcpy(&carry, rows + row * pitch + at, width);
      for (int p = 0; p < planes; ++p) {
        uint64_t next = counts[p] & carry;
        counts[p] ^= carry;
        carry = next;
      }
    }
    uint64_t more = 0, equal = ~uint64_t(0);
    for (int p = planes - 1; p >= 0; --p) {
      uint64_t wanted = enough >> p & 1 ? ~uint64_t(0) : 0;
      more |= equal & counts[p] & ~wanted;
      equal &= ~(counts[p] ^ wanted);
    }
    more |= equal;
    std::memcpy(out + at, &more, width);
  }
}

Powers natural(float* x, const float* residual, size_t n, uint8_t* codes, uint64_t seed, int threads) {
  if (!n) return {0.0, 0};
  thread_local Scratch scratch;
  double* sums = scratch.of<double>(blocks(n));
  std::vector<Stretch> parts = stretches(n, BLOCK, threads);
  std::vector<Survey> found(parts.size());
  at_once(parts.size(), threads, [&](size_t i) {
    size_t from = parts[i].from;
    table().survey(x + from, after(residual, from), parts[i].to - from, sums + from / BLOCK, found[i]);
  });
  double energy = 0.0;
  float largest = 0.0f;
  for (const Survey& each : found) {
    energy += each.energy;
    largest = each.largest > largest ? each.largest : largest;
  }
  if (!std::isfinite(energy)) std::memset(x, 0, n * sizeof(float));
  if (!std::isfinite(energy) || largest == 0.0f) {
    std::memset(codes, 0, n);
    return {energy, 0};
  }
  int exponent;
  std::frexp(largest, &exponent);  // 2^(exponent - 1) <= largest < 2^exponent: it may be rounded up
  if (exponent > 127) exponent = 127;
  at_once(parts.size(), threads, [&](size_t i) {
    size_t from = parts[i].from;
    table().natural(x + from, codes + from, parts[i].to - from, from, exponent, seed);
  });
  return {energy, exponent};
}

void unnatural_add(const uint8_t* codes, int exponent, float* out, size_t n, float weight, int threads) {
  std::vector<Stretch> parts = stretches(n, BLOCK, threads);
  at_once(parts.size(), threads, [&](size_t i) {
    size_t from = parts[i].from;
    table().unnatural(codes + from, out + from, parts[i].to - from, exponent, weight);
  });
}

}  // namespace laconic
