// Sixteen lanes in one register (AVX-512 F, BW, DQ, VL).
#pragma once
#include <immintrin.h>

#include <cstdint>

namespace {

constexpr int LANES = 16;
constexpr int TILE = 8;  // rows of a matrix that fit the registers

struct Floats { __m512 v; };
struct Ints { __m512i v; };
struct Doubles { __m512d low, high; };
struct Mask { __mmask16 m; };

inline Floats splat(float v) { return {_mm512_set1_ps(v)}; }
inline Floats load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline void store(float* p, Floats a) { _mm512_storeu_ps(p, a.v); }
inline Mask first_lanes(int count) { return {__mmask16((1u << count) - 1)}; }
inline Floats load_some(const float* p, int count) { return {_mm512_maskz_loadu_ps(first_lanes(count).m, p)}; }
inline void store_some(float* p, Floats a, int count) { _mm512_mask_storeu_ps(p, first_lanes(count).m, a.v); }

inline Floats operator+(Floats a, Floats b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Floats operator-(Floats a, Floats b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Floats operator*(Floats a, Floats b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Floats operator/(Floats a, Floats b) { return {_mm512_div_ps(a.v, b.v)}; }
inline Floats multiply_add(Floats a, Floats b, Floats c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline Floats larger(Floats a, Floats b) { return {_mm512_max_ps(a.v, b.v)}; }
inline Floats smaller(Floats a, Floats b) { return {_mm512_min_ps(a.v, b.v)}; }
inline Ints as_ints(Floats a) { return {_mm512_castps_si512(a.v)}; }
inline Floats as_floats(Ints a) { return {_mm512_castsi512_ps(a.v)}; }
inline Ints magnitude_bits(Floats a) { return {_mm512_and_si512(_mm512_castps_si512(a.v), _mm512_set1_epi32(0x7fffffff))}; }
inline Floats magnitude(Floats a) { return as_floats(magnitude_bits(a)); }
inline float sum_of(Floats a) { return _mm512_reduce_add_ps(a.v); }
inline float largest(Floats a) { return _mm512_reduce_max_ps(a.v); }

inline Mask at_least(Floats a, Floats b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_GE_OQ)}; }
inline Mask below(Floats a, Floats b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
inline Mask at_least(Ints a, int32_t b) { return {_mm512_cmpge_epi32_mask(a.v, _mm512_set1_epi32(b))}; }
inline Mask both(Mask a, Mask b) { return {__mmask16(a.m & b.m)}; }
inline uint32_t bits_of(Mask a) { return a.m; }
inline Mask mask_of(uint32_t bits) { return {__mmask16(bits)}; }
inline Floats choose(Mask m, Floats yes, Floats no) { return {_mm512_mask_blend_ps(m.m, no.v, yes.v)}; }
inline Floats cleared(Mask m, Floats a) { return {_mm512_maskz_mov_ps(__mmask16(~m.m), a.v)}; }

inline Doubles nothing() { return {_mm512_setzero_pd(), _mm512_setzero_pd()}; }
inline __m512d low_half(Floats a) { return _mm512_cvtps_pd(_mm512_castps512_ps256(a.v)); }
inline __m512d high_half(Floats a) { return _mm512_cvtps_pd(_mm512_extractf32x8_ps(a.v, 1)); }
inline void add_to(Doubles& sum, Floats a) {
  sum.low = _mm512_add_pd(sum.low, low_half(a));
  sum.high = _mm512_add_pd(sum.high, high_half(a));
}
// The square of a float is exact in double, so that fused and separate rounding agree.
inline void add_square_to(Doubles& sum, Floats a) {
  __m512d low = low_half(a), high = high_half(a);
  sum.low = _mm512_fmadd_pd(low, low, sum.low);
  sum.high = _mm512_fmadd_pd(high, high, sum.high);
}
inline void add_square_and_size_to(Doubles& squares, Doubles& sizes, Floats a) {
  __m512d low = low_half(a), high = high_half(a);
  squares.low = _mm512_fmadd_pd(low, low, squares.low);
  squares.high = _mm512_fmadd_pd(high, high, squares.high);
  sizes.low = _mm512_add_pd(sizes.low, _mm512_abs_pd(low));
  sizes.high = _mm512_add_pd(sizes.high, _mm512_abs_pd(high));
}
inline double total(Doubles a) {
  __m512d eight = _mm512_add_pd(a.low, a.high);
  __m256d four = _mm256_add_pd(_mm512_castpd512_pd256(eight), _mm512_extractf64x4_pd(eight, 1));
  __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
  return _mm_cvtsd_f64(two) + _mm_cvtsd_f64(_mm_unpackhi_pd(two, two));
}

inline Ints splat_int(uint32_t v) { return {_mm512_set1_epi32(int32_t(v))}; }
inline Ints operator+(Ints a, Ints b) { return {_mm512_add_epi32(a.v, b.v)}; }
inline Ints operator-(Ints a, Ints b) { return {_mm512_sub_epi32(a.v, b.v)}; }
inline Ints operator*(Ints a, Ints b) { return {_mm512_mullo_epi32(a.v, b.v)}; }
inline Ints operator^(Ints a, Ints b) { return {_mm512_xor_si512(a.v, b.v)}; }
inline Ints counting(uint32_t first, uint32_t step) {
  __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  return splat_int(first) + Ints{lanes} * splat_int(step);
}
template <int N> inline Ints shifted_right(Ints a) { return {_mm512_srli_epi32(a.v, N)}; }
inline Floats to_floats(Ints a) { return {_mm512_cvtepi32_ps(a.v)}; }
inline Ints nearest(Floats a) { return {_mm512_cvt_roundps_epi32(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
inline Ints rounded_down(Floats a) { return {_mm512_cvt_roundps_epi32(a.v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)}; }

inline void store_bytes(uint8_t* p, Ints a) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a.v)); }
inline void store_bytes(uint8_t* p, Mask m) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm_maskz_set1_epi8(m.m, 1)); }
inline Ints load_bytes(const uint8_t* p) { return {_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))}; }

