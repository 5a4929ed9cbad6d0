// Kernels that touch every element alike: fold, settle, 16 bits, quantisation.
#include <cmath>
#include <cstring>

#include "kernels.h"
#include "parallel.h"

namespace laconic {

namespace {

// The sum of work(from, to) over all stretches.
template <class Work> double summed(size_t n, size_t unit, int threads, Work work) {
  if (n < 2 * GRAIN || threads < 2) return work(size_t(0), n);
  std::vector<Stretch> parts = stretches(n, unit, threads);
  std::vector<double> sums(parts.size());
  at_once(parts.size(), threads, [&](size_t i) { sums[i] = work(parts[i].from, parts[i].to); });
  double sum = 0.0;
  for (double each : sums) sum += each;
  return sum;
}

constexpr size_t PAST_THE_CACHE = size_t(1) << 21;  // elements; a code so long only pushes out what is needed sooner

const float* after(const float* residual, size_t from) { return residual ? residual + from : nullptr; }

// Buckets that fill whole bytes whatever the width: stretches of them share no byte of the code.
size_t bucket_unit(size_t bucket) {
  size_t unit = bucket;
  while (unit % 8) unit += bucket;
  return unit;
}

}  // namespace

double energy(const float* x, size_t n, int threads) {
  return summed(n, 16, threads, [&](size_t from, size_t to) { return table().energy(x + from, to - from); });
}

double fold(float* x, const float* residual, size_t n, int threads) {
  double sum = summed(n, 16, threads, [&](size_t from, size_t to) { return table().fold(x + from, after(residual, from), to - from); });
  if (!std::isfinite(sum)) std::memset(x, 0, n * sizeof(float));
  return sum;
}

void settle(float* x, float* residual, size_t n, int threads) {
  summed(n, 16, threads, [&](size_t from, size_t to) {
    table().settle(x + from, residual + from, to - from);
    return 0.0;
  });
}

double narrow(float* x, const float* residual, uint16_t* code, size_t n, float weight, bool brain, int threads) {
  double sum = summed(n, 16, threads, [&](size_t from, size_t to) {
    return table().narrow(x + from, after(residual, from), code + from, to - from, weight, brain, n >= PAST_THE_CACHE);
  });
  if (!std::isfinite(sum)) {
    std::memset(x, 0, n * sizeof(float));
    std::memset(code, 0, n * sizeof(uint16_t));
  }
  return sum;
}

void widen_add(const uint16_t* code, float* out, size_t n, float weight, bool brain, int threads) {
  summed(n, 16, threads, [&](size_t from, size_t to) {
    table().widen(code + from, out + from, to - from, weight, brain);
    return 0.0;
  });
}

double quantize(const Quantizer& q, float* x, const float* residual, size_t n, uint8_t* codes, float* steps, int threads) {
  double sum = summed(n, bucket_unit(q.bucket), threads, [&](size_t from, size_t to) {
    return table().quantize(q, x + from, after(residual, from), to - from, from, codes + from / 8 * q.bits, steps + from / q.bucket);
  });
  if (!std::isfinite(sum)) {
    std::memset(x, 0, n * sizeof(float));
    quantize(q, x, nullptr, n, codes, steps, threads);
  }
  return sum;
}

bool plausible(const float* steps, size_t n, int bits) {
  constexpr double LARGEST = 3.403e38;  // a little above float's largest, as a step is rounded
  double most = LARGEST / (bits > 2 ? (1 << (bits - 1)) - 1 : 1);
  for (size_t i = 0; i < n; ++i)
    if (!(std::fabs(double(steps[i])) <= most)) return false;
  return true;
}

bool dequantize_add(int bits, size_t bucket, const uint8_t* codes, const float* steps, float* out, size_t n, float weight, int threads) {
  if (!plausible(steps, (n + bucket - 1) / bucket, bits)) return false;
  summed(n, bucket_unit(bucket), threads, [&](size_t from, size_t to) {
    table().dequantize(bits, bucket, codes + from / 8 * bits, steps + from / bucket, out + from, to - from, weight);
    return 0.0;
  });
  return true;
}

// x = weight * the sum of `rows` encodings, from element `at` on.
static void sum_of_rows(int bits, size_t bucket, const uint8_t* codes, const uint8_t* steps, size_t rows, size_t pitch, float* x, size_t at,
                        size_t count, float weight) {
  std::memset(x + at, 0, count * sizeof(float));
  for (size_t row = 0; row < rows; ++row)
    table().dequantize(bits, bucket, codes + row * pitch + at / 8 * bits, reinterpret_cast<const float*>(steps + row * pitch) + at / bucket,
                       x + at, count, weight);
}

// Calls work(at, count) for pieces of [from, to) that stay in the second-level cache; the sum of what it returns.
template <class Work> double piecewise(size_t unit, size_t from, size_t to, Work work) {
  size_t stride = unit * (unit < 4096 ? 4096 / unit : 1);
  double sum = 0.0;
  for (size_t at = from; at < to; at += stride) sum += work(at, to - at < stride ? to - at : stride);
  return sum;
}

void dequantize(int bits, size_t bucket, const uint8_t* codes, const uint8_t* steps, size_t rows, size_t pitch, float* out, size_t n,
                float weight, int threads) {
  size_t unit = bucket_unit(bucket);
  summed(n, unit, threads, [&](size_t from, size_t to) {
    return piecewise(unit, from, to, [&](size_t at, size_t count) {
      sum_of_rows(bits, bucket, codes, steps, rows, pitch, out, at, count, weight);
      return 0.0;
    });
  });
}

double requantize(const Quantizer& q, size_t rows, size_t pitch, const uint8_t* codes, const uint8_t* steps, float* x, size_t n,
                  uint8_t* codes_out, float* steps_out, int threads) {
  size_t unit = bucket_unit(q.bucket);
  double sum = summed(n, unit, threads, [&](size_t from, size_t to) {
    return piecewise(unit, from, to, [&](size_t at, size_t count) {
      sum_of_rows(q.bits, q.bucket, codes, steps, rows, pitch, x, at, count, 1.0f);
      return table().quantize(q, x + at, nullptr, count, at, codes_out + at / 8 * q.bits, steps_out + at / q.bucket);
    });
  });
  if (!std::isfinite(sum)) {
    std::memset(x, 0, n * sizeof(float));
    quantize(q, x, nullptr, n, codes_out, steps_out, threads);
  }
  return sum;
}

void quantize_errors(const float* x, size_t n, size_t bucket, bool l2, double* errors, int threads) {
  std::vector<Stretch> parts = stretches(n, bucket, threads);
  std::vector<double> each(8 * parts.size());
  at_once(parts.size(), threads, [&](size_t i) {
    table().quantize_errors(x + parts[i].from, parts[i].to - parts[i].from, bucket, l2, &each[8 * i]);
  });
  for (int bits = 0; bits < 8; ++bits) {
    errors[bits] = 0.0;
    for (size_t i = 0; i < parts.size(); ++i) errors[bits] += each[8 * i + bits];
  }
}

}  // namespace laconic
