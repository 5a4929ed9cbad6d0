// Ternary: a bucket is folded and measured, its largest elements are chosen, and their gaps coded, all while it is in the
// first-level cache. How many are chosen follows from the room that is left (see reference/ternary.py).
#pragma once
#include "loops/quantize.h"
#include "ternary_code.h"

namespace {

// The words (index << 2 | negative) of those elements that are at least `bar` in magnitude; how many.
inline size_t chosen_words(const float* x, size_t n, float bar, uint16_t* words) {
  uint16_t* to = words;
  Floats least = splat(bar);
  each_pack(n, [&](size_t i, int lanes) {  // past the end all is zero, and so below the bar
    Floats v = load_pack(x + i, lanes);
    Mask sent = at_least(magnitude(v), least);
    to += append_words(sent, v, uint32_t(i), to);
  });
  return size_t(to - words);
}

template <bool RESIDUAL> double page_coded(float* x, const float* residual, size_t n, size_t bucket, size_t each, uint8_t* out) {
  using namespace laconic::ternary;
  uint16_t words[LARGEST_BUCKET + LANES];
  size_t buckets = (n + bucket - 1) / bucket, room = each * buckets, used = 0;
  int level = 0;
  Doubles energy = nothing();
  double unused = 0.0;
  for (size_t b = 0; b < buckets; ++b) {
    float* here = x + b * bucket;
    size_t count = n - b * bucket < bucket ? n - b * bucket : bucket;
    float top = measured<Scale::MAX, RESIDUAL>(here, residual + b * bucket, count, energy, unused), step = 0.0f;
    size_t allowed = allowance(room, each, b, buckets, used), chosen = 0;
    if (top >= LEAST_STEP) {
      for (level = next_level(level, each, b, used); level < LEVELS; ++level) {
        step = top * (1.0f + float(level) / float(LEVELS));
        if (!(step <= 3.402823466e38f)) level = LEVELS;
        if (level == LEVELS) break;
        chosen = chosen_words(here, count, step * 0.5f, words);
        if (bound(chosen, count) <= allowed) break;
      }
      if (level == LEVELS) {  // too many equals: the first of them
        step = top;
        chosen = fitting(chosen_words(here, count, step * 0.5f, words), count, allowed);
        level = LEVELS - 1;
      }
    }
    for (size_t i = 0; i < chosen; ++i) here[words[i] >> 2] -= words[i] & 1 ? -step : step;
    used += write(words, chosen, count, step, out + used);
  }
  std::memset(out + used, 0, room - used);
  return total(energy);
}

// A page of several payloads, `pitch` bytes apart: out += their elements, or, fresh, zeros and then these.
inline bool unternary_loop(const uint8_t* payloads, size_t rows, size_t pitch, size_t bucket, size_t each, float* out, size_t n, float weight, bool fresh,
                           size_t* used) {
  size_t room = each * ((n + bucket - 1) / bucket);
  for (size_t row = 0; row < rows; ++row) used[row] = 0;
  for (size_t from = 0; from < n; from += bucket) {
    size_t count = n - from < bucket ? n - from : bucket;
    if (fresh) std::memset(out + from, 0, count * sizeof(float));
    for (size_t row = 0; row < rows; ++row) {
      const uint8_t* payload = payloads + row * pitch;
      size_t took = laconic::ternary::read_add(payload + used[row], payload + room, out + from, count, weight);
      if (!took) return false;
      used[row] += took;
    }
  }
  return true;
}

inline double ternary_loop(float* x, const float* residual, size_t n, size_t bucket, size_t each, uint8_t* out) {
  return residual ? page_coded<true>(x, residual, n, bucket, each, out) : page_coded<false>(x, x, n, bucket, each, out);
}

}  // namespace
