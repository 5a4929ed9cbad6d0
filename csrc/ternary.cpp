// Ternary layers: pages of 64 buckets, each with a room of its own, so that threads need not wait for each other.
#include <atomic>
#include <cmath>
#include <cstring>

#include "chorus.h"
#include "kernels.h"
#include "parallel.h"
#include "ternary_code.h"

namespace laconic {

namespace {

struct Pages {
  size_t n, bucket, each;
  size_t elements() const { return ternary::PAGE * bucket; }
  size_t count() const { return (n + elements() - 1) / elements(); }
  size_t length(size_t page) const { return n - page * elements() < elements() ? n - page * elements() : elements(); }
  size_t used(size_t page) const { return each * ((length(page) + bucket - 1) / bucket); }
  size_t at(size_t page) const { return page * ((ternary::PAGE * each + 7) / 8 * 8); }
  size_t nbytes() const { return count() ? at(count() - 1) + (used(count() - 1) + 7) / 8 * 8 : 8; }
};

}  // namespace

size_t ternary_bytes(size_t n, size_t bucket, size_t each) { return Pages{n, bucket, each}.nbytes(); }

double ternary_code(float* x, const float* residual, size_t n, size_t bucket, size_t each, uint8_t* payload, int threads) {
  Pages pages{n, bucket, each};
  std::vector<double> energies(pages.count());
  at_once(pages.count(), threads, [&](size_t i) {
    size_t from = i * pages.elements(), end = pages.at(i) + pages.used(i);
    size_t next = i + 1 < pages.count() ? pages.at(i + 1) : pages.nbytes();
    energies[i] = table().ternary(x + from, residual ? residual + from : nullptr, pages.length(i), bucket, each, payload + pages.at(i));
    std::memset(payload + end, 0, next - end);
  });
  double energy = 0.0;
  for (double one : energies) energy += one;
  if (!n || !std::isfinite(energy)) {  // the code of zeros is zeros
    if (n) std::memset(x, 0, n * sizeof(float));
    std::memset(payload, 0, pages.nbytes());
  }
  return energy;
}

bool ternary_add(const uint8_t* payloads, size_t rows, size_t pitch, size_t bucket, size_t each, float* out, size_t n, float weight, bool fresh, int threads) {
  Pages pages{n, bucket, each};
  std::atomic<bool> good{true};
  at_once(pages.count(), threads, [&](size_t i) {
    std::vector<size_t> used(rows);
    if (!table().unternary(payloads + pages.at(i), rows, pitch, bucket, each, out + i * pages.elements(), pages.length(i), weight, fresh, used.data()))
      good = false;
  });
  return good;
}

void ternary_all(const std::vector<Flat>& layers, size_t bucket, size_t each, uint8_t* payload, double* energies, int threads) {
  for (const Flat& one : layers) {
    *energies++ = ternary_code(one.x, one.residual, one.n, bucket, each, payload, threads);
    payload += ternary_bytes(one.n, bucket, each);
  }
}

bool unternary_all(const uint8_t* payloads, size_t rows, size_t pitch, const std::vector<Flat>& layers, size_t bucket, size_t each, float weight, int threads) {
  for (const Flat& one : layers) {
    if (!ternary_add(payloads, rows, pitch, bucket, each, one.x, one.n, weight, true, threads)) return false;
    payloads += ternary_bytes(one.n, bucket, each);
  }
  return true;
}

}  // namespace laconic
