// The largest elements: a threshold from a sample, one pass that folds and collects what lies above it, and a selection
// among the few that were collected. The pass clears what it collects; the losers are put back.
#include <cmath>
#include <cstring>

#include "kernels.h"
#include "ordered_sum.h"
#include "parallel.h"
#include "scratch.h"

namespace laconic {

namespace {

int32_t key_of(float v) {
  int32_t bits;
  std::memcpy(&bits, &v, 4);
  return bits & 0x7fffffff;
}

// The k-th largest of the keys, 1 <= k <= count, by radix: 11, 11 and 9 bits. Moves keys about.
int32_t kth_largest(int32_t* keys, size_t count, size_t k) {
  for (int shift : {20, 9, 0}) {
    uint32_t tally[2048] = {};
    uint32_t mask = shift ? 2047 : 511;
    for (size_t i = 0; i < count; ++i) ++tally[uint32_t(keys[i]) >> shift & mask];
    uint32_t digit = mask;
    while (tally[digit] < k) k -= tally[digit--];
    size_t kept = 0;
    for (size_t i = 0; i < count; ++i) {
      int32_t key = keys[i];
      keys[kept] = key;
      kept += (uint32_t(key) >> shift & mask) == digit;
    }
    count = kept;
  }
  return keys[0];
}

struct Selection {
  int32_t cut;  // all above it are in
  size_t ties;  // and so many of those at it, the first
};

Selection selection(int32_t* keys, size_t count, size_t k) {
  size_t above = 0;
  int32_t cut = 0;
  thread_local Scratch scratch;
  int32_t* copy = scratch.of<int32_t>(count);
  std::memcpy(copy, keys, count * sizeof(int32_t));
  cut = kth_largest(copy, count, k);
  for (size_t i = 0; i < count; ++i) above += keys[i] > cut;
  return {cut, k - above};
}

// Keeps the selected in place, in order, and puts the others back into x.
void keep(Candidates& found, Selection& which, float* x) {
  size_t kept = 0;
  for (size_t i = 0; i < found.count; ++i) {
    float value = found.values[i];
    uint32_t index = found.indices[i];
    int32_t key = key_of(value);
    bool in = key > which.cut;
    if (key == which.cut && which.ties) {
      in = true;
      --which.ties;
    }
    if (!in) x[index] = value;
    found.values[kept] = value;
    found.indices[kept] = index;
    kept += in;
  }
  found.count = kept;
}

void put_back(const Candidates& found, float* x) {
  for (size_t i = 0; i < found.count; ++i) x[found.indices[i]] = found.values[i];
}

struct Gathered {
  std::vector<Candidates> parts;
  double energy;
  bool pruned;  // some that passed the first threshold were dropped, being below the k-th largest of their stretch
  size_t count() const {
    size_t sum = 0;
    for (const Candidates& part : parts) sum += part.count;
    return sum;
  }
};

// Everything of x + residual whose key is at least `least`. Where that is far too much, the k largest of it: a stretch
// that overflows is pruned to its k largest, and goes on with a threshold just above the k-th, for later ties lose.
Gathered gather(float* x, const float* residual, size_t n, size_t k, int32_t least, int threads) {
  thread_local Scratch memory;
  std::vector<Stretch> cuts = stretches(n, 16, threads);
  size_t room = 2 * k + 65536;
  size_t longest = (n / cuts.size() / 16 + 2) * 16;  // a stretch cannot hold more
  if (room > longest) room = longest;
  size_t pitch = 2 * (room + 48);
  float* all = memory.of<float>(pitch * cuts.size());
  Gathered out{std::vector<Candidates>(cuts.size()), 0.0, false};
  std::vector<double> energies(cuts.size());
  std::vector<char> pruned(cuts.size());
  at_once(cuts.size(), threads, [&](size_t i) {
    float* mine = all + pitch * i;
    Candidates& found = out.parts[i] = {reinterpret_cast<uint32_t*>(mine + pitch / 2), mine, 0, room};
    int32_t from_here = least;
    double energy = 0.0;
    size_t at = cuts[i].from;
    while ((at = table().collect(x, residual, at, cuts[i].to, from_here, found, &energy)) < cuts[i].to) {
      thread_local Scratch keys_memory;
      int32_t* keys = keys_memory.of<int32_t>(found.count);
      for (size_t j = 0; j < found.count; ++j) keys[j] = key_of(found.values[j]);
      Selection which = selection(keys, found.count, k ? k : 1);
      from_here = which.cut + 1;
      keep(found, which, x);
      pruned[i] = 1;
    }
    energies[i] = energy;
  });
  for (size_t i = 0; i < cuts.size(); ++i) {
    out.energy += energies[i];
    out.pruned |= bool(pruned[i]);
  }
  return out;
}

// Leaves exactly the k largest of what was gathered, which are at least k.
void reduce_to(Gathered& all, size_t k, float* x) {
  size_t count = all.count();
  if (count == k) return;
  thread_local Scratch memory;
  int32_t *keys = memory.of<int32_t>(count), *to = keys;
  for (const Candidates& part : all.parts)
    for (size_t i = 0; i < part.count; ++i) *to++ = key_of(part.values[i]);
  Selection which = k ? selection(keys, count, k) : Selection{INT32_MAX, 0};
  for (Candidates& part : all.parts) keep(part, which, x);
}

size_t hand_over(const Gathered& all, int32_t* indices, float* values) {
  size_t count = 0;
  for (const Candidates& part : all.parts) {
    if (!part.count) continue;
    std::memcpy(indices + count, part.indices, part.count * sizeof(int32_t));
    std::memcpy(values + count, part.values, part.count * sizeof(float));
    count += part.count;
  }
  return count;
}

// The key of the share-th largest magnitude among every stride-th element of x + residual.
int32_t sampled_key(const float* x, const float* residual, size_t n, size_t stride, size_t share) {
  thread_local Scratch memory;
  size_t count = (n + stride - 1) / stride;
  int32_t* keys = memory.of<int32_t>(count);
  for (size_t i = 0; i < count; ++i) keys[i] = key_of(residual ? x[i * stride] + residual[i * stride] : x[i * stride]);
  return kth_largest(keys, count, share < count ? share : count);
}

// Folded already: the k largest of x alone. Where fewer than k are not zero, the first zeros join them.
size_t exactly(float* x, size_t n, size_t k, int32_t* indices, float* values, int threads) {
  Gathered all = gather(x, nullptr, n, k, 1, threads);
  if (all.count() >= k) {
    reduce_to(all, k, x);
    return hand_over(all, indices, values);
  }
  size_t zeros = k - all.count(), at = 0, count = 0;
  auto put = [&](size_t index, float value) {
    indices[count] = int32_t(index);
    values[count++] = value;
  };
  for (const Candidates& part : all.parts)
    for (size_t i = 0; i < part.count; ++i) {
      for (; zeros && at < part.indices[i]; ++at, --zeros) put(at, x[at]);
      put(part.indices[i], part.values[i]);
      at = size_t(part.indices[i]) + 1;
    }
  for (; zeros; ++at, --zeros) put(at, x[at]);
  for (size_t i = 0; i < count; ++i) x[indices[i]] = 0.0f;
  return count;
}

size_t everything(float* x, size_t n, int32_t* indices, float* values) {
  for (size_t i = 0; i < n; ++i) indices[i] = int32_t(i);
  std::memcpy(values, x, n * sizeof(float));
  std::memset(x, 0, n * sizeof(float));
  return n;
}

}  // namespace

double top_k(float* x, const float* residual, size_t n, size_t k, int32_t* indices, float* values, int threads) {
  if (k > n) k = n;
  // A sixteenth of the elements suggests the threshold, with three deviations to spare: too few would cost a pass.
  size_t stride = n / 16 > 65536 ? n / 65536 | 1 : 17;
  double share = double(k) / double(stride);
  size_t rank = size_t(share + 3 * std::sqrt(share)) + 2, seen = (n + stride - 1) / stride;
  int32_t least = n > 1024 && rank < seen ? sampled_key(x, residual, n, stride, rank) : 0;
  if (!least) least = 1;  // zeros go only if nothing else is left
  Gathered all = gather(x, residual, n, k, least, threads);
  if (!std::isfinite(all.energy)) {
    std::memset(x, 0, n * sizeof(float));
    std::memset(values, 0, k * sizeof(float));
    for (size_t i = 0; i < k; ++i) indices[i] = int32_t(i);  // ties by lower index
  } else if (all.count() < k) {
    for (const Candidates& part : all.parts) put_back(part, x);
    exactly(x, n, k, indices, values, threads);
  } else {
    reduce_to(all, k, x);
    hand_over(all, indices, values);
  }
  return all.energy;
}

Picked sampled_top_k(float* x, const float* residual, size_t n, size_t k, size_t room, size_t stride, size_t share,
                     int32_t* indices, float* values, int threads) {
  if (n == 0) return {0.0, 0};
  int32_t least = sampled_key(x, residual, n, stride, share);
  if (!least) return {fold(x, residual, n, threads), room < n ? exactly(x, n, k, indices, values, threads) : everything(x, n, indices, values)};
  Gathered all = gather(x, residual, n, k, least, threads);
  if (!std::isfinite(all.energy)) {
    std::memset(x, 0, n * sizeof(float));
    return {all.energy, sampled_top_k(x, nullptr, n, k, room, stride, share, indices, values, threads).count};
  }
  size_t count = all.count();
  if (0.7 * double(k) > double(count)) {
    for (const Candidates& part : all.parts) put_back(part, x);
    return {all.energy, exactly(x, n, k, indices, values, threads)};
  }
  if (all.pruned || count > room) reduce_to(all, k, x);
  return {all.energy, hand_over(all, indices, values)};
}

Picked threshold(float* x, const float* residual, size_t n, size_t k, size_t room, int bisections, int32_t* indices, float* values, int threads) {
  if (n == 0) return {0.0, 0};
  thread_local Scratch memory;
  double* sums = memory.of<double>((n + BLOCK - 1) / BLOCK);
  std::vector<Stretch> parts = stretches(n, BLOCK, threads);
  std::vector<Survey> found(parts.size());
  at_once(parts.size(), threads, [&](size_t i) {
    size_t from = parts[i].from;
    table().survey(x + from, residual ? residual + from : nullptr, parts[i].to - from, sums + from / BLOCK, found[i]);
  });
  double energy = 0.0;
  float low = 0.0f, high = 0.0f;
  for (const Survey& each : found) {
    energy += each.energy;
    high = each.largest > high ? each.largest : high;
  }
  if (!std::isfinite(energy)) {
    std::memset(x, 0, n * sizeof(float));
    return {energy, threshold(x, nullptr, n, k, room, bisections, indices, values, threads).count};
  }
  float cut = float(fold_sums(sums, (n + BLOCK - 1) / BLOCK) / double(n));
  std::vector<size_t> counts(parts.size());
  for (int step = 0; step < bisections; ++step) {
    at_once(parts.size(), threads, [&](size_t i) { counts[i] = table().count_at_least(x + parts[i].from, parts[i].to - parts[i].from, key_of(cut)); });
    size_t count = 0;
    for (size_t each : counts) count += each;
    if (k <= count && count <= room) {
      Gathered all = gather(x, nullptr, n, room, key_of(cut), threads);
      return {energy, hand_over(all, indices, values)};
    }
    (count > room ? low : high) = cut;
    cut = (low + high) * 0.5f;
  }
  return {energy, exactly(x, n, k < n ? k : n, indices, values, threads)};
}

}  // namespace laconic