// Compressed in a register and stored whole: a compressing store is microcode on some processors.
inline int append(Mask m, Floats a, uint32_t first, float* values, uint32_t* indices) {
  _mm512_storeu_ps(values, _mm512_maskz_compress_ps(m.m, a.v));
  _mm512_storeu_si512(indices, _mm512_maskz_compress_epi32(m.m, counting(first, 1).v));
  return __builtin_popcount(m.m);
}

// AdaComp's words, index << 2 | negative, of the lanes of the mask; there is room for sixteen.
inline Ints words_of(Floats a, uint32_t first) {
  return {_mm512_or_si512(counting(4 * first, 4).v, _mm512_srli_epi32(_mm512_castps_si512(a.v), 31))};
}
inline int append_words(Mask m, Floats a, uint32_t first, uint16_t* words) {
  __m512i kept = _mm512_maskz_compress_epi32(m.m, words_of(a, first).v);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(words), _mm512_cvtepi32_epi16(kept));
  return __builtin_popcount(m.m);
}
inline int append_words(Mask m, Floats a, uint32_t first, uint8_t* words) {
  __m512i kept = _mm512_maskz_compress_epi32(m.m, words_of(a, first).v);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(words), _mm512_cvtepi32_epi8(kept));
  return __builtin_popcount(m.m);
}

// Past the cache, to an address that 32 divides; `streamed` ends a stretch of them.
inline void stream(uint16_t* p, const uint16_t* lanes) {
  _mm256_stream_si256(reinterpret_cast<__m256i*>(p), _mm256_loadu_si256(reinterpret_cast<const __m256i*>(lanes)));
}
inline void streamed() { _mm_sfence(); }

inline void store_half(uint16_t* p, Floats a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
inline Floats load_half(const uint16_t* p) { return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))}; }
inline void store_brain(uint16_t* p, Floats a) {
  __m512i b = _mm512_castps_si512(a.v);
  __m512i odd = _mm512_and_si512(_mm512_srli_epi32(b, 16), _mm512_set1_epi32(1));
  b = _mm512_add_epi32(_mm512_add_epi32(b, _mm512_set1_epi32(0x7fff)), odd);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(_mm512_srli_epi32(b, 16)));
}
inline Floats load_brain(const uint16_t* p) {
  __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return as_floats(Ints{_mm512_slli_epi32(wide, 16)});
}

}  // namespace
