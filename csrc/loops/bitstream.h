// Codes of 1 to 8 bits, a byte each, to and from a little-endian stream. Eight codes of b bits are b bytes, and three
// steps bring them together inside a 64-bit word: neighbours, then pairs, then quadruples.
#pragma once
#include <cstdint>
#include <cstring>

namespace {

constexpr uint64_t every(int period, int width) {  // the lower `width` bits of every `period`
  uint64_t out = 0;
  for (int at = 0; at < 64; at += period) out |= ((width == 64 ? 0 : (1ull << width)) - 1) << at;
  return out;
}

template <int B> inline uint64_t squeezed(uint64_t v) {
  v = (v & every(16, 8)) | (v & ~every(16, 8)) >> (8 - B);
  v = (v & every(32, 16)) | (v & ~every(32, 16)) >> (16 - 2 * B);
  return (v & every(64, 32)) | (v & ~every(64, 32)) >> (32 - 4 * B);
}

template <int B> inline uint64_t spread(uint64_t v) {
  v = (v & every(64, 4 * B)) | (v & every(64, 4 * B) << 4 * B) << (32 - 4 * B);
  v = (v & every(32, 2 * B)) | (v & every(32, 2 * B) << 2 * B) << (16 - 2 * B);
  return (v & every(16, B)) | (v & every(16, B) << B) << (8 - B);
}

template <int B> inline void pack_stream(const uint8_t* codes, size_t n, uint8_t* out) {
  size_t groups = n / 8, g = 0;
  for (; (g + 8) * B + 8 <= groups * B; g += 8) {  // the overlapping stores stay inside the stream
    uint64_t words[8];
    std::memcpy(words, codes + 8 * g, 64);
    for (int i = 0; i < 8; ++i) words[i] = squeezed<B>(words[i]);
    if (B == 4) {
      uint32_t narrow[8];
      for (int i = 0; i < 8; ++i) narrow[i] = uint32_t(words[i]);
      std::memcpy(out + g * B, narrow, 32);
    } else {
      for (int i = 0; i < 8; ++i) std::memcpy(out + (g + i) * B, words + i, 8);
    }
  }
  for (; 8 * g < n; ++g) {
    uint64_t word = 0;
    size_t count = n - 8 * g < 8 ? n - 8 * g : 8;
    std::memcpy(&word, codes + 8 * g, count);
    word = squeezed<B>(word);
    std::memcpy(out + g * B, &word, (count * B + 7) / 8);
  }
}

template <int B> inline void unpack_stream(const uint8_t* in, size_t n, uint8_t* codes) {
  size_t groups = n / 8, g = 0;
  for (; (g + 8) * B + 8 <= groups * B; g += 8) {
    uint64_t words[8];
    if (B == 4) {
      uint32_t narrow[8];
      std::memcpy(narrow, in + g * B, 32);
      for (int i = 0; i < 8; ++i) words[i] = narrow[i];
    } else {
      for (int i = 0; i < 8; ++i) std::memcpy(words + i, in + (g + i) * B, 8);
    }
    for (int i = 0; i < 8; ++i) words[i] = spread<B>(words[i]);
    std::memcpy(codes + 8 * g, words, 64);
  }
  for (; 8 * g < n; ++g) {
    uint64_t word = 0;
    size_t count = n - 8 * g < 8 ? n - 8 * g : 8;
    std::memcpy(&word, in + g * B, (count * B + 7) / 8);
    word = spread<B>(word);
    std::memcpy(codes + 8 * g, &word, count);
  }
}

inline void pack(int bits, const uint8_t* codes, size_t n, uint8_t* out) {
  switch (bits) {
    case 1: return pack_stream<1>(codes, n, out);
    case 2: return pack_stream<2>(codes, n, out);
    case 3: return pack_stream<3>(codes, n, out);
    case 4: return pack_stream<4>(codes, n, out);
    case 5: return pack_stream<5>(codes, n, out);
    case 6: return pack_stream<6>(codes, n, out);
    case 7: return pack_stream<7>(codes, n, out);
    default: std::memcpy(out, codes, n);
  }
}

inline void unpack(int bits, const uint8_t* in, size_t n, uint8_t* codes) {
  switch (bits) {
    case 1: return unpack_stream<1>(in, n, codes);
    case 2: return unpack_stream<2>(in, n, codes);
    case 3: return unpack_stream<3>(in, n, codes);
    case 4: return unpack_stream<4>(in, n, codes);
    case 5: return unpack_stream<5>(in, n, codes);
    case 6: return unpack_stream<6>(in, n, codes);
    case 7: return unpack_stream<7>(in, n, codes);
    default: std::memcpy(codes, in, n);
  }
}

}  // namespace
