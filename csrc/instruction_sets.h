// The inner loops that exist once per instruction set, and the one place where a set is chosen.
//
// A loop works on one thread's stretch of a layer. It knows nothing of threads, of memory that must be found, or of
// what happens to non-finite input: that is the business of the files beside this one, compiled once.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace laconic {

constexpr size_t BLOCK = 1024;             // elements whose sum is taken in sixteen lanes (see reference.totals)
constexpr size_t LARGEST_BUCKET = 1 << 20;  // so that the blocks of a bucket fit a small array

struct Quantizer {
  int bits;
  size_t bucket;
  bool l2, seeded;
  uint64_t seed;
};

// Elements above a threshold, in ascending order of index; both arrays have room for sixteen more than `room`.
struct Candidates {
  uint32_t* indices;
  float* values;
  size_t count, room;
};

// What sign and natural need to know of a whole layer; sums[i] is that of block i, counts are of the whole stretch.
struct Survey {
  double energy;
  float largest;
  size_t ups;
};

struct Table {
  const char* name;
  double (*energy)(const float* x, size_t n);
  double (*fold)(float* x, const float* residual, size_t n);
  void (*settle)(float* x, float* residual, size_t n);

  // `first` is the index of x[0] in the layer, a multiple of 8; codes and steps start at this stretch.
  double (*quantize)(const Quantizer&, float* x, const float* residual, size_t n, size_t first, uint8_t* codes, float* steps);
  void (*dequantize)(int bits, size_t bucket, const uint8_t* codes, const float* steps, float* out, size_t n, float weight);
  void (*quantize_errors)(const float* x, size_t n, size_t bucket, bool l2, double* errors);  // of 1 to 8 bits

  // Folds and collects from `from` on while candidates fit; candidates become 0 in x. Returns where it stopped.
  size_t (*collect)(float* x, const float* residual, size_t from, size_t n, int32_t least, Candidates&, double* energy);
  size_t (*count_at_least)(const float* x, size_t n, int32_t least);

  void (*survey)(float* x, const float* residual, size_t n, double* sums, Survey&);
  void (*sign)(float* x, const float* residual, size_t n, uint8_t* bits, double* above, double* below, Survey&);
  void (*unsign_from)(float* x, size_t n, float clear, float set);
  void (*unsign)(const uint8_t* bits, float clear, float set, float* out, size_t n);

  double (*narrow)(float* x, const float* residual, uint16_t* code, size_t n, float weight, bool brain, bool past);
  void (*widen)(const uint16_t* code, float* out, size_t n, float weight, bool brain);

  void (*natural)(float* x, uint8_t* codes, size_t n, size_t first, int exponent, uint64_t seed);
  void (*unnatural)(const uint8_t* codes, float* out, size_t n, int exponent, float weight);

  // Folds; the largest of every bin, sixteen bits of `chosen` for every sixteen elements of a bin, and the words, for which
  // there is room for one per element, one per bin and sixteen more.
  double (*choose_in_bins)(float* x, const float* residual, size_t n, size_t bin, float* largest, uint16_t* chosen, void* words, size_t* count);
  void (*take_chosen)(float* x, size_t n, size_t bin, const uint16_t* chosen, float scale);

  // A page: folds, writes each * buckets bytes, leaves in x what they do not carry.
  double (*ternary)(float* x, const float* residual, size_t n, size_t bucket, size_t each, uint8_t* out);
  bool (*unternary)(const uint8_t* payloads, size_t rows, size_t pitch, size_t bucket, size_t each, float* out, size_t n, float weight, bool fresh, size_t* used);

  // Matrices are stored by rows; qt is a factor's transpose, its rows `pitch` apart, as those of m are `width`.
  double (*fold_times)(float* m, const float* residual, size_t rows, size_t columns, const float* qt, size_t pitch, size_t rank, float* p);
  void (*times)(const float* m, size_t rows, size_t columns, const float* qt, size_t pitch, size_t rank, float* p);
  double (*fold_times_back)(float* m, const float* residual, size_t width, size_t rows, size_t columns, const float* p, size_t rank, float* qt, size_t pitch);
  void (*times_back)(const float* m, size_t width, size_t rows, size_t columns, const float* p, size_t rank, float* qt, size_t pitch);
  void (*add_product)(float* m, size_t rows, size_t columns, const float* p, const float* qt, size_t pitch, size_t rank, bool fresh);
  void (*orthonormal)(float* columns, size_t pitch, size_t n, size_t rank);

  bool (*column_scales)(const float* factor, size_t length, size_t rank, float* scales);
  void (*code_factor)(float* factor, size_t length, size_t rank, float top, const float* inverse, const float* step, uint8_t* shares, uint8_t* codes);
  void (*add_factor)(const uint8_t* shares, const uint8_t* codes, size_t length, size_t rank, float top, const float* step, float* total);
};

extern const Table generic_table, avx2_table, avx512_table, neon_table;  // those of other processors are not linked

const Table& table();                          // the chosen one
std::vector<std::string> instruction_sets();   // those that this processor runs, best first
void choose(const std::string& name);          // throws std::invalid_argument on any other

}  // namespace laconic
