// One bit an element. The magnitudes are means over the layer, so that there are two passes.
#pragma once
#include "loops/sums.h"

namespace {

using laconic::Survey;

inline void put_bits(uint8_t* bits, size_t i, uint32_t mask, int lanes) {
  uint16_t both = uint16_t(mask);  // little-endian, as every platform that has these kernels
  std::memcpy(bits + i / 8, &both, lanes > 8 ? 2 : 1);
}
inline uint32_t get_bits(const uint8_t* bits, size_t i, int lanes) {
  uint16_t both = 0;
  std::memcpy(&both, bits + i / 8, lanes > 8 ? 2 : 1);
  return both;
}

// Folds, and sums magnitudes by block; the largest of them.
template <bool RESIDUAL> inline void surveyed(float* x, const float* residual, size_t n, double* sums, Survey& out) {
  Doubles energy = nothing();
  Floats most = splat(0.0f);
  for (size_t from = 0; from < n; from += BLOCK) {
    Doubles sum = nothing();
    each_pack(n - from < BLOCK ? n - from : BLOCK, [&](size_t i, int lanes) {
      Floats v = folded<RESIDUAL>(x + from + i, residual + from + i, lanes);
      add_square_and_size_to(energy, sum, v);
      most = larger(magnitude(v), most);
    });
    *sums++ = total(sum);
  }
  out.energy = total(energy);
  out.largest = largest(most);
}

inline void survey_loop(float* x, const float* residual, size_t n, double* sums, Survey& out) {
  residual ? surveyed<true>(x, residual, n, sums, out) : surveyed<false>(x, x, n, sums, out);
}

// Folds, writes the signs, and sums by block: with `below` the two sides apart, without it the magnitudes.
template <bool RESIDUAL, bool TWO_SIDED>
inline void signed_(float* x, const float* residual, size_t n, uint8_t* bits, double* above, double* below_, Survey& out) {
  Doubles energy = nothing();
  Floats zero = splat(0.0f);
  size_t ups = 0;
  for (size_t from = 0; from < n; from += BLOCK) {
    Doubles sum = nothing(), negative = nothing();
    each_pack(n - from < BLOCK ? n - from : BLOCK, [&](size_t i, int lanes) {
      Floats v = folded<RESIDUAL>(x + from + i, residual + from + i, lanes);
      Mask up = at_least(v, zero);
      uint32_t mask = bits_of(up) & ((1u << lanes) - 1);
      put_bits(bits, from + i, mask, lanes);
      if (TWO_SIDED) {
        add_square_to(energy, v);
        ups += size_t(__builtin_popcount(mask));
        add_to(sum, choose(up, v, zero));
        add_to(negative, cleared(up, v));
      } else {
        add_square_and_size_to(energy, sum, v);
      }
    });
    *above++ = total(sum);
    if (TWO_SIDED) *below_++ = total(negative);
  }
  out.energy = total(energy);
  out.ups = ups;
}

inline void sign_loop(float* x, const float* residual, size_t n, uint8_t* bits, double* above, double* below_, Survey& out) {
  if (below_)
    residual ? signed_<true, true>(x, residual, n, bits, above, below_, out) : signed_<false, true>(x, x, n, bits, above, below_, out);
  else
    residual ? signed_<true, false>(x, residual, n, bits, above, below_, out) : signed_<false, false>(x, x, n, bits, above, below_, out);
}

// Takes from x what its sign stands for. The sign is in x itself: its bit need not be read again.
inline void unsign_from_loop(float* x, size_t n, float clear, float set) {
  Floats no = splat(clear), yes = splat(set), zero = splat(0.0f);
  each_pack(n, [&](size_t i, int lanes) {
    Floats v = load_pack(x + i, lanes);
    store_pack(x + i, v - choose(at_least(v, zero), yes, no), lanes);
  });
}

inline void unsign_loop(const uint8_t* bits, float clear, float set, float* out, size_t n) {
  Floats no = splat(clear), yes = splat(set);
  each_pack(n, [&](size_t i, int lanes) {
    store_pack(out + i, load_pack(out + i, lanes) + choose(mask_of(get_bits(bits, i, lanes)), yes, no), lanes);
  });
}

}  // namespace
