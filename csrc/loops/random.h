// reference.uniform for sixteen consecutive counters.
#pragma once
#include <cstdint>

namespace {

constexpr uint32_t STRIDE = 0x9E3779B9u;

class Uniform {
 public:
  Uniform(uint64_t seed, size_t first)
      : counter_(counting(uint32_t(first) * STRIDE + uint32_t(seed), STRIDE)), high_(splat_int(uint32_t(seed >> 32))) {}

  Floats next() {
    Ints z = counter_;
    counter_ = counter_ + splat_int(LANES * STRIDE);
    z = (z ^ shifted_right<16>(z)) * splat_int(0x21F0AAADu);
    z = (z ^ shifted_right<15>(z) ^ high_) * splat_int(0x735A2D97u);
    z = z ^ shifted_right<15>(z);
    return to_floats(shifted_right<8>(z)) * splat(0x1p-24f);
  }

 private:
  Ints counter_, high_;
};

}  // namespace
