// What every step does to every layer.
#pragma once
#include "loops/sums.h"

namespace {

inline double energy_loop(const float* x, size_t n) {
  Doubles energy = nothing();
  each_pack(n, [&](size_t i, int lanes) { add_square_to(energy, load_pack(x + i, lanes)); });
  return total(energy);
}

inline double fold_loop(float* x, const float* residual, size_t n) {
  if (!residual) return energy_loop(x, n);
  Doubles energy = nothing();
  each_pack(n, [&](size_t i, int lanes) { add_square_to(energy, folded<true>(x + i, residual + i, lanes)); });
  return total(energy);
}

inline void settle_loop(float* x, float* residual, size_t n) {
  each_pack(n, [&](size_t i, int lanes) {
    store_pack(residual + i, load_pack(x + i, lanes), lanes);
    store_pack(x + i, splat(0.0f), lanes);
  });
}

}  // namespace
