// Sixteen lanes in four registers (64-bit ARM, whose baseline this is).
#pragma once
#include <arm_neon.h>

#include <cstdint>
#include <cstring>

namespace {

constexpr int LANES = 16;
constexpr int TILE = 4;  // rows of a matrix that about fit the registers

struct Floats { float32x4_t v[4]; };
struct Ints { uint32x4_t v[4]; };
struct Doubles { float64x2_t v[8]; };
struct Mask { uint32x4_t v[4]; };

#define EACH_FOUR for (int q = 0; q < 4; ++q)
#define EACH_TWO for (int d = 0; d < 8; ++d)

inline Floats splat(float a) { Floats out; EACH_FOUR out.v[q] = vdupq_n_f32(a); return out; }
inline Floats load(const float* p) { Floats out; EACH_FOUR out.v[q] = vld1q_f32(p + 4 * q); return out; }
inline void store(float* p, Floats a) { EACH_FOUR vst1q_f32(p + 4 * q, a.v[q]); }
inline Floats load_some(const float* p, int count) {
  float lanes[LANES] = {};
  std::memcpy(lanes, p, count * sizeof(float));
  return load(lanes);
}
inline void store_some(float* p, Floats a, int count) {
  float lanes[LANES];
  store(lanes, a);
  std::memcpy(p, lanes, count * sizeof(float));
}

inline Floats operator+(Floats a, Floats b) { EACH_FOUR a.v[q] = vaddq_f32(a.v[q], b.v[q]); return a; }
inline Floats operator-(Floats a, Floats b) { EACH_FOUR a.v[q] = vsubq_f32(a.v[q], b.v[q]); return a; }
inline Floats operator*(Floats a, Floats b) { EACH_FOUR a.v[q] = vmulq_f32(a.v[q], b.v[q]); return a; }
inline Floats operator/(Floats a, Floats b) { EACH_FOUR a.v[q] = vdivq_f32(a.v[q], b.v[q]); return a; }
inline Floats multiply_add(Floats a, Floats b, Floats c) { EACH_FOUR c.v[q] = vfmaq_f32(c.v[q], a.v[q], b.v[q]); return c; }
// The second operand where one is NaN; this processor's own maximum would return the NaN.
inline Floats larger(Floats a, Floats b) { EACH_FOUR a.v[q] = vbslq_f32(vcgtq_f32(a.v[q], b.v[q]), a.v[q], b.v[q]); return a; }
inline Floats smaller(Floats a, Floats b) { EACH_FOUR a.v[q] = vbslq_f32(vcltq_f32(a.v[q], b.v[q]), a.v[q], b.v[q]); return a; }
inline Ints as_ints(Floats a) { Ints out; EACH_FOUR out.v[q] = vreinterpretq_u32_f32(a.v[q]); return out; }
inline Floats as_floats(Ints a) { Floats out; EACH_FOUR out.v[q] = vreinterpretq_f32_u32(a.v[q]); return out; }
inline Floats magnitude(Floats a) { EACH_FOUR a.v[q] = vabsq_f32(a.v[q]); return a; }
inline Ints magnitude_bits(Floats a) { return as_ints(magnitude(a)); }
inline float sum_of(Floats a) {
  float32x4_t four = vaddq_f32(vaddq_f32(a.v[0], a.v[2]), vaddq_f32(a.v[1], a.v[3]));
  float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}
inline float largest(Floats a) { return vmaxvq_f32(vmaxq_f32(vmaxq_f32(a.v[0], a.v[1]), vmaxq_f32(a.v[2], a.v[3]))); }

inline Mask at_least(Floats a, Floats b) { Mask m; EACH_FOUR m.v[q] = vcgeq_f32(a.v[q], b.v[q]); return m; }
inline Mask below(Floats a, Floats b) { Mask m; EACH_FOUR m.v[q] = vcltq_f32(a.v[q], b.v[q]); return m; }
inline Mask at_least(Ints a, int32_t b) {
  Mask m;
  EACH_FOUR m.v[q] = vcgeq_s32(vreinterpretq_s32_u32(a.v[q]), vdupq_n_s32(b));
  return m;
}
inline Mask both(Mask a, Mask b) { EACH_FOUR a.v[q] = vandq_u32(a.v[q], b.v[q]); return a; }
inline uint32x4_t one_bit_each() { const uint32_t bits[4] = {1, 2, 4, 8}; return vld1q_u32(bits); }
inline uint32_t bits_of(Mask m) {
  uint32_t out = 0;
  EACH_FOUR out |= vaddvq_u32(vandq_u32(m.v[q], one_bit_each())) << 4 * q;
  return out;
}
inline Mask mask_of(uint32_t bits) { Mask m; EACH_FOUR m.v[q] = vtstq_u32(vdupq_n_u32(bits >> 4 * q), one_bit_each()); return m; }
inline Mask first_lanes(int count) { return mask_of((1u << count) - 1); }
inline Floats choose(Mask m, Floats yes, Floats no) { EACH_FOUR no.v[q] = vbslq_f32(m.v[q], yes.v[q], no.v[q]); return no; }
inline Floats cleared(Mask m, Floats a) {
  EACH_FOUR a.v[q] = vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(a.v[q]), m.v[q]));
  return a;
}

