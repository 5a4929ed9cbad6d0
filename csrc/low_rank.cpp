// PowerSGD's products: a matrix of m rows against factors of a few columns.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels.h"
#include "parallel.h"
#include "loops/bitstream.h"
#include "scratch.h"

namespace laconic {

namespace {

// A factor's transpose, its rows a cache line more than a whole number of lines apart.
size_t pitch_of(size_t columns) { return columns / 16 * 16 + 32; }

float* turned(const float* q, size_t columns, size_t rank, float* qt) {
  for (size_t k = 0; k < rank; ++k)
    for (size_t c = 0; c < columns; ++c) qt[k * pitch_of(columns) + c] = q[c * rank + k];
  return qt;
}

// Calls work(part, first, count) for stretches of [0, lines), where a line has `length` elements.
template <class Work> void by_lines(size_t lines, size_t length, size_t unit, int threads, Work work) {
  std::vector<Stretch> parts = stretches(lines * length, unit * length, threads);
  at_once(parts.size(), threads, [&](size_t i) { work(i, parts[i].from / length, (parts[i].to - parts[i].from) / length); });
}

constexpr size_t UNIT = 16;  // rows, or columns, that stay together

}  // namespace

namespace {

bool high(size_t rows, size_t columns) { return rows > columns; }

// to = m^T from, in stretches of columns; work(part, first, count, where) writes to^T from `where` on, its rows `pitch` apart.
template <class Work> void by_columns(size_t rows, size_t columns, size_t rank, float* to, int threads, Work work) {
  thread_local Scratch memory;
  size_t pitch = pitch_of(columns);
  float* turned_to = memory.of<float>(rank * pitch);
  by_lines(columns, rows ? rows : 1, UNIT, threads, [&](size_t part, size_t from, size_t count) { work(part, from, count, turned_to + from, pitch); });
  for (size_t c = 0; c < columns; ++c)
    for (size_t k = 0; k < rank; ++k) to[c * rank + k] = turned_to[k * pitch + c];
}

// to = m from, in stretches of rows; work(part, first, count, from^T, its pitch).
template <class Work> void by_rows(size_t rows, size_t columns, const float* from, size_t rank, int threads, Work work) {
  thread_local Scratch memory;
  size_t pitch = pitch_of(columns);
  const float* turned_from = turned(from, columns, rank, memory.of<float>(rank * pitch));
  by_lines(rows, columns, UNIT, threads, [&](size_t part, size_t first, size_t count) { work(part, first, count, turned_from, pitch); });
}

}  // namespace

double sketch(float* m, const float* residual, size_t rows, size_t columns, const float* q, size_t rank, float* p, int threads) {
  if (!rows || !columns) return 0.0;
  std::vector<double> energies;
  if (high(rows, columns)) {
    energies.resize(stretches(rows * columns, UNIT * rows, threads).size());
    by_columns(rows, columns, rank, p, threads, [&](size_t part, size_t from, size_t count, float* pt, size_t pitch) {
      energies[part] = table().fold_times_back(m + from, residual ? residual + from : nullptr, columns, rows, count, q, rank, pt, pitch);
    });
  } else {
    energies.resize(stretches(rows * columns, UNIT * columns, threads).size());
    by_rows(rows, columns, q, rank, threads, [&](size_t part, size_t from, size_t count, const float* qt, size_t pitch) {
      const float* kept = residual ? residual + from * columns : nullptr;
      energies[part] = table().fold_times(m + from * columns, kept, count, columns, qt, pitch, rank, p + from * rank);
    });
  }
  double energy = 0.0;
  for (double each : energies) energy += each;
  if (!std::isfinite(energy)) {
    std::memset(m, 0, rows * columns * sizeof(float));
    std::memset(p, 0, std::min(rows, columns) * rank * sizeof(float));
  }
  return energy;
}

void sketch_back(const float* m, size_t rows, size_t columns, const float* p, size_t rank, float* q, int threads) {
  if (!columns) return;
  if (high(rows, columns)) {
    by_rows(rows, columns, p, rank, threads, [&](size_t, size_t from, size_t count, const float* pt, size_t pitch) {
      table().times(m + from * columns, count, columns, pt, pitch, rank, q + from * rank);
    });
  } else {
    by_columns(rows, columns, rank, q, threads, [&](size_t, size_t from, size_t count, float* qt, size_t pitch) {
      table().times_back(m + from, columns, rows, count, p, rank, qt, pitch);
    });
  }
}

void add_product(float* m, size_t rows, size_t columns, const float* p, const float* q, size_t rank, float weight, bool fresh, int threads) {
  if (!rows || !columns) return;
  thread_local Scratch weighted;
  const float *left = high(rows, columns) ? q : p, *right = high(rows, columns) ? p : q;
  float* by = weighted.of<float>(rows * rank);
  for (size_t i = 0; i < rows * rank; ++i) by[i] = weight * left[i];
  by_rows(rows, columns, right, rank, threads, [&](size_t, size_t from, size_t count, const float* turned_right, size_t pitch) {
    table().add_product(m + from * columns, count, columns, by + from * rank, turned_right, pitch, rank, fresh);
  });
}

namespace {

size_t aligned(size_t nbytes) { return nbytes ? (nbytes + 7) / 8 * 8 : 8; }

size_t code_bytes(size_t count, int bits) { return (count * size_t(bits) + 7) / 8; }

constexpr size_t BEYOND = 16;  // codes that loops read and write behind the last

}  // namespace

size_t factor_bytes(size_t length, size_t rank, int bits) { return aligned(4 * rank) + aligned(length) + aligned(code_bytes(length * rank, bits)); }

void code_factor(float* factor, size_t length, size_t rank, int bits, uint8_t* payload) {
  const float LEVELS = float((1 << (bits - 1)) - 1);
  thread_local Scratch memory, of_codes;
  float *inverse = memory.of<float>(2 * rank), *step = inverse + rank;
  bool finite = table().column_scales(factor, length, rank, inverse);
  for (size_t k = 0; k < rank; ++k) {
    float scale = inverse[k];
    inverse[k] = LEVELS / scale, step[k] = scale / LEVELS;
    if (!finite || !std::isfinite(inverse[k]) || !(step[k] > 0)) inverse[k] = step[k] = 0.0f;
  }
  if (!finite) std::memset(factor, 0, length * rank * sizeof(float));
  size_t count = length * rank, nbytes = code_bytes(count, bits);
  uint8_t *shares = payload + aligned(4 * rank), *written = shares + aligned(length), *codes = of_codes.of<uint8_t>(count + BEYOND);
  std::memset(payload, 0, size_t(written - payload));
  std::memcpy(payload, step, rank * sizeof(float));
  table().code_factor(factor, length, rank, LEVELS, inverse, step, shares, codes);
  pack(bits, codes, count, written);
  std::memset(written + nbytes, 0, aligned(nbytes) - nbytes);
}

bool sum_factors(const uint8_t* payload, size_t payloads, size_t pitch, size_t length, size_t rank, int bits, float weight, float* total) {
  const float LEVELS = float((1 << (bits - 1)) - 1);
  for (size_t one = 0; one < payloads; ++one)
    if (!plausible(reinterpret_cast<const float*>(payload + one * pitch), rank, bits)) return false;
  thread_local Scratch memory, of_codes;
  float* step = memory.of<float>(rank);
  uint8_t* codes = of_codes.of<uint8_t>(length * rank + BEYOND);
  std::fill_n(total, length * rank, 0.0f);
  for (size_t one = 0; one < payloads; ++one, payload += pitch) {
    const uint8_t* shares = payload + aligned(4 * rank);
    unpack(bits, shares + aligned(length), length * rank, codes);
    for (size_t k = 0; k < rank; ++k) step[k] = reinterpret_cast<const float*>(payload)[k] * weight;
    table().add_factor(shares, codes, length, rank, LEVELS, step, total);
  }
  return true;
}

}  // namespace laconic
