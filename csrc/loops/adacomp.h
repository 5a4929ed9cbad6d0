// AdaComp: a pass that folds, finds the largest of every bin and selects while the bin is in the first-level cache; then,
// what is sent being known, one that takes it out of x. Both stream: sixteen elements at a time, chosen ones or not.
#pragma once
#include "loops/sums.h"

namespace {

template <class Word, bool RESIDUAL>
inline double bins_chosen(float* x, const float* residual, size_t n, size_t bin, float* largest_of, uint16_t* chosen, Word*& to) {
  constexpr Word EMPTY = Word(sizeof(Word) == 1 ? 63u << 2 | 2 : 16383u << 2 | 2);
  float drive[16384 + LANES];  // |G + g|, or -1 where there is nothing to send
  Doubles energy = nothing();
  Floats zero = splat(0.0f), never = splat(-1.0f);
  for (size_t from = 0; from < n; from += bin) {
    size_t count = n - from < bin ? n - from : bin;
    Floats most = zero;
    each_pack(count, [&](size_t i, int lanes) {
      Floats g = load_pack(x + from + i, lanes), v = g;
      if (RESIDUAL) {
        v = g + load_pack(residual + from + i, lanes);
        store_pack(x + from + i, v, lanes);
      }
      add_square_to(energy, v);
      Floats size = magnitude(v);
      most = larger(size, most);
      store(drive + i, choose(below(zero, size), magnitude(v + g), never));  // past the end all is zero
    });
    float top = largest(most);
    *largest_of++ = top;
    Floats bar = splat(top);
    Word* start = to;
    each_pack(count, [&](size_t i, int lanes) {
      Mask sent = at_least(load(drive + i), bar);
      to += append_words(sent, load_pack(x + from + i, lanes), uint32_t(i), to);
      *chosen++ = uint16_t(bits_of(sent));
    });
    if (to == start) *to++ = EMPTY;
    to[-1] |= 2;  // closes the bin
  }
  return total(energy);
}

template <class Word>
inline double words_chosen(float* x, const float* residual, size_t n, size_t bin, float* largest_of, uint16_t* chosen, void* words, size_t* count) {
  Word *first = static_cast<Word*>(words), *to = first;
  double energy = residual ? bins_chosen<Word, true>(x, residual, n, bin, largest_of, chosen, to)
                           : bins_chosen<Word, false>(x, x, n, bin, largest_of, chosen, to);
  *count = size_t(to - first);
  return energy;
}

inline double choose_in_bins_loop(float* x, const float* residual, size_t n, size_t bin, float* largest_of, uint16_t* chosen, void* words, size_t* count) {
  return bin < 64 ? words_chosen<uint8_t>(x, residual, n, bin, largest_of, chosen, words, count)
                  : words_chosen<uint16_t>(x, residual, n, bin, largest_of, chosen, words, count);
}

inline void take_chosen_loop(float* x, size_t n, size_t bin, const uint16_t* chosen, float scale) {
  Floats zero = splat(0.0f), up = splat(scale), down = splat(-scale);
  for (size_t from = 0; from < n; from += bin)
    each_pack(n - from < bin ? n - from : bin, [&](size_t i, int lanes) {
      Floats v = load_pack(x + from + i, lanes);
      store_pack(x + from + i, choose(mask_of(*chosen++), v - choose(below(v, zero), down, up), v), lanes);
    });
}

}  // namespace