inline Doubles nothing() { Doubles out; EACH_TWO out.v[d] = vdupq_n_f64(0.0); return out; }
inline Doubles widened(Floats a) {
  Doubles out;
  EACH_FOUR {
    out.v[2 * q] = vcvt_f64_f32(vget_low_f32(a.v[q]));
    out.v[2 * q + 1] = vcvt_high_f64_f32(a.v[q]);
  }
  return out;
}
inline void add_to(Doubles& sum, Floats a) { Doubles w = widened(a); EACH_TWO sum.v[d] = vaddq_f64(sum.v[d], w.v[d]); }
// The square of a float is exact in double, so that fused and separate rounding agree.
inline void add_square_to(Doubles& sum, Floats a) { Doubles w = widened(a); EACH_TWO sum.v[d] = vfmaq_f64(sum.v[d], w.v[d], w.v[d]); }
inline void add_square_and_size_to(Doubles& squares, Doubles& sizes, Floats a) {
  Doubles w = widened(a);
  EACH_TWO {
    squares.v[d] = vfmaq_f64(squares.v[d], w.v[d], w.v[d]);
    sizes.v[d] = vaddq_f64(sizes.v[d], vabsq_f64(w.v[d]));
  }
}
inline double total(Doubles a) {  // in halves, as everywhere
  for (int half = 4; half; half /= 2)
    for (int d = 0; d < half; ++d) a.v[d] = vaddq_f64(a.v[d], a.v[d + half]);
  return vgetq_lane_f64(a.v[0], 0) + vgetq_lane_f64(a.v[0], 1);
}

inline Ints splat_int(uint32_t a) { Ints out; EACH_FOUR out.v[q] = vdupq_n_u32(a); return out; }
inline Ints operator+(Ints a, Ints b) { EACH_FOUR a.v[q] = vaddq_u32(a.v[q], b.v[q]); return a; }
inline Ints operator-(Ints a, Ints b) { EACH_FOUR a.v[q] = vsubq_u32(a.v[q], b.v[q]); return a; }
inline Ints operator*(Ints a, Ints b) { EACH_FOUR a.v[q] = vmulq_u32(a.v[q], b.v[q]); return a; }
inline Ints operator^(Ints a, Ints b) { EACH_FOUR a.v[q] = veorq_u32(a.v[q], b.v[q]); return a; }
inline Ints counting(uint32_t first, uint32_t step) {
  const uint32_t lanes[4] = {0, 1, 2, 3};
  Ints out;
  EACH_FOUR out.v[q] = vmlaq_u32(vdupq_n_u32(first + 4 * q * step), vld1q_u32(lanes), vdupq_n_u32(step));
  return out;
}
template <int N> inline Ints shifted_right(Ints a) { EACH_FOUR a.v[q] = vshrq_n_u32(a.v[q], N); return a; }
inline Floats to_floats(Ints a) { Floats out; EACH_FOUR out.v[q] = vcvtq_f32_s32(vreinterpretq_s32_u32(a.v[q])); return out; }
inline Ints nearest(Floats a) { Ints out; EACH_FOUR out.v[q] = vreinterpretq_u32_s32(vcvtnq_s32_f32(a.v[q])); return out; }
inline Ints rounded_down(Floats a) { Ints out; EACH_FOUR out.v[q] = vreinterpretq_u32_s32(vcvtmq_s32_f32(a.v[q])); return out; }

