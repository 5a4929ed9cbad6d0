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

// p[i][k] for all rows; before(i, count) is called for every few rows that are about to be looked at.
template <class Before>
inline void dots_of_rows(const float* m, size_t rows, size_t columns, const float* qt, size_t pitch, size_t rank, float* p, Before before) {
  for (size_t i = 0; i < rows; i += TILE) {
    size_t count = rows - i < TILE ? rows - i : TILE;
    before(i, count);
    if (count == TILE)
      dots_of_all<TILE>(m + i * columns, columns, qt, pitch, rank, p + i * rank);
    else
      for (size_t j = i; j < i + count; ++j) dots_of_all<1>(m + j * columns, columns, qt, pitch, rank, p + j * rank);
  }
}

inline void times_loop(const float* m, size_t rows, size_t columns, const float* qt, size_t pitch, size_t rank, float* p) {
  dots_of_rows(m, rows, columns, qt, pitch, rank, p, [](size_t, size_t) {});
}

inline double fold_times_loop(float* m, const float* residual, size_t rows, size_t columns, const float* qt, size_t pitch, size_t rank, float* p) {
  double energy = 0.0;
  dots_of_rows(m, rows, columns, qt, pitch, rank, p, [&](size_t i, size_t count) {
    energy += fold_loop(m + i * columns, residual ? residual + i * columns : nullptr, count * columns);
  });
  return energy;
}

constexpr size_t MOST = 32;  // columns of p that are turned at a time

// ROWS rows of p turned, so that one address and fixed distances lead to all that a step multiplies with.
template <int ROWS> inline void turn_rows(const float* p, size_t rank, size_t count, float* by) {
  for (size_t k = 0; k < count; ++k)
    for (int i = 0; i < ROWS; ++i) by[k * ROWS + i] = p[i * rank + k];
}

template <int ROWS> inline void add_pack(const float* m, size_t width, int lanes, const float* by, size_t count, float* qt, size_t pitch) {
  Floats v[ROWS];
  for (int i = 0; i < ROWS; ++i) v[i] = load_pack(m + i * width, lanes);
  for (const float* end = by + count * ROWS; by < end; by += ROWS, qt += pitch) {
    Floats sum = load_pack(qt, lanes);
    for (int i = 0; i < ROWS; ++i) sum = multiply_add(v[i], splat(by[i]), sum);
    store_pack(qt, sum, lanes);
  }
}

// qt[k][c] += sum over ROWS rows of m[i][c] p[i][k], for `columns` columns of m, whose rows lie `width` apart.
template <int ROWS> inline void add_rows(const float* m, size_t width, size_t columns, const float* p, size_t rank, float* qt, size_t pitch) {
  float by[MOST * ROWS];
  for (size_t k = 0; k < rank; k += MOST) {
    size_t count = rank - k < MOST ? rank - k : MOST;
    turn_rows<ROWS>(p + k, rank, count, by);
    float* to = qt + k * pitch;
    each_pack(columns, [=, &by](size_t c, int lanes) { add_pack<ROWS>(m + c, width, lanes, by, count, to + c, pitch); });
  }
}

// qt[k][c] over all rows; before(i, count) is called for every few rows that are about to be looked at.
template <class Before>
inline void sums_of_rows(const float* m, size_t width, size_t rows, size_t columns, const float* p, size_t rank, float* qt, size_t pitch, Before before) {
  for (size_t k = 0; k < rank; ++k) std::memset(qt + k * pitch, 0, columns * sizeof(float));
  size_t i = 0;
  for (; i + TILE <= rows; i += TILE) {
    before(i, TILE);
    add_rows<TILE>(m + i * width, width, columns, p + i * rank, rank, qt, pitch);
  }
  for (; i < rows; ++i) {
    before(i, 1);
    add_rows<1>(m + i * width, width, columns, p + i * rank, rank, qt, pitch);
  }
}

inline void times_back_loop(const float* m, size_t width, size_t rows, size_t columns, const float* p, size_t rank, float* qt, size_t pitch) {
  sums_of_rows(m, width, rows, columns, p, rank, qt, pitch, [](size_t, size_t) {});
}

inline double fold_times_back_loop(float* m, const float* residual, size_t width, size_t rows, size_t columns, const float* p, size_t rank, float* qt,
                                   size_t pitch) {
  double energy = 0.0;
  sums_of_rows(m, width, rows, columns, p, rank, qt, pitch, [&](size_t i, size_t count) {
    size_t lines = columns == width ? 1 : count, length = columns == width ? count * columns : columns;
    for (size_t at = i * width, end = at + lines * width; at < end; at += width) energy += fold_loop(m + at, residual ? residual + at : nullptr, length);
  });
  return energy;
}

// ROWS rows of m plus the product of p and qt, or (FRESH) that product alone: in the order of k, each step rounded once, so
// that every instruction set writes the same bits.
template <int ROWS, bool FRESH>
inline void product_pack(float* m, size_t columns, int lanes, const float* by, const float* qt, size_t pitch, size_t count) {
  Floats v[ROWS];
  for (int i = 0; i < ROWS; ++i) v[i] = FRESH ? splat(0.0f) : load_pack(m + i * columns, lanes);
  for (const float* end = by + count * ROWS; by < end; by += ROWS, qt += pitch) {
    Floats q = load_pack(qt, lanes);
    for (int i = 0; i < ROWS; ++i) v[i] = multiply_add(splat(by[i]), q, v[i]);
  }
  for (int i = 0; i < ROWS; ++i) store_pack(m + i * columns, v[i], lanes);
}

template <int ROWS, bool FRESH> inline void products(float* m, size_t columns, const float* p, const float* qt, size_t pitch, size_t rank) {
  float by[MOST * ROWS];
  size_t k = 0;
  do {  // once at least: of no columns the product is zero
    size_t count = rank - k < MOST ? rank - k : MOST;
    turn_rows<ROWS>(p + k, rank, count, by);
    const float* from = qt + k * pitch;
    each_pack(columns, [=, &by](size_t c, int lanes) {
      FRESH && !k ? product_pack<ROWS, true>(m + c, columns, lanes, by, from + c, pitch, count)
                  : product_pack<ROWS, false>(m + c, columns, lanes, by, from + c, pitch, count);
    });
  } while ((k += MOST) < rank);
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
