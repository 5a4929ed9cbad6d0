// float16 and bfloat16 by hand, rounding to nearest, ties to even. Non-finite values never get here.
#pragma once
#include <cstdint>
#include <cstring>

namespace {

inline uint32_t bits_of_float(float v) { uint32_t b; std::memcpy(&b, &v, 4); return b; }
inline float float_of_bits(uint32_t b) { float v; std::memcpy(&v, &b, 4); return v; }

inline uint16_t brain_from(float v) {
  uint32_t b = bits_of_float(v);
  return uint16_t((b + 0x7fff + (b >> 16 & 1)) >> 16);
}
inline float brain_to(uint16_t h) { return float_of_bits(uint32_t(h) << 16); }

inline uint16_t half_from(float v) {
  uint32_t b = bits_of_float(v), sign = b >> 16 & 0x8000, size = b & 0x7fffffff;
  if (size >= 0x38800000) {  // 2^-14 and more: a normal number
    uint32_t rebased = size - 0x38000000;
    return uint16_t(sign | (rebased + 0xfff + (rebased >> 13 & 1)) >> 13);
  }
  // Below, the unit is 2^-24: adding 0.5, whose unit in float32 is 2^-24, rounds there.
  return uint16_t(sign | (bits_of_float(float_of_bits(size) + 0.5f) - 0x3f000000));
}
inline float half_to(uint16_t h) {
  uint32_t sign = uint32_t(h & 0x8000) << 16, size = h & 0x7fff;
  if (size >= 0x7c00) return float_of_bits(sign | 0x7f800000 | (size & 0x3ff) << 13);
  if (size >= 0x400) return float_of_bits(sign | ((size << 13) + 0x38000000));
  return float_of_bits(sign | bits_of_float(float(size) * 0x1p-24f));
}

}  // namespace
