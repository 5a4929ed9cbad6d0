// Sixteen lanes in plain C++: the pattern that the other headers of this folder follow, and what runs elsewhere.
// The compiler turns these loops into whatever vectors its baseline has: SSE2 on x86-64, NEON on 64-bit ARM.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

#include "halves.h"

namespace {

constexpr int LANES = 16;
constexpr int TILE = 4;  // rows of a matrix that are worked on together

struct Floats { float at[LANES]; };
struct Ints { uint32_t at[LANES]; };
struct Doubles { double at[LANES]; };
struct Mask { uint32_t bits; };

#define EACH_LANE for (int lane = 0; lane < LANES; ++lane)

inline Floats splat(float v) { Floats out; EACH_LANE out.at[lane] = v; return out; }
inline Floats load(const float* p) { Floats out; std::memcpy(out.at, p, sizeof out.at); return out; }
inline void store(float* p, Floats v) { std::memcpy(p, v.at, sizeof v.at); }
inline Floats load_some(const float* p, int count) {
  Floats out = splat(0.0f);
  std::memcpy(out.at, p, count * sizeof(float));
  return out;
}
inline void store_some(float* p, Floats v, int count) { std::memcpy(p, v.at, count * sizeof(float)); }

inline Floats operator+(Floats a, Floats b) { EACH_LANE a.at[lane] += b.at[lane]; return a; }
inline Floats operator-(Floats a, Floats b) { EACH_LANE a.at[lane] -= b.at[lane]; return a; }
inline Floats operator*(Floats a, Floats b) { EACH_LANE a.at[lane] *= b.at[lane]; return a; }
inline Floats operator/(Floats a, Floats b) { EACH_LANE a.at[lane] /= b.at[lane]; return a; }
inline Floats multiply_add(Floats a, Floats b, Floats c) { EACH_LANE c.at[lane] = std::fma(a.at[lane], b.at[lane], c.at[lane]); return c; }
inline Floats larger(Floats a, Floats b) { EACH_LANE a.at[lane] = a.at[lane] > b.at[lane] ? a.at[lane] : b.at[lane]; return a; }
inline Floats smaller(Floats a, Floats b) { EACH_LANE a.at[lane] = a.at[lane] < b.at[lane] ? a.at[lane] : b.at[lane]; return a; }
inline Ints as_ints(Floats v) { Ints out; std::memcpy(&out, &v, sizeof out); return out; }
inline Floats as_floats(Ints v) { Floats out; std::memcpy(&out, &v, sizeof out); return out; }
inline Ints magnitude_bits(Floats v) { Ints out = as_ints(v); EACH_LANE out.at[lane] &= 0x7fffffffu; return out; }
inline Floats magnitude(Floats v) { return as_floats(magnitude_bits(v)); }
inline float sum_of(Floats v) {
  for (int half = LANES / 2; half; half /= 2)
    for (int lane = 0; lane < half; ++lane) v.at[lane] += v.at[lane + half];
  return v.at[0];
}
inline float largest(Floats v) {
  float out = v.at[0];
  EACH_LANE out = v.at[lane] > out ? v.at[lane] : out;
  return out;
}

inline Mask at_least(Floats a, Floats b) { Mask m{0}; EACH_LANE m.bits |= uint32_t(a.at[lane] >= b.at[lane]) << lane; return m; }
inline Mask below(Floats a, Floats b) { Mask m{0}; EACH_LANE m.bits |= uint32_t(a.at[lane] < b.at[lane]) << lane; return m; }
inline Mask at_least(Ints a, int32_t b) { Mask m{0}; EACH_LANE m.bits |= uint32_t(int32_t(a.at[lane]) >= b) << lane; return m; }
inline Mask first_lanes(int count) { return Mask{(1u << count) - 1}; }
inline Mask both(Mask a, Mask b) { return Mask{a.bits & b.bits}; }
inline uint32_t bits_of(Mask m) { return m.bits; }
inline Mask mask_of(uint32_t bits) { return Mask{bits}; }
inline Floats choose(Mask m, Floats yes, Floats no) { EACH_LANE no.at[lane] = m.bits >> lane & 1 ? yes.at[lane] : no.at[lane]; return no; }
inline Floats cleared(Mask m, Floats v) { return choose(m, splat(0.0f), v); }

inline Doubles nothing() { Doubles out; EACH_LANE out.at[lane] = 0.0; return out; }
inline void add_to(Doubles& sum, Floats v) { EACH_LANE sum.at[lane] += double(v.at[lane]); }
inline void add_square_to(Doubles& sum, Floats v) { EACH_LANE sum.at[lane] += double(v.at[lane]) * double(v.at[lane]); }
inline void add_square_and_size_to(Doubles& squares, Doubles& sizes, Floats v) {
  add_square_to(squares, v);
  add_to(sizes, magnitude(v));
}
inline double total(Doubles v) {
  for (int half = LANES / 2; half; half /= 2)
    for (int lane = 0; lane < half; ++lane) v.at[lane] += v.at[lane + half];
  return v.at[0];
}

inline Ints splat_int(uint32_t v) { Ints out; EACH_LANE out.at[lane] = v; return out; }
inline Ints counting(uint32_t first, uint32_t step) { Ints out; EACH_LANE out.at[lane] = first + lane * step; return out; }
inline Ints operator+(Ints a, Ints b) { EACH_LANE a.at[lane] += b.at[lane]; return a; }
inline Ints operator-(Ints a, Ints b) { EACH_LANE a.at[lane] -= b.at[lane]; return a; }
inline Ints operator*(Ints a, Ints b) { EACH_LANE a.at[lane] *= b.at[lane]; return a; }
inline Ints operator^(Ints a, Ints b) { EACH_LANE a.at[lane] ^= b.at[lane]; return a; }
template <int N> inline Ints shifted_right(Ints a) { EACH_LANE a.at[lane] >>= N; return a; }
inline Floats to_floats(Ints v) { Floats out; EACH_LANE out.at[lane] = float(int32_t(v.at[lane])); return out; }

// To the nearest integer (ties to even), or down. The value lies in [-2^22, 2^22]: adding 1.5 * 2^23 rounds it.
inline Ints nearest(Floats v) { Ints out; EACH_LANE out.at[lane] = uint32_t(int32_t(v.at[lane] + 12582912.0f - 12582912.0f)); return out; }
inline Ints rounded_down(Floats v) {
  Ints out;
  EACH_LANE {
    int32_t whole = int32_t(v.at[lane]);
    out.at[lane] = uint32_t(whole - (float(whole) > v.at[lane]));
  }
  return out;
}

inline void store_bytes(uint8_t* p, Ints v) { EACH_LANE p[lane] = uint8_t(v.at[lane]); }
inline void store_bytes(uint8_t* p, Mask m) { EACH_LANE p[lane] = m.bits >> lane & 1; }
inline Ints load_bytes(const uint8_t* p) { Ints out; EACH_LANE out.at[lane] = p[lane]; return out; }

// Writes the lanes of the mask one after another; both arrays have room for sixteen more.
inline int append(Mask m, Floats v, uint32_t first, float* values, uint32_t* indices) {
  int count = 0;
  for (uint32_t bits = m.bits; bits; bits &= bits - 1) {
    int lane = __builtin_ctz(bits);
    values[count] = v.at[lane];
    indices[count++] = first + lane;
  }
  return count;
}

// AdaComp's words, index << 2 | negative, of the lanes of the mask; there is room for sixteen.
inline int append_words(Mask m, Floats v, uint32_t first, uint16_t* words) {
  int count = 0;
  Ints bits = as_ints(v);
  for (uint32_t left = m.bits; left; left &= left - 1) {
    int lane = __builtin_ctz(left);
    words[count++] = uint16_t((first + lane) << 2 | bits.at[lane] >> 31);
  }
  return count;
}
inline int append_words(Mask m, Floats v, uint32_t first, uint8_t* words) {
  uint16_t wide[LANES];
  int count = append_words(m, v, first, wide);
  for (int i = 0; i < count; ++i) words[i] = uint8_t(wide[i]);
  return count;
}

inline void stream(uint16_t* p, const uint16_t* lanes) { std::memcpy(p, lanes, LANES * sizeof(uint16_t)); }
inline void streamed() {}

inline void store_half(uint16_t* p, Floats v) { EACH_LANE p[lane] = half_from(v.at[lane]); }
inline Floats load_half(const uint16_t* p) { Floats out; EACH_LANE out.at[lane] = half_to(p[lane]); return out; }
inline void store_brain(uint16_t* p, Floats v) { EACH_LANE p[lane] = brain_from(v.at[lane]); }
inline Floats load_brain(const uint16_t* p) { Floats out; EACH_LANE out.at[lane] = brain_to(p[lane]); return out; }

#undef EACH_LANE

}  // namespace
