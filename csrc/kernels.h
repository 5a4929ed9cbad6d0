// The kernels as the binding offers them: whole layers, on raw pointers. See kernels/schema.py for what each must do.
//
// A null residual is none. Encoding kernels return the energy; where that is not finite, x is zero and the code is that
// of zeros. Decoding kernels check every bound before they write and report what is wrong in their return value.
#pragma once
#include <cstddef>
#include <cstdint>

#include "instruction_sets.h"

namespace laconic {

double energy(const float* x, size_t n, int threads);
double fold(float* x, const float* residual, size_t n, int threads);
void settle(float* x, float* residual, size_t n, int threads);

double quantize(const Quantizer&, float* x, const float* residual, size_t n, uint8_t* codes, float* steps, int threads);
// False, and nothing written, where a step can not have been sent.
bool plausible(const float* steps, size_t n, int bits);
bool dequantize_add(int bits, size_t bucket, const uint8_t* codes, const float* steps, float* out, size_t n, float weight, int threads);
// out = weight * the sum of `rows` encodings, `pitch` bytes apart, that have been found plausible.
void dequantize(int bits, size_t bucket, const uint8_t* codes, const uint8_t* steps, size_t rows, size_t pitch, float* out, size_t n,
                float weight, int threads);
// The sum of `rows` encodings, whose codes and steps lie `pitch` bytes apart, encoded again; x gets what is left.
double requantize(const Quantizer&, size_t rows, size_t pitch, const uint8_t* codes, const uint8_t* steps, float* x, size_t n,
                  uint8_t* codes_out, float* steps_out, int threads);

struct Picked {
  double energy;
  size_t count;
};
double top_k(float* x, const float* residual, size_t n, size_t k, int32_t* indices, float* values, int threads);
Picked sampled_top_k(float* x, const float* residual, size_t n, size_t k, size_t room, size_t stride, size_t share,
                     int32_t* indices, float* values, int threads);
Picked threshold(float* x, const float* residual, size_t n, size_t k, size_t room, int bisections, int32_t* indices, float* values, int threads);

void strata(size_t numel, uint64_t seed, int32_t* indices, size_t k, int threads);
bool take(float* x, size_t n, const int32_t* indices, size_t k, float* values, int threads);
bool scatter_add(const int32_t* indices, const float* values, size_t k, float* out, size_t n, float weight, int threads);
bool pack_indices(const int32_t* indices, size_t count, int low, size_t split, uint8_t* code, size_t size);
// How many indices the code holds, if fewer than `count`; -1 where one is not below `numel`; else `count`.
int64_t unpack_indices(const uint8_t* code, size_t size, int low, size_t split, size_t numel, int32_t* indices, size_t count);

struct Signs {
  double energy;
  float below, above;
};
Signs sign(float* x, const float* residual, size_t n, uint8_t* bits, bool two_sided, int threads);
void unsign_add(const uint8_t* bits, float clear, float set, float* out, size_t n, int threads);
void majority(const uint8_t* rows, size_t count, size_t pitch, uint8_t* out, size_t size);

struct Powers {
  double energy;
  int exponent;
};
Powers natural(float* x, const float* residual, size_t n, uint8_t* codes, uint64_t seed, int threads);
void unnatural_add(const uint8_t* codes, int exponent, float* out, size_t n, float weight, int threads);

struct Adapted {
  double energy;
  float scale;
  size_t words;
};
Adapted adacomp(float* x, const float* residual, size_t n, size_t bin, uint8_t* words, size_t size, int threads);
bool unadacomp_add(const uint8_t* words, size_t count, float scale, size_t bin, float* out, size_t n, float weight);

// `each` bytes a bucket. ternary_add adds up `rows` payloads, `pitch` bytes apart, to out, or, fresh, to zeros; false where one can
// not have been sent: what was added before stays.
size_t ternary_bytes(size_t n, size_t bucket, size_t each);
double ternary_code(float* x, const float* residual, size_t n, size_t bucket, size_t each, uint8_t* payload, int threads);
bool ternary_add(const uint8_t* payloads, size_t rows, size_t pitch, size_t bucket, size_t each, float* out, size_t n, float weight, bool fresh, int threads);

double narrow(float* x, const float* residual, uint16_t* code, size_t n, float weight, bool brain, int threads);
void widen_add(const uint16_t* code, float* out, size_t n, float weight, bool brain, int threads);

// p = (m + residual) q, q = m^T p, and m += weight p q^T (or, fresh, m = that). p goes with the shorter side of m: where m is higher
// than wide, all of this is of its transpose.
double sketch(float* m, const float* residual, size_t rows, size_t columns, const float* q, size_t rank, float* p, int threads);
void sketch_back(const float* m, size_t rows, size_t columns, const float* p, size_t rank, float* q, int threads);
void add_product(float* m, size_t rows, size_t columns, const float* p, const float* q, size_t rank, float weight, bool fresh, int threads);

// A factor in codes of 2 to 8 bits with a step for each column and a share of it for each row: steps, shares, codes by rows, gaps of
// zeros; factor becomes what they mean.
// What is not finite is zero. sum_factors: total = weight * what `payloads` of them, `pitch` bytes apart, mean; false, and
// nothing written, where a step can not have been sent.
size_t factor_bytes(size_t length, size_t rank, int bits);
void code_factor(float* factor, size_t length, size_t rank, int bits, uint8_t* payload);
bool sum_factors(const uint8_t* payload, size_t payloads, size_t pitch, size_t length, size_t rank, int bits, float weight, float* total);

void quantize_errors(const float* x, size_t n, size_t bucket, bool l2, double* errors, int threads);
void top_k_errors(const float* x, size_t n, const size_t* ks, size_t rungs, double* errors, int threads);

}  // namespace laconic
