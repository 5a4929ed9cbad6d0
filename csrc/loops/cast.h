// Sixteen bits an element.
#pragma once
#include "loops/sums.h"

namespace {

// PAST: the code goes past the cache, which saves reading the lines that it fills.
// EXACT: 1 / weight is a float, so that multiplying by it rounds as dividing by weight does, at a fraction of the cost.
template <bool RESIDUAL, bool BRAIN, bool EXACT, bool PAST>
inline double narrowed(float* x, const float* residual, uint16_t* code, size_t n, float weight) {
  constexpr float MOST = BRAIN ? 0x1.FEp127f : 65504.0f;
  Floats most = splat(MOST), least = splat(-MOST), by = splat(weight), back = splat(1.0f / weight);
  Doubles energy = nothing();
  each_pack(n, [&](size_t i, int lanes) {
    Floats v = load_pack(x + i, lanes);
    if (RESIDUAL) v = v + load_pack(residual + i, lanes);
    add_square_to(energy, v);
    Floats scaled = smaller(larger(v * by, least), most);
    uint16_t tail[LANES], *to = !PAST && lanes == LANES ? code + i : tail;
    BRAIN ? store_brain(to, scaled) : store_half(to, scaled);
    Floats carried = BRAIN ? load_brain(to) : load_half(to);
    if (lanes < LANES) std::memcpy(code + i, tail, lanes * sizeof(uint16_t));
    else if (PAST) stream(code + i, tail);
    store_pack(x + i, v - (EXACT ? carried * back : carried / by), lanes);
  });
  if (PAST) streamed();
  return total(energy);
}

template <bool BRAIN, bool EXACT, bool PAST>
inline double narrowed_by(float* x, const float* residual, uint16_t* code, size_t n, float weight) {
  return residual ? narrowed<true, BRAIN, EXACT, PAST>(x, residual, code, n, weight) : narrowed<false, BRAIN, EXACT, PAST>(x, x, code, n, weight);
}

template <bool BRAIN, bool EXACT> inline double narrowed_to(float* x, const float* residual, uint16_t* code, size_t n, float weight, bool past) {
  past = past && reinterpret_cast<uintptr_t>(code) % (LANES * sizeof(uint16_t)) == 0;
  return past ? narrowed_by<BRAIN, EXACT, true>(x, residual, code, n, weight) : narrowed_by<BRAIN, EXACT, false>(x, residual, code, n, weight);
}

inline double narrow_loop(float* x, const float* residual, uint16_t* code, size_t n, float weight, bool brain, bool past) {
  uint32_t bits;
  std::memcpy(&bits, &weight, 4);
  bool exact = (bits & 0x7fffff) == 0 && weight > 0x1p-100f && weight < 0x1p100f;
  if (brain) return exact ? narrowed_to<true, true>(x, residual, code, n, weight, past) : narrowed_to<true, false>(x, residual, code, n, weight, past);
  return exact ? narrowed_to<false, true>(x, residual, code, n, weight, past) : narrowed_to<false, false>(x, residual, code, n, weight, past);
}

template <bool BRAIN> inline void widened(const uint16_t* code, float* out, size_t n, float weight) {
  Floats by = splat(weight);
  each_pack(n, [&](size_t i, int lanes) {
    uint16_t tail[LANES] = {};
    if (lanes < LANES) std::memcpy(tail, code + i, lanes * sizeof(uint16_t));
    const uint16_t* at = lanes < LANES ? tail : code + i;
    store_pack(out + i, load_pack(out + i, lanes) + (BRAIN ? load_brain(at) : load_half(at)) * by, lanes);
  });
}

inline void widen_loop(const uint16_t* code, float* out, size_t n, float weight, bool brain) {
  brain ? widened<true>(code, out, n, weight) : widened<false>(code, out, n, weight);
}

}  // namespace
