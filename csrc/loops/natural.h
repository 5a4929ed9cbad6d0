// Powers of two. Plain loops: the compiler vectorises them for the instruction set of the file they are included in.
#pragma once
#include <cstdint>
#include <cstring>

namespace {

// 0 below the smallest float; the exponent is at most 127. Two normal factors make a subnormal.
inline float power_of_two(int exponent) {
  bool small = exponent < -100;
  int base = exponent + (small ? 151 : 127);
  uint32_t bits = uint32_t(base < 0 ? 0 : base) << 23;
  float out;
  std::memcpy(&out, &bits, 4);
  return out * (small ? 0x1p-24f : 1.0f);
}

inline void natural_loop(float* x, uint8_t* codes, size_t n, size_t first, int exponent, uint64_t seed) {
  uint32_t low = uint32_t(seed), high = uint32_t(seed >> 32);
  float least = power_of_two(exponent - 126);
  for (size_t i = 0; i < n; ++i) {
    uint32_t bits;
    std::memcpy(&bits, x + i, 4);
    uint32_t z = uint32_t(first + i) * 0x9E3779B9u + low;
    z = (z ^ z >> 16) * 0x21F0AAADu;
    z = (z ^ z >> 15 ^ high) * 0x735A2D97u;
    float u = float(int32_t((z ^ z >> 15) >> 8)) * 0x1p-24f;
    uint32_t negative = uint32_t(bits > 0x80000000u) << 31;
    bits &= 0x7fffffffu;
    float size, scaled;
    std::memcpy(&size, &bits, 4);
    scaled = size * 0x1p24f;  // a subnormal, made normal
    uint32_t lifted;
    std::memcpy(&lifted, &scaled, 4);
    uint32_t subnormal = bits < 0x00800000u;
    uint32_t norm = subnormal ? lifted : bits;
    int down = int(norm >> 23) - (subnormal ? 151 : 127);
    float chance = float(int32_t(norm & 0x7fffffu)) * 0x1p-23f;
    int level = down + int(u < chance) - exponent + 127, least_or_none = int(u * least < size);
    level = level > 127 ? 127 : level;
    level = level < 1 ? least_or_none : level;
    level = bits ? level : 0;
    codes[i] = uint8_t(uint32_t(level) | negative >> 24);
    float sent = power_of_two(level - 127 + exponent);
    uint32_t sent_bits;
    std::memcpy(&sent_bits, &sent, 4);
    sent_bits = (level ? sent_bits : 0u) | negative;
    std::memcpy(&sent, &sent_bits, 4);
    x[i] -= sent;
  }
}

inline void unnatural_loop(const uint8_t* codes, float* out, size_t n, int exponent, float weight) {
  float values[256];  // what each code means, weighted
  for (int level = 0; level < 128; ++level) {
    values[level] = (level ? power_of_two(level - 127 + exponent) : 0.0f) * weight;
    values[level + 128] = -values[level];
  }
  for (size_t i = 0; i < n; ++i) out[i] += values[codes[i]];
}

}  // namespace
