// Sixteen lanes in two registers (AVX2, FMA, F16C).
#pragma once
#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace {

constexpr int LANES = 16;
constexpr int TILE = 4;  // rows of a matrix that about fit the registers

struct Floats { __m256 a, b; };
struct Ints { __m256i a, b; };
struct Doubles { __m256d a, b, c, d; };
struct Mask { __m256 a, b; };

alignas(64) const int32_t FIRST[32] = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
alignas(64) const int32_t BIT[16] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768};

inline Floats splat(float v) { return {_mm256_set1_ps(v), _mm256_set1_ps(v)}; }
inline Floats load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void store(float* p, Floats v) { _mm256_storeu_ps(p, v.a); _mm256_storeu_ps(p + 8, v.b); }
inline Mask first_lanes(int count) {
  const float* p = reinterpret_cast<const float*>(FIRST + 16 - count);
  return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
inline Floats load_some(const float* p, int count) {
  Mask m = first_lanes(count);
  return {_mm256_maskload_ps(p, _mm256_castps_si256(m.a)), _mm256_maskload_ps(p + 8, _mm256_castps_si256(m.b))};
}
inline void store_some(float* p, Floats v, int count) {
  float lanes[LANES];
  store(lanes, v);
  std::memcpy(p, lanes, count * sizeof(float));
}

inline Floats operator+(Floats x, Floats y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
inline Floats operator-(Floats x, Floats y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
inline Floats operator*(Floats x, Floats y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
inline Floats operator/(Floats x, Floats y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
inline Floats multiply_add(Floats x, Floats y, Floats z) { return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)}; }
inline Floats larger(Floats x, Floats y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
inline Floats smaller(Floats x, Floats y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
inline Ints as_ints(Floats v) { return {_mm256_castps_si256(v.a), _mm256_castps_si256(v.b)}; }
inline Floats as_floats(Ints v) { return {_mm256_castsi256_ps(v.a), _mm256_castsi256_ps(v.b)}; }
inline Floats magnitude(Floats v) {
  __m256 m = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  return {_mm256_and_ps(v.a, m), _mm256_and_ps(v.b, m)};
}
inline Ints magnitude_bits(Floats v) { return as_ints(magnitude(v)); }
inline float sum_of(Floats v) {
  __m256 eight = _mm256_add_ps(v.a, v.b);
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline float largest(Floats v) {
  __m256 eight = _mm256_max_ps(v.a, v.b);
  __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

inline Mask at_least(Floats x, Floats y) { return {_mm256_cmp_ps(x.a, y.a, _CMP_GE_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_GE_OQ)}; }
inline Mask below(Floats x, Floats y) { return {_mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ)}; }
inline Mask at_least(Ints x, int32_t y) {  // magnitudes and thresholds are not negative, so that y - 1 is safe
  __m256i less = _mm256_set1_epi32(y - 1);
  return {_mm256_castsi256_ps(_mm256_cmpgt_epi32(x.a, less)), _mm256_castsi256_ps(_mm256_cmpgt_epi32(x.b, less))};
}
inline Mask both(Mask x, Mask y) { return {_mm256_and_ps(x.a, y.a), _mm256_and_ps(x.b, y.b)}; }
inline uint32_t bits_of(Mask m) { return uint32_t(_mm256_movemask_ps(m.a)) | uint32_t(_mm256_movemask_ps(m.b)) << 8; }
inline Mask mask_of(uint32_t bits) {
  __m256i all = _mm256_set1_epi32(int32_t(bits));
  __m256i low = _mm256_load_si256(reinterpret_cast<const __m256i*>(BIT));
  __m256i high = _mm256_load_si256(reinterpret_cast<const __m256i*>(BIT + 8));
  return {_mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(all, low), low)),
          _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(all, high), high))};
}
inline Floats choose(Mask m, Floats yes, Floats no) { return {_mm256_blendv_ps(no.a, yes.a, m.a), _mm256_blendv_ps(no.b, yes.b, m.b)}; }
inline Floats cleared(Mask m, Floats v) { return {_mm256_andnot_ps(m.a, v.a), _mm256_andnot_ps(m.b, v.b)}; }

inline Doubles nothing() { __m256d zero = _mm256_setzero_pd(); return {zero, zero, zero, zero}; }
inline __m256d low_half(__m256 v) { return _mm256_cvtps_pd(_mm256_castps256_ps128(v)); }
inline __m256d high_half(__m256 v) { return _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1)); }
inline void add_to(Doubles& sum, Floats v) {
  sum.a = _mm256_add_pd(sum.a, low_half(v.a));
  sum.b = _mm256_add_pd(sum.b, high_half(v.a));
  sum.c = _mm256_add_pd(sum.c, low_half(v.b));
  sum.d = _mm256_add_pd(sum.d, high_half(v.b));
}
// The square of a float is exact in double, so that fused and separate rounding agree.
inline void add_square_to(Doubles& sum, Floats v) {
  __m256d a = low_half(v.a), b = high_half(v.a), c = low_half(v.b), d = high_half(v.b);
  sum.a = _mm256_fmadd_pd(a, a, sum.a);
  sum.b = _mm256_fmadd_pd(b, b, sum.b);
  sum.c = _mm256_fmadd_pd(c, c, sum.c);
  sum.d = _mm256_fmadd_pd(d, d, sum.d);
}
inline void add_square_and_size_to(Doubles& squares, Doubles& sizes, Floats v) {
  __m256d a = low_half(v.a), b = high_half(v.a), c = low_half(v.b), d = high_half(v.b);
  squares.a = _mm256_fmadd_pd(a, a, squares.a);
  squares.b = _mm256_fmadd_pd(b, b, squares.b);
  squares.c = _mm256_fmadd_pd(c, c, squares.c);
  squares.d = _mm256_fmadd_pd(d, d, squares.d);
  __m256d sign = _mm256_set1_pd(-0.0);
  sizes.a = _mm256_add_pd(sizes.a, _mm256_andnot_pd(sign, a));
  sizes.b = _mm256_add_pd(sizes.b, _mm256_andnot_pd(sign, b));
  sizes.c = _mm256_add_pd(sizes.c, _mm256_andnot_pd(sign, c));
  sizes.d = _mm256_add_pd(sizes.d, _mm256_andnot_pd(sign, d));
}
inline double total(Doubles v) {
  __m256d four = _mm256_add_pd(_mm256_add_pd(v.a, v.c), _mm256_add_pd(v.b, v.d));
  __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
  return _mm_cvtsd_f64(two) + _mm_cvtsd_f64(_mm_unpackhi_pd(two, two));
}

