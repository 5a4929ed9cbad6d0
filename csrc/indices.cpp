// Few elements: strata, gathering, scattering, and the Elias-Fano code of their indices. Scalar: k is small.
#include <cstring>

#include "kernels.h"
#include "parallel.h"

namespace laconic {

namespace {

constexpr size_t FEW = 1 << 15;  // elements, each a cache line of its own, that are worth a share

std::vector<Stretch> few_by_few(size_t k, int threads) {
  size_t parts = threads < 2 || k < 2 * FEW ? 1 : k / FEW;
  std::vector<Stretch> out;
  for (size_t i = 0; i < parts; ++i) out.push_back({k * i / parts, k * (i + 1) / parts});
  return out;
}

}  // namespace

void strata(size_t numel, uint64_t seed, int32_t* indices, size_t k, int threads) {
  uint32_t low = uint32_t(seed), high = uint32_t(seed >> 32);
  if (!k) return;
  std::vector<Stretch> parts = few_by_few(k, threads);
  at_once(parts.size(), threads, [&](size_t part) {
    // from == i * numel / k, without dividing; numel and k are below 2^31
    size_t whole = numel / k, rest = numel % k, from = parts[part].from * numel / k, carried = parts[part].from * numel % k;
    for (size_t i = parts[part].from; i < parts[part].to; ++i) {
      carried += rest;
      size_t more = carried >= k, width = whole + more;
      carried -= more ? k : 0;
      uint32_t z = uint32_t(i) * 0x9E3779B9u + low;
      z = (z ^ z >> 16) * 0x21F0AAADu;
      z = (z ^ z >> 15 ^ high) * 0x735A2D97u;
      double u = double((z ^ z >> 15) >> 8) * 0x1p-24;
      indices[i] = int32_t(from + size_t(u * double(width)));
      from += width;
    }
  });
}

bool take(float* x, size_t n, const int32_t* indices, size_t k, float* values, int threads) {
  for (size_t i = 0; i < k; ++i)
    if (uint32_t(indices[i]) >= n) return false;
  std::vector<Stretch> parts = few_by_few(k, threads);
  at_once(parts.size(), threads, [&](size_t part) {
    for (size_t i = parts[part].from; i < parts[part].to; ++i) {
      values[i] = x[indices[i]];
      x[indices[i]] = 0.0f;
    }
  });
  return true;
}

bool scatter_add(const int32_t* indices, const float* values, size_t k, float* out, size_t n, float weight, int threads) {
  uint32_t most = 0;  // a negative index is a large one
  bool ascending = true;
  for (size_t i = 0; i < k; ++i) {
    ascending &= i == 0 || indices[i - 1] < indices[i];
    most = uint32_t(indices[i]) > most ? uint32_t(indices[i]) : most;
  }
  if (k && most >= n) return false;
  std::vector<Stretch> parts = few_by_few(k, ascending ? threads : 1);  // else two threads might add to one element
  at_once(parts.size(), threads, [&](size_t part) {
    for (size_t i = parts[part].from; i < parts[part].to; ++i) out[indices[i]] += values[i] * weight;
  });
  return true;
}

bool pack_indices(const int32_t* indices, size_t count, int low, size_t split, uint8_t* code, size_t size) {
  std::memset(code, 0, size);
  if (size < split || (size - split) * 8 < count * size_t(low)) return false;
  uint64_t held = 0;  // low bits that do not fill a byte yet
  int bits = 0;
  uint8_t* to = code + split;
  for (size_t i = 0; i < count; ++i) {
    uint64_t index = uint32_t(indices[i]), mark = (index >> low) + i;
    if (mark >= split * 8) return false;
    code[mark / 8] |= uint8_t(1u << mark % 8);
    held |= (index & ((uint64_t(1) << low) - 1)) << bits;
    for (bits += low; bits >= 8; bits -= 8, held >>= 8) *to++ = uint8_t(held);
  }
  if (bits) *to = uint8_t(held);
  return true;
}

int64_t unpack_indices(const uint8_t* code, size_t size, int low, size_t split, size_t numel, int32_t* indices, size_t count) {
  if (size < split || (size - split) * 8 < count * size_t(low)) return -1;
  size_t found = 0;
  uint64_t held = 0, most = 0;
  int bits = 0;
  const uint8_t* from = code + split;
  for (size_t at = 0; at < split && found < count; at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, code + at, split - at < 8 ? split - at : 8);
    for (; word && found < count; word &= word - 1) {
      for (; bits < low; bits += 8) held |= uint64_t(*from++) << bits;
      uint64_t index = (at * 8 + size_t(__builtin_ctzll(word)) - found) << low | (held & ((uint64_t(1) << low) - 1));
      held >>= low;
      bits -= low;
      most = index > most ? index : most;
      indices[found++] = int32_t(index);
    }
  }
  return found < count ? int64_t(found) : most >= numel && count ? -1 : int64_t(count);
}

}  // namespace laconic
