// PowerSGD's products: a matrix of m rows against factors of a few columns.
#include <cmath>
#include <cstring>

#include "kernels.h"
#include "parallel.h"
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

double sketch(float* m, const float* residual, size_t rows, size_t columns, const float* q, size_t rank, float* p, int threads) {
  if (!rows || !columns) return 0.0;
  thread_local Scratch memory;
  size_t pitch = pitch_of(columns);
  const float* qt = turned(q, columns, rank, memory.of<float>(rank * pitch));
  std::vector<double> energies(stretches(rows * columns, UNIT * columns, threads).size());
  by_lines(rows, columns, UNIT, threads, [&](size_t part, size_t from, size_t count) {
    const float* kept = residual ? residual + from * columns : nullptr;
    energies[part] = table().sketch(m + from * columns, kept, count, columns, qt, pitch, rank, p + from * rank);
  });
  double energy = 0.0;
  for (double each : energies) energy += each;
  if (!std::isfinite(energy)) {
    std::memset(m, 0, rows * columns * sizeof(float));
    std::memset(p, 0, rows * rank * sizeof(float));
  }
  return energy;
}

void sketch_back(const float* m, size_t rows, size_t columns, const float* p, size_t rank, float* q, int threads) {
  if (!columns) return;
  thread_local Scratch memory;
  size_t pitch = pitch_of(columns);
  float* qt = memory.of<float>(rank * pitch);
  by_lines(columns, rows ? rows : 1, UNIT, threads, [&](size_t, size_t from, size_t count) {
    table().sketch_back(m + from, columns, rows, count, p, rank, qt + from, pitch);
  });
  for (size_t c = 0; c < columns; ++c)
    for (size_t k = 0; k < rank; ++k) q[c * rank + k] = qt[k * pitch + c];
}

void add_product(float* m, size_t rows, size_t columns, const float* p, const float* q, size_t rank, float weight, bool fresh, int threads) {
  if (!rows || !columns) return;
  thread_local Scratch memory, weighted;
  size_t pitch = pitch_of(columns);
  const float* qt = turned(q, columns, rank, memory.of<float>(rank * pitch));
  float* by = weighted.of<float>(rows * rank);
  for (size_t i = 0; i < rows * rank; ++i) by[i] = weight * p[i];
  by_lines(rows, columns, UNIT, threads, [&](size_t, size_t from, size_t count) {
    table().add_product(m + from * columns, count, columns, by + from * rank, qt, pitch, rank, fresh);
  });
}

}  // namespace laconic