inline void store_bytes(uint8_t* p, Ints a) {  // each value is in [0, 255]
  uint16x8_t low = vcombine_u16(vmovn_u32(a.v[0]), vmovn_u32(a.v[1])), high = vcombine_u16(vmovn_u32(a.v[2]), vmovn_u32(a.v[3]));
  vst1q_u8(p, vcombine_u8(vmovn_u16(low), vmovn_u16(high)));
}
inline void store_bytes(uint8_t* p, Mask m) { Ints out; EACH_FOUR out.v[q] = vshrq_n_u32(m.v[q], 31); store_bytes(p, out); }
inline Ints load_bytes(const uint8_t* p) {
  uint8x16_t bytes = vld1q_u8(p);
  uint16x8_t low = vmovl_u8(vget_low_u8(bytes)), high = vmovl_high_u8(bytes);
  return {{vmovl_u16(vget_low_u16(low)), vmovl_high_u16(low), vmovl_u16(vget_low_u16(high)), vmovl_high_u16(high)}};
}

inline int append(Mask m, Floats a, uint32_t first, float* values, uint32_t* indices) {
  float lanes[LANES];
  store(lanes, a);
  int count = 0;
  for (uint32_t bits = bits_of(m); bits; bits &= bits - 1) {
    int lane = __builtin_ctz(bits);
    values[count] = lanes[lane];
    indices[count++] = first + lane;
  }
  return count;
}

// AdaComp's words, index << 2 | negative, of the lanes of the mask; there is room for sixteen.
template <class Word> inline int append_words(Mask m, Floats a, uint32_t first, Word* words) {
  uint32_t signs[LANES];
  EACH_FOUR vst1q_u32(signs + 4 * q, vshrq_n_u32(vreinterpretq_u32_f32(a.v[q]), 31));
  int count = 0;
  for (uint32_t left = bits_of(m); left; left &= left - 1) {
    int lane = __builtin_ctz(left);
    words[count++] = Word((first + lane) << 2 | signs[lane]);
  }
  return count;
}

// This processor decides by itself what passes the cache.
inline void stream(uint16_t* p, const uint16_t* lanes) { std::memcpy(p, lanes, LANES * sizeof(uint16_t)); }
inline void streamed() {}

inline void store_half(uint16_t* p, Floats a) { EACH_FOUR vst1_u16(p + 4 * q, vreinterpret_u16_f16(vcvt_f16_f32(a.v[q]))); }
inline Floats load_half(const uint16_t* p) {
  Floats out;
  EACH_FOUR out.v[q] = vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * q)));
  return out;
}
inline void store_brain(uint16_t* p, Floats a) {
  EACH_FOUR {
    uint32x4_t b = vreinterpretq_u32_f32(a.v[q]), odd = vandq_u32(vshrq_n_u32(b, 16), vdupq_n_u32(1));
    vst1_u16(p + 4 * q, vshrn_n_u32(vaddq_u32(vaddq_u32(b, vdupq_n_u32(0x7fff)), odd), 16));
  }
}
inline Floats load_brain(const uint16_t* p) {
  Floats out;
  EACH_FOUR out.v[q] = vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p + 4 * q), 16));
  return out;
}

#undef EACH_FOUR
#undef EACH_TWO

}  // namespace
