// Several layers that hold one conversation: what kernels do to each of them, in one call.
#include "chorus.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels.h"
#include "scratch.h"

namespace laconic {

void lay(const std::vector<Piece>& pieces, uint8_t* out, size_t room) {
  uint8_t* at = out;
  for (const Piece& piece : pieces) {
    if (piece.nbytes) std::memcpy(at, piece.at, piece.nbytes);
    at += piece.nbytes;
  }
  std::memset(at, 0, size_t(out + room - at));
}

void spread(const uint8_t* from, const std::vector<Piece>& pieces) {
  for (const Piece& piece : pieces) {
    if (piece.nbytes) std::memcpy(piece.at, from, piece.nbytes);
    from += piece.nbytes;
  }
}

void lay_weighed(const std::vector<Piece>& pieces, float weight, uint8_t* out, size_t room) {
  float* at = reinterpret_cast<float*>(out);
  for (const Piece& piece : pieces) {
    const float* from = reinterpret_cast<const float*>(piece.at);
    for (size_t i = 0; i < piece.nbytes / sizeof(float); ++i) *at++ = from[i] * weight;
  }
  uint8_t* end = reinterpret_cast<uint8_t*>(at);
  std::memset(end, 0, size_t(out + room - end));
}

bool spread_sum(const uint8_t* from, size_t rows, size_t pitch, const std::vector<Piece>& pieces) {
  uint32_t odd = 0;  // an exponent of all ones is an Inf or a NaN
  for (const Piece& piece : pieces) {
    float* to = reinterpret_cast<float*>(piece.at);
    size_t count = piece.nbytes / sizeof(float);
    if (count) std::memcpy(to, from, piece.nbytes);
    for (size_t row = 1; row < rows; ++row) {
      const float* more = reinterpret_cast<const float*>(from + row * pitch);
      for (size_t i = 0; i < count; ++i) to[i] += more[i];
    }
    for (size_t i = 0; i < count; ++i) {
      uint32_t bits;
      std::memcpy(&bits, to + i, 4);
      odd |= (bits & 0x7f800000) == 0x7f800000;
    }
    from += piece.nbytes;
  }
  return !odd;
}

void add_rows(const uint8_t* from, size_t rows, size_t pitch, size_t count, float* sums) {
  std::fill_n(sums, count, 0.0f);
  for (size_t row = 0; row < rows; ++row)
    for (size_t i = 0; i < count; ++i) {
      float v;
      std::memcpy(&v, from + row * pitch + 4 * i, 4);
      sums[i] = row ? sums[i] + v : v;
    }
}

namespace {

size_t aligned(size_t nbytes) { return nbytes ? (nbytes + 7) / 8 * 8 : 8; }

struct Parts {
  size_t steps, steps_end, codes, end;  // sizes, and where each part ends with its gap
};

Parts parts(size_t n, int bits, size_t bucket) {
  size_t steps = 4 * ((n + bucket - 1) / bucket), codes = (n * size_t(bits) + 7) / 8;
  return {steps, aligned(steps), codes, aligned(steps) + aligned(codes)};
}

}  // namespace

void quantize_all(const Quantizer& how, const std::vector<Flat>& layers, const uint64_t* seeds, uint8_t* payload, double* energies, int threads) {
  for (size_t i = 0; i < layers.size(); ++i) {
    const Flat& one = layers[i];
    Parts at = parts(one.n, how.bits, how.bucket);
    Quantizer own = how;
    if (seeds) own.seed = seeds[i];
    energies[i] = quantize(own, one.x, one.residual, one.n, payload + at.steps_end, reinterpret_cast<float*>(payload), threads);
    std::memset(payload + at.steps, 0, at.steps_end - at.steps);
    std::memset(payload + at.steps_end + at.codes, 0, at.end - at.steps_end - at.codes);
    payload += at.end;
  }
}

bool dequantize_all(int bits, size_t bucket, const uint8_t* payloads, size_t rows, size_t pitch, const std::vector<Flat>& layers, float weight, int threads) {
  const uint8_t* at = payloads;
  for (const Flat& one : layers) {
    for (size_t row = 0; row < rows; ++row)
      if (!plausible(reinterpret_cast<const float*>(at + row * pitch), (one.n + bucket - 1) / bucket, bits)) return false;
    at += parts(one.n, bits, bucket).end;
  }
  for (const Flat& one : layers) {
    Parts part = parts(one.n, bits, bucket);
    dequantize(bits, bucket, payloads + part.steps_end, payloads, rows, pitch, one.x, one.n, weight, threads);
    payloads += part.end;
  }
  return true;
}

namespace {

// A factor as it travels.
size_t sent_bytes(Form form, size_t length, size_t rank) {
  return coded(form) ? factor_bytes(length, rank, int(form)) : length * rank * (form == Form::BRAIN ? 2 : 4);
}

uint16_t brain(float v) {
  uint32_t u;
  std::memcpy(&u, &v, 4);
  if ((u & 0x7fffffff) > 0x7f800000) return 0x7fc0;
  return uint16_t((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

float unbrain(uint16_t code) {
  uint32_t u = uint32_t(code) << 16;
  float v;
  std::memcpy(&v, &u, 4);
  return v;
}

// Writes a factor; it becomes what was written.
void send(Form form, float* factor, size_t length, size_t rank, uint8_t* to) {
  if (coded(form)) return code_factor(factor, length, rank, int(form), to);
  if (form == Form::EXACT) {
    if (length > 0 && rank > 0) std::memcpy(to, factor, length * rank * sizeof(float));
    return;
  }
  uint16_t* codes = reinterpret_cast<uint16_t*>(to);
  for (size_t i = 0; i < length * rank; ++i) codes[i] = brain(factor[i]);
  for (size_t i = 0; i < length * rank; ++i) factor[i] = unbrain(codes[i]);
}

// What came, weighed: a sum, or everyone's codes, which are added up here. Codes have been looked at.
void receive(Form form, const Incoming& from, const uint8_t* at, size_t length, size_t rank, float weight, float* total) {
  if (coded(form)) {
    sum_factors(at, from.rows, from.pitch, length, rank, int(form), weight, total);
  } else if (form == Form::EXACT) {
    for (size_t i = 0; i < length * rank; ++i) total[i] = reinterpret_cast<const float*>(at)[i] * weight;
  } else {
    for (size_t i = 0; i < length * rank; ++i) total[i] = unbrain(reinterpret_cast<const uint16_t*>(at)[i]) * weight;
  }
}

// Whether every step can have been sent; `length` tells a layer's.
template <class Length> bool all_plausible(Form form, const Incoming& from, const std::vector<Matrix>& layers, Length length) {
  if (!coded(form)) return true;
  const uint8_t* at = from.payload;
  for (const Matrix& one : layers) {
    for (size_t row = 0; row < from.rows; ++row)
      if (!plausible(reinterpret_cast<const float*>(at + row * from.pitch), one.rank, int(form))) return false;
    at += sent_bytes(form, length(one), one.rank);
  }
  return true;
}

size_t shorter(const Matrix& one) { return std::min(one.rows, one.columns); }
size_t longer(const Matrix& one) { return std::max(one.rows, one.columns); }

}  // namespace

void orthonormal(float* p, size_t rows, size_t rank) {
  thread_local Scratch memory;
  size_t pitch = rows / 16 * 16 + 32;  // no power of two
  float* columns = memory.of<float>(rank * pitch);
  for (size_t k = 0; k < rank; ++k)
    for (size_t i = 0; i < rows; ++i) columns[k * pitch + i] = p[i * rank + k];
  table().orthonormal(columns, pitch, rows, rank);
  for (size_t i = 0; i < rows; ++i)
    for (size_t k = 0; k < rank; ++k) p[i * rank + k] = columns[k * pitch + i];
}

void sketch_all(Form form, const std::vector<Matrix>& layers, uint8_t* message, double* energies, int threads) {
  thread_local Scratch of_q, of_p;
  for (const Matrix& one : layers) {
    // A largest magnitude of one: what the factor spans is the same, and a product with it cannot overflow.
    size_t size = longer(one) * one.rank;
    float *q = of_q.of<float>(size), *p = of_p.of<float>(shorter(one) * one.rank), most = std::numeric_limits<float>::min();
    for (size_t i = 0; i < size; ++i) most = std::fabs(one.q[i]) > most ? std::fabs(one.q[i]) : most;
    for (size_t i = 0; i < size; ++i) q[i] = one.q[i] / most;
    *energies++ = sketch(one.x, one.residual, one.rows, one.columns, q, one.rank, p, threads);
    send(form, p, shorter(one), one.rank, message);
    message += sent_bytes(form, shorter(one), one.rank);
  }
}

bool turn_all(Form heard, Form said, const Incoming& from, const std::vector<Matrix>& layers, uint8_t* message, int threads) {
  if (!all_plausible(heard, from, layers, shorter)) return false;
  const uint8_t* at = from.payload;
  for (const Matrix& one : layers) {
    receive(heard, from, at, shorter(one), one.rank, 1.0f, one.p);
    at += sent_bytes(heard, shorter(one), one.rank);
    orthonormal(one.p, shorter(one), one.rank);
    sketch_back(one.x, one.rows, one.columns, one.p, one.rank, one.q, threads);
    send(said, one.q, longer(one), one.rank, message);
    message += sent_bytes(said, longer(one), one.rank);
  }
  return true;
}

void leave_all(const std::vector<Matrix>& layers, int threads) {
  for (const Matrix& one : layers) add_product(one.x, one.rows, one.columns, one.p, one.q, one.rank, -1.0f, false, threads);
}

bool product_all(Form form, const Incoming& from, const std::vector<Matrix>& layers, float weight, int threads) {
  if (!all_plausible(form, from, layers, longer)) return false;
  const uint8_t* at = from.payload;
  for (const Matrix& one : layers) {
    receive(form, from, at, longer(one), one.rank, weight, one.q);
    at += sent_bytes(form, longer(one), one.rank);
    add_product(one.x, one.rows, one.columns, one.p, one.q, one.rank, 1.0f, true, threads);
  }
  return true;
}

}  // namespace laconic
