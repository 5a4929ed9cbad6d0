// Products of a large matrix with a few columns. Factors come transposed, a row per column, so that all loads are whole;
// their rows lie a `pitch` apart that is no power of two, or they would fight for the same places in the cache.
#pragma once
#include "loops/sums.h"

namespace {

constexpr int RANKS = 4;  // columns of q that share a look at the matrix

// p[i][k] = sum over c of m[i][c] qt[k][c], for ROWS rows and K columns of p.
template <int ROWS, int K>
inline void dots(const float* m, size_t columns, const float* qt, size_t pitch, float* p, size_t rank) {
  Floats sums[ROWS][K];
  for (int i = 0; i < ROWS; ++i)
    for (int k = 0; k < K; ++k) sums[i][k] = splat(0.0f);
  each_pack(columns, [&](size_t c, int lanes) {
    Floats by[K];
    for (int k = 0; k < K; ++k) by[k] = load_pack(qt + k * pitch + c, lanes);
    for (int i = 0; i < ROWS; ++i) {
      Floats v = load_pack(m + i * columns + c, lanes);
      for (int k = 0; k < K; ++k) sums[i][k] = multiply_add(v, by[k], sums[i][k]);
    }
  });
  for (int i = 0; i < ROWS; ++i)
    for (int k = 0; k < K; ++k) p[i * rank + k] = sum_of(sums[i][k]);
}

template <int ROWS> inline void dots_of_all(const float* m, size_t columns, const float* qt, size_t pitch, size_t rank, float* p) {
  size_t k = 0;
  for (; k + RANKS <= rank; k += RANKS) dots<ROWS, RANKS>(m, columns, qt + k * pitch, pitch, p + k, rank);
  if (rank - k == 3) dots<ROWS, 3>(m, columns, qt + k * pitch, pitch, p + k, rank);
  if (rank - k == 2) dots<ROWS, 2>(m, columns, qt + k * pitch, pitch, p + k, rank);
  if (rank - k == 1) dots<ROWS, 1>(m, columns, qt + k * pitch, pitch, p + k, rank);
}

inline double sketch_loop(float* m, const float* residual, size_t rows, size_t columns, const float* qt, size_t pitch, size_t rank, float* p) {
  double energy = 0.0;
  for (size_t i = 0; i < rows; i += TILE) {
    size_t count = rows - i < TILE ? rows - i : TILE, at = i * columns;
    energy += fold_loop(m + at, residual ? residual + at : nullptr, count * columns);
    if (count == TILE)
      dots_of_all<TILE>(m + at, columns, qt, pitch, rank, p + i * rank);
    else
      for (size_t j = 0; j < count; ++j) dots_of_all<1>(m + at + j * columns, columns, qt, pitch, rank, p + (i + j) * rank);
  }
  return energy;
}

// qt[k][c] += sum over ROWS rows of m[i][c] p[i][k], for `columns` columns of m, whose rows lie `width` apart.
template <int ROWS> inline void add_rows(const float* m, size_t width, size_t columns, const float* p, size_t rank, float* qt, size_t pitch) {
  each_pack(columns, [&](size_t c, int lanes) {
    Floats v[ROWS];
    for (int i = 0; i < ROWS; ++i) v[i] = load_pack(m + i * width + c, lanes);
    for (size_t k = 0; k < rank; ++k) {
      Floats sum = load_pack(qt + k * pitch + c, lanes);
      for (int i = 0; i < ROWS; ++i) sum = multiply_add(v[i], splat(p[i * rank + k]), sum);
      store_pack(qt + k * pitch + c, sum, lanes);
    }
  });
}

inline void sketch_back_loop(const float* m, size_t width, size_t rows, size_t columns, const float* p, size_t rank, float* qt, size_t pitch) {
  for (size_t k = 0; k < rank; ++k) std::memset(qt + k * pitch, 0, columns * sizeof(float));
  size_t i = 0;
  for (; i + TILE <= rows; i += TILE) add_rows<TILE>(m + i * width, width, columns, p + i * rank, rank, qt, pitch);
  for (; i < rows; ++i) add_rows<1>(m + i * width, width, columns, p + i * rank, rank, qt, pitch);
}

// ROWS rows of m plus the product of p and qt, or (FRESH) that product alone: in the order of k, each step rounded once, so
// that every instruction set writes the same bits.
template <int ROWS, bool FRESH> inline void products(float* m, size_t columns, const float* p, const float* qt, size_t pitch, size_t rank) {
  each_pack(columns, [&](size_t c, int lanes) {
    Floats v[ROWS];
    for (int i = 0; i < ROWS; ++i) v[i] = FRESH ? splat(0.0f) : load_pack(m + i * columns + c, lanes);
    for (size_t k = 0; k < rank; ++k) {
      Floats by = load_pack(qt + k * pitch + c, lanes);
      for (int i = 0; i < ROWS; ++i) v[i] = multiply_add(splat(p[i * rank + k]), by, v[i]);
    }
    for (int i = 0; i < ROWS; ++i) store_pack(m + i * columns + c, v[i], lanes);
  });
}

inline void add_product_loop(float* m, size_t rows, size_t columns, const float* p, const float* qt, size_t pitch, size_t rank, bool fresh) {
  size_t i = 0;
  for (; i + TILE <= rows; i += TILE)
    fresh ? products<TILE, true>(m + i * columns, columns, p + i * rank, qt, pitch, rank)
          : products<TILE, false>(m + i * columns, columns, p + i * rank, qt, pitch, rank);
  for (; i < rows; ++i)
    fresh ? products<1, true>(m + i * columns, columns, p + i * rank, qt, pitch, rank)
          : products<1, false>(m + i * columns, columns, p + i * rank, qt, pitch, rank);
}

}  // namespace
