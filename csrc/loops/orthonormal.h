// An orthonormal basis of a few long columns, by Gram and Schmidt: each column loses what lies in those before it, twice,
// since once is not enough where columns nearly agree. A column of which then nothing is left but rounding (a zero column
// too) becomes a direction that is still free, so that the next step can find something there.
#pragma once
#include <cmath>

#include "loops/sums.h"

namespace {

constexpr float LEAST = 1e-6f;  // of a column's norm: less is what rounding leaves of a column that depends on others

inline float dot(const float* a, const float* b, size_t n) {
  Floats sum = splat(0.0f);
  each_pack(n, [&](size_t i, int lanes) { sum = multiply_add(load_pack(a + i, lanes), load_pack(b + i, lanes), sum); });
  return sum_of(sum);
}

// Takes from v what K columns hold of it: all are looked at before any is taken away.
template <int K> inline void take_from(float* v, const float* columns, size_t pitch, size_t n) {
  Floats sums[K];
  for (int k = 0; k < K; ++k) sums[k] = splat(0.0f);
  each_pack(n, [&](size_t i, int lanes) {
    Floats own = load_pack(v + i, lanes);
    for (int k = 0; k < K; ++k) sums[k] = multiply_add(load_pack(columns + k * pitch + i, lanes), own, sums[k]);
  });
  for (int k = 0; k < K; ++k) sums[k] = splat(-sum_of(sums[k]));
  each_pack(n, [&](size_t i, int lanes) {
    Floats own = load_pack(v + i, lanes);
    for (int k = 0; k < K; ++k) own = multiply_add(load_pack(columns + k * pitch + i, lanes), sums[k], own);
    store_pack(v + i, own, lanes);
  });
}

inline void scale(float* v, float by, size_t n) {
  Floats many = splat(by);
  each_pack(n, [&](size_t i, int lanes) { store_pack(v + i, load_pack(v + i, lanes) * many, lanes); });
}

// Takes from column k what the columns before it hold; the square of its norm then.
inline float apart(float* columns, size_t pitch, size_t n, size_t k) {
  float* v = columns + k * pitch;
  for (int time = 0; time < 2; ++time) {
    size_t j = 0;
    for (; j + 4 <= k; j += 4) take_from<4>(v, columns + j * pitch, pitch, n);
    for (; j < k; ++j) take_from<1>(v, columns + j * pitch, pitch, n);
  }
  return dot(v, v, n);
}

// Column k, made a unit vector that is orthogonal to those before it; false where nothing of it is left.
inline bool made_unit(float* columns, size_t pitch, size_t n, size_t k) {
  float* v = columns + k * pitch;
  Floats most = splat(0.0f);
  each_pack(n, [&](size_t i, int lanes) { most = larger(magnitude(load_pack(v + i, lanes)), most); });
  float inverse = 1.0f / largest(most);
  if (!(inverse > 0.0f && inverse <= 3.402823466e38f)) return false;
  scale(v, inverse, n);  // or squares could overflow, or vanish
  float before = dot(v, v, n), after = apart(columns, pitch, n, k);
  if (!(after > LEAST * LEAST * before)) return false;
  scale(v, 1.0f / std::sqrt(after), n);
  return true;
}

// `rank` columns of n elements, `pitch` apart; rank is not above n.
inline void orthonormal_loop(float* columns, size_t pitch, size_t n, size_t rank) {
  for (size_t k = 0; k < rank; ++k) {
    if (made_unit(columns, pitch, n, k)) continue;
    float *v = columns + k * pitch, least = 0.5f * float(n - k) / float(n);  // the mean over all axes is twice that
    for (size_t axis = 0; axis < n; ++axis) {
      std::memset(v, 0, n * sizeof(float));
      v[axis] = 1.0f;
      float norm = apart(columns, pitch, n, k);
      if (norm < least) continue;
      scale(v, 1.0f / std::sqrt(norm), n);
      break;
    }
  }
}

}  // namespace
