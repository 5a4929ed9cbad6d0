// AdaComp: elements are sent as the mean of the bins' largest, which is known
// when all have been seen: what goes is decided bin by bin and taken out of x at the end.
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

// Forgets the choice of those elements whose words did not fit.
void unchoose(const uint8_t* words, size_t from, size_t count, size_t bin, uint16_t* chosen) {
  Spelling how = spelling(bin);
  for (size_t i = 0, packs = (bin + 15) / 16; i < count; ++i) {
    uint32_t word = word_at(words, i, how.width), index = word >> 2;
    if (index != how.empty && i >= from) chosen[index / 16] &= uint16_t(~(1u << index % 16));
    if (word & 2) chosen += packs;
  }
}

constexpr size_t AT_A_TIME = 1 << 18;  // elements of a pass that goes backwards

}  // namespace

Adapted adacomp(float* x, const float* residual, size_t n, size_t bin, uint8_t* words, size_t size, int threads) {
  thread_local Scratch maxima, spill, choices;
  size_t width = spelling(bin).width, room = size / width, bins = (n + bin - 1) / bin, packs = (bin + 15) / 16;
  float* largest = maxima.of<float>(bins);
  uint16_t* chosen = choices.of<uint16_t>(bins * packs);
  std::vector<Stretch> parts = stretches(n, bin, threads);
  // A stretch does not know where its words begin until the others are done.
  uint8_t* spelled = spill.of<uint8_t>((n + bins + 16 * parts.size()) * width);
  auto words_of = [&](size_t i) { return spelled + (parts[i].from + parts[i].from / bin + 16 * i) * width; };
  std::vector<double> energies(parts.size());
  std::vector<size_t> counts(parts.size());
  at_once(parts.size(), threads, [&](size_t i) {
    size_t from = parts[i].from, first = from / bin;
    energies[i] = table().choose_in_bins(x + from, residual ? residual + from : nullptr, parts[i].to - from, bin, largest + first,
                                         chosen + first * packs, words_of(i), &counts[i]);
  });
  double energy = 0.0;
  for (double each : energies) energy += each;
  if (!std::isfinite(energy)) {
    std::memset(x, 0, n * sizeof(float));
    Adapted zeros = adacomp(x, nullptr, n, bin, words, size, threads);
    return {energy, zeros.scale, zeros.words};
  }
  size_t wanted = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    size_t left = wanted < room ? room - wanted : 0, kept = counts[i] < left ? counts[i] : left;
    if (kept) std::memcpy(words + wanted * width, words_of(i), kept * width);
    if (kept < counts[i]) unchoose(words_of(i), kept, counts[i], bin, chosen + parts[i].from / bin * packs);
    wanted += counts[i];
  }
  size_t used = (wanted < room ? wanted : room) * width;
  if (used < size) std::memset(words + used, 0, size - used);
  float scale = bins ? float(ordered_sum(largest, bins) / double(bins)) : 0.0f;
  size_t stride = (AT_A_TIME + bin - 1) / bin * bin, strides = (n + stride - 1) / stride;
  at_once(strides, threads, [&](size_t turn) {  // backwards: what was seen last is still in the cache
    size_t from = (strides - 1 - turn) * stride, count = n - from < stride ? n - from : stride;
    table().take_chosen(x + from, count, bin, chosen + from / bin * packs, scale);
  });
  return {energy, scale, wanted};
}

bool unadacomp_add(const uint8_t* words, size_t count, float scale, size_t bin, float* out, size_t n, float weight) {
  if (!each_word(words, count, bin, 0, n, [](size_t, bool) {})) return false;
  float value = scale * weight;
  return each_word(words, count, bin, 0, n, [&](size_t at, bool negative) { out[at] += negative ? -value : value; });
}

}  // namespace laconic
