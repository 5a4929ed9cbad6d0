// Quantisation: per bucket one look at its scale and one that codes it, while it is in the first-level cache.
#pragma once
#include <cmath>

#include "loops/bitstream.h"
#include "loops/random.h"
#include "loops/sign.h"
#include "loops/sums.h"

namespace {

using laconic::Quantizer;

constexpr size_t PIECE = 2048;  // codes that wait, a byte each, to be packed together

enum class Scale { MAX, L2, MEAN };

// Folds a bucket and measures it; what its elements hold is added to `energy`.
template <Scale S, bool RESIDUAL>
inline float measured(float* x, const float* residual, size_t n, Doubles& energy, double& block_energy) {
  if (S == Scale::MAX) {
    Floats most = splat(0.0f);
    Doubles sum = energy;
    each_pack(n, [&](size_t i, int lanes) {
      Floats v = folded<RESIDUAL>(x + i, residual + i, lanes);
      add_square_to(sum, v);
      most = larger(magnitude(v), most);
    });
    energy = sum;
    return largest(most);
  }
  double sums[laconic::LARGEST_BUCKET / BLOCK];
  size_t blocks = 0;
  for (size_t from = 0; from < n; from += BLOCK) {
    Doubles sum = nothing(), squares = energy;
    each_pack(n - from < BLOCK ? n - from : BLOCK, [&](size_t i, int lanes) {
      Floats v = folded<RESIDUAL>(x + from + i, residual + from + i, lanes);
      if (S == Scale::L2) add_square_to(sum, v);
      if (S == Scale::MEAN) {
        add_square_and_size_to(squares, sum, v);
      }
    });
    energy = squares;
    sums[blocks++] = total(sum);
  }
  double whole = fold_halves(sums, blocks);
  if (S == Scale::L2) block_energy += whole;
  return S == Scale::L2 ? float(std::sqrt(whole)) : float(whole / double(n));
}

// Codes one piece of a bucket, a byte an element; leaves in x what the codes do not carry.
// With one bit and DIRECT, bits go straight to where they belong.
template <bool ONE_BIT, bool SEEDED, bool DIRECT>
inline void coded(float* x, size_t n, float inverse, float step, float top, Uniform random, uint8_t* codes) {
  Floats scale = splat(inverse), unit = splat(step), most = splat(top), least = splat(-top), zero = splat(0.0f);
  Ints offset = splat_int(uint32_t(int32_t(top)));
  each_pack(n, [&](size_t i, int lanes) {
    Floats v = load_pack(x + i, lanes);
    if (ONE_BIT) {
      Mask up = SEEDED ? below(random.next(), (v * scale + splat(1.0f)) * splat(0.5f)) : at_least(v, zero);
      if (DIRECT)
        put_bits(codes, i, bits_of(up) & ((1u << lanes) - 1), lanes);
      else
        store_bytes(codes + i, up);
      v = v - choose(up, unit, splat(-step));
    } else {
      Floats scaled = SEEDED ? v * scale + random.next() : v * scale;
      scaled = smaller(larger(scaled, least), most);  // the second operand where the first is NaN
      Ints q = SEEDED ? rounded_down(scaled) : nearest(scaled);
      store_bytes(codes + i, q + offset);
      v = v - to_floats(q) * unit;
    }
    store_pack(x + i, v, lanes);
  });
}

template <Scale S, bool RESIDUAL, bool ONE_BIT, bool SEEDED>
double quantized(const Quantizer& q, float* x, const float* residual, size_t n, size_t first, uint8_t* codes, float* steps) {
  uint8_t waiting[2 * PIECE + LANES];
  size_t held = 0;
  float top = q.bits < 3 ? 1.0f : float((1 << (q.bits - 1)) - 1);
  Doubles energy = nothing();
  double block_energy = 0.0;
  for (size_t from = 0; from < n; from += q.bucket) {
    size_t count = n - from < q.bucket ? n - from : q.bucket;
    float scale = measured<S, RESIDUAL>(x + from, residual + from, count, energy, block_energy);
    float step = S == Scale::MEAN ? scale : scale / top, inverse = top / scale;
    if (S != Scale::MEAN && !(std::fabs(inverse) <= 3.402823466e38f && step > 0.0f)) step = inverse = 0.0f;
    std::memcpy(steps + from / q.bucket, &step, 4);
    for (size_t at = from; at < from + count; at += PIECE) {
      size_t piece = from + count - at < PIECE ? from + count - at : PIECE;
      Uniform random(q.seed, first + at);
      if (ONE_BIT && q.bucket % 8 == 0) {
        coded<ONE_BIT, SEEDED, true>(x + at, piece, inverse, step, top, random, codes + at / 8);
        continue;
      }
      coded<ONE_BIT, SEEDED, false>(x + at, piece, inverse, step, top, random, waiting + held);
      held += piece;
      if (held < PIECE) continue;
      size_t whole = held & ~size_t(7);
      pack(q.bits, waiting, whole, codes);
      codes += whole / 8 * q.bits;
      std::memmove(waiting, waiting + whole, held -= whole);
    }
  }
  if (held) pack(q.bits, waiting, held, codes);
  return total(energy) + block_energy;
}

template <Scale S, bool RESIDUAL>
double quantized_by(const Quantizer& q, float* x, const float* residual, size_t n, size_t first, uint8_t* codes, float* steps) {
  if (q.bits == 1) return quantized<S, RESIDUAL, true, true>(q, x, residual, n, first, codes, steps);
  if (q.seeded) return quantized<S, RESIDUAL, false, true>(q, x, residual, n, first, codes, steps);
  return quantized<S, RESIDUAL, false, false>(q, x, residual, n, first, codes, steps);
}

inline double quantize_loop(const Quantizer& q, float* x, const float* residual, size_t n, size_t first, uint8_t* codes, float* steps) {
  if (q.bits == 1 && !q.seeded)
    return residual ? quantized<Scale::MEAN, true, true, false>(q, x, residual, n, first, codes, steps)
                    : quantized<Scale::MEAN, false, true, false>(q, x, x, n, first, codes, steps);
  if (q.l2)
    return residual ? quantized_by<Scale::L2, true>(q, x, residual, n, first, codes, steps)
                    : quantized_by<Scale::L2, false>(q, x, x, n, first, codes, steps);
  return residual ? quantized_by<Scale::MAX, true>(q, x, residual, n, first, codes, steps)
                  : quantized_by<Scale::MAX, false>(q, x, x, n, first, codes, steps);
}

template <bool ONE_BIT>
inline void dequantized(int bits, size_t bucket, const uint8_t* codes, const float* steps, float* out, size_t n, float weight) {
  uint8_t bytes[PIECE + LANES];
  Ints offset = splat_int(ONE_BIT ? 0 : uint32_t((1 << (bits - 1)) - 1));
  size_t left = 0, row = 0;  // elements of the current bucket still to come
  Floats step = splat(0.0f), minus = step;
  for (size_t from = 0; from < n; from += PIECE) {
    size_t piece = n - from < PIECE ? n - from : PIECE;
    unpack(bits, codes + from / 8 * bits, piece, bytes);
    for (size_t at = 0; at < piece;) {
      if (!left) {
        float stored;
        std::memcpy(&stored, steps + row++, 4);
        step = splat(stored * weight);
        minus = splat(-(stored * weight));
        left = bucket;
      }
      size_t count = piece - at < left ? piece - at : left;
      float* to = out + from + at;
      each_pack(count, [&](size_t i, int lanes) {
        Floats v;
        if (ONE_BIT)
          v = choose(at_least(load_bytes(bytes + at + i), 1), step, minus);
        else
          v = to_floats(load_bytes(bytes + at + i) - offset) * step;
        store_pack(to + i, load_pack(to + i, lanes) + v, lanes);
      });
      at += count;
      left -= count;
    }
  }
}

inline void dequantize_loop(int bits, size_t bucket, const uint8_t* codes, const float* steps, float* out, size_t n, float weight) {
  if (bits == 1 && bucket % 8 == 0) {
    for (size_t from = 0; from < n; from += bucket) {
      float step;
      std::memcpy(&step, steps + from / bucket, 4);
      unsign_loop(codes + from / 8, -(step * weight), step * weight, out + from, n - from < bucket ? n - from : bucket);
    }
  } else if (bits == 1)
    dequantized<true>(bits, bucket, codes, steps, out, n, weight);
  else
    dequantized<false>(bits, bucket, codes, steps, out, n, weight);
}

// What 1 to 8 bits would leave of x, squared and summed; deterministic rounding.
inline void quantize_errors_loop(const float* x, size_t n, size_t bucket, bool l2, double* errors) {
  Doubles sums[8];
  for (Doubles& sum : sums) sum = nothing();
  for (size_t from = 0; from < n; from += bucket) {
    size_t count = n - from < bucket ? n - from : bucket;
    float* at = const_cast<float*>(x + from);  // read only: nothing is folded
    Doubles unused = nothing();
    double spare = 0.0;
    float mean = measured<Scale::MEAN, false>(at, at, count, unused, spare);
    float scale = l2 ? measured<Scale::L2, false>(at, at, count, unused, spare)
                     : measured<Scale::MAX, false>(at, at, count, unused, spare);
    for (int bits = 1; bits <= 8; ++bits) {
      float top = bits < 3 ? 1.0f : float((1 << (bits - 1)) - 1), step = scale / top, inverse = top / scale;
      if (!(std::fabs(inverse) <= 3.402823466e38f && step > 0.0f)) step = inverse = 0.0f;
      if (bits == 1) step = mean;
      Floats unit = splat(step), by = splat(inverse), most = splat(top), least = splat(-top), zero = splat(0.0f);
      Doubles sum = sums[bits - 1];
      each_pack(count, [&](size_t i, int lanes) {
        Floats v = load_pack(at + i, lanes), sent;
        if (bits == 1)
          sent = choose(at_least(v, zero), unit, zero - unit);
        else
          sent = to_floats(nearest(smaller(larger(v * by, least), most))) * unit;
        v = v - sent;
        add_square_to(sum, lanes == LANES ? v : choose(first_lanes(lanes), v, zero));
      });
      sums[bits - 1] = sum;
    }
  }
  for (int bits = 1; bits <= 8; ++bits) errors[bits - 1] = total(sums[bits - 1]);
}

}  // namespace
