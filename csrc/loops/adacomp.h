// AdaComp's selection, a bin at a time.
#pragma once
#include "loops/sums.h"

namespace {

using laconic::Bins;

// Writes words while they fit; those that do not are counted.
template <class Word> struct Words {
  Word* at;
  size_t room, count;

  void put(uint32_t word) {
    if (count < room) {
      Word stored = Word(word);
      std::memcpy(at + count, &stored, sizeof stored);
    }
    ++count;
  }
};

template <class Word, bool RESIDUAL>
inline void binned(float* x, const float* residual, size_t n, size_t bin, Words<Word> words, float* largest_of, Bins& out) {
  constexpr uint32_t EMPTY = sizeof(Word) == 1 ? 63u << 2 | 2 : 16383u << 2 | 2;
  float drive[16384 + LANES];  // |G + g|, or -1 where there is nothing to send
  Doubles energy = nothing();
  Floats zero = splat(0.0f), never = splat(-1.0f);
  for (size_t from = 0; from < n; from += bin) {
    size_t count = n - from < bin ? n - from : bin;
    Floats most = zero;
    each_pack(count, [&](size_t i, int lanes) {
      ask_for(x + from + i);
      Floats g = load_pack(x + from + i, lanes), v = g;
      if (RESIDUAL) {
        ask_for(residual + from + i);
        v = g + load_pack(residual + from + i, lanes);
        store_pack(x + from + i, v, lanes);
      }
      add_square_to(energy, v);
      Floats size = magnitude(v);
      most = larger(size, most);
      Mask any = below(zero, size);  // lanes past the end are zero, so that they are never chosen
      store(drive + i, choose(any, magnitude(v + g), never));
    });
    float top = largest(most);
    *largest_of++ = top;
    Floats bar = splat(top);
    if (words.count + count + LANES <= words.room) {  // sixteen words at a time fit wherever they end
      Word* to = words.at + words.count;
      for (size_t i = 0; i < count; i += LANES)
        to += append_words(at_least(load(drive + i), bar), load_pack(x + from + i, count - i < LANES ? int(count - i) : LANES), uint32_t(i), to);
      if (to == words.at + words.count) *to++ = Word(EMPTY);
      to[-1] |= 2;
      words.count = size_t(to - words.at);
      continue;
    }
    uint32_t pending = EMPTY;  // the last word so far: it goes out when the next is known, or closes the bin
    for (size_t i = 0; i < count; ++i) {
      if (drive[i] < top) continue;
      if (pending != EMPTY) words.put(pending);
      uint32_t bits;
      std::memcpy(&bits, x + from + i, 4);
      pending = uint32_t(i) << 2 | bits >> 31;
    }
    words.put(pending | 2);
  }
  out.energy = total(energy);
  out.words = words.count;
}

template <class Word>
inline void binned_words(float* x, const float* residual, size_t n, size_t bin, uint8_t* words, size_t room, float* largest_of, Bins& out) {
  Words<Word> to{reinterpret_cast<Word*>(words), room, 0};
  residual ? binned<Word, true>(x, residual, n, bin, to, largest_of, out) : binned<Word, false>(x, x, n, bin, to, largest_of, out);
}

inline void adacomp_loop(float* x, const float* residual, size_t n, size_t bin, uint8_t* words, size_t room, float* largest_of, Bins& out) {
  bin < 64 ? binned_words<uint8_t>(x, residual, n, bin, words, room, largest_of, out)
           : binned_words<uint16_t>(x, residual, n, bin, words, room, largest_of, out);
}

}  // namespace
