// Several layers that hold one conversation: their messages lie side by side in one, in their order.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "instruction_sets.h"

namespace laconic {

// Bytes laid side by side, and what is left of `room` zeroed; and back.
struct Piece {
  uint8_t* at;
  size_t nbytes;
};
void lay(const std::vector<Piece>& pieces, uint8_t* out, size_t room);
void spread(const uint8_t* from, const std::vector<Piece>& pieces);
// The same for pieces of floats that are added up on arrival: each times `weight`; and the sum of `rows` such messages, `pitch`
// bytes apart, in order, with whether all of it is finite.
void lay_weighed(const std::vector<Piece>& pieces, float weight, uint8_t* out, size_t room);
bool spread_sum(const uint8_t* from, size_t rows, size_t pitch, const std::vector<Piece>& pieces);
// The sums over `rows` of `count` floats, `pitch` bytes apart, in order.
void add_rows(const uint8_t* from, size_t rows, size_t pitch, size_t count, float* sums);

struct Flat {
  float* x;
  const float* residual;  // null: none
  size_t n;
};

// A layer's payload: steps, gap, codes, gap, each part a multiple of 8 bytes; gaps are zero. `seeds` is one a layer, or null.
void quantize_all(const Quantizer&, const std::vector<Flat>& layers, const uint64_t* seeds, uint8_t* payload, double* energies, int threads);
// x = weight * the sum of what `rows` payloads, `pitch` bytes apart, carry; false, and nothing written, where a step can not
// have been sent.
bool dequantize_all(int bits, size_t bucket, const uint8_t* payloads, size_t rows, size_t pitch, const std::vector<Flat>& layers, float weight, int threads);

void ternary_all(const std::vector<Flat>& layers, size_t bucket, size_t each, uint8_t* payload, double* energies, int threads);
bool unternary_all(const uint8_t* payloads, size_t rows, size_t pitch, const std::vector<Flat>& layers, size_t bucket, size_t each, float weight, int threads);

// PowerSGD, from message to message (see kernels/together.py).
struct Matrix {
  float* x;  // the layer's matrix, or where its mean belongs
  const float* residual;
  size_t rows, columns, rank;
  float *p, *q;  // of the shorter side, and of the longer one
};
enum class Form { EXACT, BRAIN, IN_3_BITS = 3, IN_4_BITS = 4, IN_6_BITS = 6, IN_8_BITS = 8 };  // how factors travel: float32, bfloat16, or codes
inline bool coded(Form form) { return int(form) > int(Form::BRAIN); }
struct Incoming {
  const uint8_t* payload;
  size_t rows, pitch;  // of codes, everyone's; a sum is one row
};
void orthonormal(float* p, size_t rows, size_t rank);
void sketch_all(Form, const std::vector<Matrix>& layers, uint8_t* message, double* energies, int threads);
bool turn_all(Form heard, Form said, const Incoming&, const std::vector<Matrix>& layers, uint8_t* message, int threads);
void leave_all(const std::vector<Matrix>& layers, int threads);
bool product_all(Form, const Incoming&, const std::vector<Matrix>& layers, float weight, int threads);

}  // namespace laconic
