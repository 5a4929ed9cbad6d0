// Factors of a few columns in codes: a column has a scale, a row a share of all of them.
#pragma once
#include <cstring>

#include "loops/sums.h"

namespace {

// A share, from 2^-31 to 1 in steps of an eighth of a power of two, is the upper bits of a float. It is rounded up, so that no element
// is beyond the levels.
constexpr int32_t LEAST_SHARE = (127 - 31) << 23;
constexpr int SHARE_SHIFT = 20, MOST_SHARE = 31 << (23 - SHARE_SHIFT);

inline uint8_t share_code(float share) {
  int32_t bits;
  std::memcpy(&bits, &share, 4);
  int32_t code = (bits - LEAST_SHARE + (1 << SHARE_SHIFT) - 1) >> SHARE_SHIFT;
  return uint8_t(code < 0 ? 0 : code > MOST_SHARE ? MOST_SHARE : code);
}

inline float share_of(uint8_t code) {
  int32_t bits = LEAST_SHARE + ((code < MOST_SHARE ? code : MOST_SHARE) << SHARE_SHIFT);
  float share;
  std::memcpy(&share, &bits, 4);
  return share;
}

// The largest magnitude of each column; false where anything is not finite.
inline bool column_scales_loop(const float* factor, size_t length, size_t rank, float* scales) {
  Floats odd = splat(0.0f);  // an Inf or a NaN times zero is a NaN
  each_pack(rank, [&](size_t k, int lanes) {
    Floats most = splat(0.0f), spoiled = odd;
    for (size_t i = 0; i < length; ++i) {
      Floats v = load_pack(factor + i * rank + k, lanes);
      most = larger(magnitude(v), most);
      spoiled = multiply_add(v, splat(0.0f), spoiled);
    }
    odd = spoiled;
    store_pack(scales + k, most, lanes);
  });
  return sum_of(odd) == 0.0f;
}

// Shares and codes, a byte each, of which up to LANES more are written; factor becomes what they mean. The inverse of a column's step
// is 0 where the column is.
inline void code_factor_loop(float* factor, size_t length, size_t rank, float top, const float* inverse, const float* step, uint8_t* shares, uint8_t* codes) {
  Floats most = splat(top), least = splat(-top);
  Ints offset = splat_int(uint32_t(int32_t(top)));
  for (size_t i = 0; i < length; ++i, factor += rank, codes += rank) {
    Floats size = splat(0.0f);
    each_pack(rank, [&](size_t k, int lanes) { size = larger(magnitude(load_pack(factor + k, lanes) * load_pack(inverse + k, lanes)), size); });
    shares[i] = share_code(largest(size) / top);
    float share = share_of(shares[i]);
    Floats by = splat(1.0f / share), times = splat(share);
    each_pack(rank, [&](size_t k, int lanes) {
      Floats scaled = load_pack(factor + k, lanes) * load_pack(inverse + k, lanes) * by;
      Ints q = nearest(smaller(larger(scaled, least), most));
      store_bytes(codes + k, q + offset);
      store_pack(factor + k, to_floats(q) * times * load_pack(step + k, lanes), lanes);
    });
  }
}

// total += what shares and codes mean; of these, up to LANES more are read.
inline void add_factor_loop(const uint8_t* shares, const uint8_t* codes, size_t length, size_t rank, float top, const float* step, float* total) {
  Ints offset = splat_int(uint32_t(int32_t(top)));
  for (size_t i = 0; i < length; ++i, codes += rank, total += rank) {
    Floats times = splat(share_of(shares[i]));
    each_pack(rank, [&](size_t k, int lanes) {
      Floats meant = to_floats(load_bytes(codes + k) - offset) * times * load_pack(step + k, lanes);
      store_pack(total + k, load_pack(total + k, lanes) + meant, lanes);
    });
  }
}

}  // namespace
