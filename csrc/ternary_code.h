// A bucket of ternary elements as it travels: count (uint16) and step (float32), then the gaps between the elements that
// are not zero by Golomb and Rice, split in two streams: the low bits with the sign, and what is left in unary. Split, so
// that a reader need not wait for one element to find the next. An empty bucket is its count alone.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace laconic::ternary {

constexpr size_t LARGEST_BUCKET = 16384;  // an index and two flags are 16 bits
constexpr size_t PAGE = 64;               // buckets that share a room, and are one thread's work
constexpr size_t LEAST = 16;              // bytes that a bucket is sure of: a header and one element, whatever its place
constexpr int LEVELS = 16;                // steps of a bucket's largest element, its 17/16, ... its 31/16
constexpr float LEAST_STEP = 0x1p-125f;   // so that half of it is not subnormal

namespace {  // every instruction set compiles its own

// How many low bits of a gap are stored as they are: about the logarithm of 0.69 times the mean gap, which is the best.
inline int low_bits(size_t count, size_t length) {
  size_t ratio = 11 * length / (16 * count);
  return ratio > 1 ? 63 - __builtin_clzll(ratio) : 0;
}

inline size_t low_bytes(size_t count, int low) { return (count * size_t(low + 1) + 7) / 8; }
inline size_t most_unary_bytes(size_t count, size_t length, int low) { return (count + ((length - count) >> low) + 7) / 8; }

// The most bytes that a bucket with so many elements may take.
inline size_t bound(size_t count, size_t length) {
  if (!count) return 2;
  int low = low_bits(count, length);
  return 6 + low_bytes(count, low) + most_unary_bytes(count, length, low);
}

// What the b-th bucket of a page may take: its share, what is left of those before, and after the first an eighth of the
// room in advance; and always LEAST, which is kept for everyone.
inline size_t allowance(size_t room, size_t each, size_t b, size_t buckets, size_t used) {
  size_t due = each * (b + 1) + (b ? room / 8 : 0), most = room - LEAST * (buckets - 1 - b), end = due < most ? due : most;
  return end >= used + LEAST ? end - used : LEAST;
}

// The level at which the b-th bucket begins: one more where those before took more than their shares, one less where they
// left more than a share.
inline int next_level(int level, size_t each, size_t b, size_t used) {
  if (used > each * b) return level < LEVELS - 1 ? level + 1 : level;
  return used + each < each * b && level > 0 ? level - 1 : level;
}

inline size_t fitting(size_t count, size_t length, size_t allowed) {
  while (bound(count, length) > allowed) count -= count >= 8 ? count / 8 : 1;
  return count;
}

// Writes a bucket; its size.
inline size_t write(const uint16_t* words, size_t count, size_t length, float step, uint8_t* out) {
  uint16_t many = uint16_t(count);
  std::memcpy(out, &many, 2);
  if (!count) return 2;
  std::memcpy(out + 2, &step, 4);
  uint64_t lows[LARGEST_BUCKET / 32 + 2], unary[LARGEST_BUCKET / 32 + 2], low_word = 0, word = 0;
  int low = low_bits(count, length), width = low + 1, low_fill = 0;
  uint32_t mask = (1u << low) - 1, next = 0;
  size_t low_at = 0, at = 0, fill = 0;
  for (size_t i = 0; i < count; ++i) {
    uint32_t index = words[i] >> 2, gap = index - next;
    uint64_t piece = uint64_t((gap & mask) << 1 | (words[i] & 1));
    next = index + 1;
    low_word |= piece << low_fill;
    low_fill += width;
    if (low_fill >= 64) {
      lows[low_at++] = low_word;
      low_fill -= 64;
      low_word = low_fill ? piece >> (width - low_fill) : 0;
    }
    fill += gap >> low;
    while (fill >= 64) {
      unary[at++] = word;
      word = 0;
      fill -= 64;
    }
    word |= uint64_t(1) << fill++;
  }
  lows[low_at] = low_word;
  unary[at] = word;
  size_t first = low_bytes(count, low), second = (64 * at + fill + 7) / 8;
  std::memcpy(out + 6, lows, first);
  std::memcpy(out + 6 + first, unary, second);
  return 6 + first + second;
}

// Reads a bucket of `length` elements from [in, end): out += the elements, times weight. Its size, or 0 where it can not have
// been written; nothing is added then. A step of any finite size is believed.
inline size_t read_add(const uint8_t* in, const uint8_t* end, float* out, size_t length, float weight) {
  if (end - in < 2) return 0;
  uint16_t count;
  std::memcpy(&count, in, 2);
  if (!count) return 2;
  float step;
  if (count > length || end - in < 6) return 0;
  std::memcpy(&step, in + 2, 4);
  if (!(step <= 3.402823466e38f && step >= -3.402823466e38f)) return 0;
  int low = low_bits(count, length);
  size_t first = low_bytes(count, low), most = most_unary_bytes(count, length, low), left = size_t(end - in) - 6;
  if (left < first) return 0;
  uint8_t streams[LARGEST_BUCKET / 2 + 32];
  size_t second = left - first < most ? left - first : most;
  std::memcpy(streams, in + 6, first + second);
  std::memset(streams + first + second, 0, 16);
  uint16_t found[LARGEST_BUCKET];
  const uint8_t* high = streams + first;
  uint32_t mask = (1u << (low + 1)) - 1;
  uint64_t word, index = 0;
  size_t bit = 0, passed = 0, i = 0;
  for (size_t byte = 0; byte < second && i < count; byte += 8, passed += 64) {
    std::memcpy(&word, high + byte, 8);
    for (; word && i < count; word &= word - 1, ++i) {
      size_t at = passed + size_t(__builtin_ctzll(word)), from = i * size_t(low + 1);
      uint32_t piece;
      std::memcpy(&piece, streams + from / 8, 4);
      piece = piece >> (from & 7) & mask;
      index += (uint64_t(at - bit) << low) + (piece >> 1);
      if (index >= length) return 0;
      found[i] = uint16_t(index << 1 | (piece & 1));
      ++index;
      bit = at + 1;
    }
  }
  if (i < count) return 0;
  float up = step * weight, value[2] = {up, -up};
  for (size_t j = 0; j < count; ++j) out[found[j] >> 1] += value[found[j] & 1];
  return 6 + first + (bit + 7) / 8;
}

}  // namespace

}  // namespace laconic::ternary
