// AdaComp: which elements go is decided bin by bin; what they are sent as, the mean of the bins' largest, is known after.
#include <cmath>
#include <cstring>

#include "kernels.h"
#include "ordered_sum.h"
#include "parallel.h"
#include "scratch.h"

namespace laconic {

namespace {

uint32_t word_at(const uint8_t* words, size_t i, size_t width) {
  if (width == 1) return words[i];
  uint16_t word;
  std::memcpy(&word, words + 2 * i, 2);
  return word;
}

struct Spelling {
  size_t width;    // bytes of a word
  uint32_t empty;  // the index that marks an empty bin
};
Spelling spelling(size_t bin) { return bin < 64 ? Spelling{1, 63} : Spelling{2, 16383}; }

// Calls visit(index, negative) for every element that `count` words from bin `start` on name; false where one is bad.
template <class Visit> bool each_word(const uint8_t* words, size_t count, size_t bin, size_t start, size_t n, Visit visit) {
  Spelling how = spelling(bin);
  for (size_t i = 0, base = start; i < count; ++i) {
    uint32_t word = word_at(words, i, how.width), index = word >> 2;
    if (index != how.empty) {
      if (index >= bin || base + index >= n) return false;
      visit(base + index, word & 1);
    }
    if (word & 2) base += bin;
  }
  return true;
}

// What our own words name, taken from x. Without branches: in an empty bin, its first element loses nothing.
template <class Word> void subtract(const uint8_t* words, size_t count, size_t bin, float* x, float scale) {
  constexpr uint32_t EMPTY = sizeof(Word) == 1 ? 63 : 16383;
  const float by[4] = {scale, -scale, 0.0f, 0.0f};
  for (size_t i = 0; i < count; ++i) {
    uint32_t word = word_at(words, i, sizeof(Word)), index = word >> 2;
    uint32_t empty = index == EMPTY;
    __builtin_prefetch(x + index + 768, 1, 3);
    x[empty ? 0 : index] -= by[empty << 1 | (word & 1)];
    x += word & 2 ? bin : 0;
  }
}

}  // namespace

Adapted adacomp(float* x, const float* residual, size_t n, size_t bin, uint8_t* words, size_t size, int threads) {
  thread_local Scratch maxima, spill;
  size_t width = spelling(bin).width, room = size / width, bins = (n + bin - 1) / bin;
  float* largest = maxima.of<float>(bins);
  std::vector<Stretch> parts = stretches(n, bin, threads);
  std::vector<Bins> found(parts.size());
  // The first stretch writes in place; the others do not know yet where their words begin.
  uint8_t* elsewhere = parts.size() > 1 ? spill.of<uint8_t>((n + bins) * width) : nullptr;
  auto written = [&](size_t i) { return i ? elsewhere + (parts[i].from + parts[i].from / bin) * width : words; };
  at_once(parts.size(), [&](size_t i) {
    size_t from = parts[i].from, count = parts[i].to - from;
    size_t most = count + (count + bin - 1) / bin;
    table().adacomp(x + from, residual ? residual + from : nullptr, count, bin, written(i), i ? most : room, largest + from / bin, found[i]);
  });
  double energy = 0.0;
  size_t wanted = 0;
  std::vector<size_t> kept(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    size_t left = wanted < room ? room - wanted : 0;
    kept[i] = found[i].words < left ? found[i].words : left;
    if (i && kept[i]) std::memcpy(words + wanted * width, written(i), kept[i] * width);
    energy += found[i].energy;
    wanted += found[i].words;
  }
  if (!std::isfinite(energy)) {
    std::memset(x, 0, n * sizeof(float));
    Adapted zeros = adacomp(x, nullptr, n, bin, words, size, 1);
    return {energy, zeros.scale, zeros.words};
  }
  size_t used = (wanted < room ? wanted : room) * width;
  if (used < size) std::memset(words + used, 0, size - used);
  float scale = bins ? float(ordered_sum(largest, bins) / double(bins)) : 0.0f;
  at_once(parts.size(), [&](size_t i) {
    width == 1 ? subtract<uint8_t>(written(i), kept[i], bin, x + parts[i].from, scale)
               : subtract<uint16_t>(written(i), kept[i], bin, x + parts[i].from, scale);
  });
  return {energy, scale, wanted};
}

bool unadacomp_add(const uint8_t* words, size_t count, float scale, size_t bin, float* out, size_t n, float weight) {
  if (!each_word(words, count, bin, 0, n, [](size_t, bool) {})) return false;
  float value = scale * weight;
  return each_word(words, count, bin, 0, n, [&](size_t at, bool negative) { out[at] += negative ? -value : value; });
}

}  // namespace laconic