inline Ints splat_int(uint32_t v) { __m256i all = _mm256_set1_epi32(int32_t(v)); return {all, all}; }
inline Ints operator+(Ints x, Ints y) { return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }
inline Ints operator-(Ints x, Ints y) { return {_mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b)}; }
inline Ints operator*(Ints x, Ints y) { return {_mm256_mullo_epi32(x.a, y.a), _mm256_mullo_epi32(x.b, y.b)}; }
inline Ints operator^(Ints x, Ints y) { return {_mm256_xor_si256(x.a, y.a), _mm256_xor_si256(x.b, y.b)}; }
inline Ints counting(uint32_t first, uint32_t step) {
  Ints lanes = {_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15)};
  return splat_int(first) + lanes * splat_int(step);
}
template <int N> inline Ints shifted_right(Ints v) { return {_mm256_srli_epi32(v.a, N), _mm256_srli_epi32(v.b, N)}; }
inline Floats to_floats(Ints v) { return {_mm256_cvtepi32_ps(v.a), _mm256_cvtepi32_ps(v.b)}; }
inline Ints nearest(Floats v) { return {_mm256_cvtps_epi32(v.a), _mm256_cvtps_epi32(v.b)}; }
inline Ints rounded_down(Floats v) { return {_mm256_cvttps_epi32(_mm256_floor_ps(v.a)), _mm256_cvttps_epi32(_mm256_floor_ps(v.b))}; }

inline void store_bytes(uint8_t* p, Ints v) {  // each value is in [0, 255]
  __m256i pairs = _mm256_permute4x64_epi64(_mm256_packs_epi32(v.a, v.b), 0xd8);
  __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
}
inline void store_bytes(uint8_t* p, Mask m) {
  store_bytes(p, Ints{_mm256_srli_epi32(_mm256_castps_si256(m.a), 31), _mm256_srli_epi32(_mm256_castps_si256(m.b), 31)});
}
inline Ints load_bytes(const uint8_t* p) {
  __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
}

inline int append(Mask m, Floats v, uint32_t first, float* values, uint32_t* indices) {
  float lanes[LANES];
  store(lanes, v);
  int count = 0;
  for (uint32_t bits = bits_of(m); bits; bits &= bits - 1) {
    int lane = __builtin_ctz(bits);
    values[count] = lanes[lane];
    indices[count++] = first + lane;
  }
  return count;
}

// AdaComp's words, index << 2 | negative, of the lanes of the mask; there is room for sixteen.
template <class Word> inline int append_words(Mask m, Floats v, uint32_t first, Word* words) {
  uint32_t negative = bits_of(Mask{v.a, v.b});
  int count = 0;
  for (uint32_t left = bits_of(m); left; left &= left - 1) {
    int lane = __builtin_ctz(left);
    words[count++] = Word((first + lane) << 2 | (negative >> lane & 1));
  }
  return count;
}

// Past the cache, to an address that 32 divides; `streamed` ends a stretch of them.
inline void stream(uint16_t* p, const uint16_t* lanes) {
  _mm256_stream_si256(reinterpret_cast<__m256i*>(p), _mm256_loadu_si256(reinterpret_cast<const __m256i*>(lanes)));
}
inline void streamed() { _mm_sfence(); }

inline void store_half(uint16_t* p, Floats v) {
  constexpr int NEAREST = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v.a, NEAREST));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(v.b, NEAREST));
}
inline Floats load_half(const uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
inline __m256i rounded_brain(__m256 v) {
  __m256i b = _mm256_castps_si256(v);
  __m256i odd = _mm256_and_si256(_mm256_srli_epi32(b, 16), _mm256_set1_epi32(1));
  return _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(b, _mm256_set1_epi32(0x7fff)), odd), 16);
}
inline void store_brain(uint16_t* p, Floats v) {
  __m256i pairs = _mm256_packus_epi32(rounded_brain(v.a), rounded_brain(v.b));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(pairs, 0xd8));
}
inline Floats load_brain(const uint16_t* p) {
  __m256i low = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  __m256i high = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)));
  return as_floats(Ints{_mm256_slli_epi32(low, 16), _mm256_slli_epi32(high, 16)});
}

}  // namespace
