// Addresses in, numbers out. The callers (kernels/native.py) own the tensors and have checked sizes and types.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "chorus.h"
#include "kernels.h"
#include "knapsack.h"
#include "lanes.h"

namespace nb = nanobind;
using namespace laconic;
using Address = uintptr_t;

namespace {

template <class T> T* at(Address address) { return reinterpret_cast<T*>(address); }
const float* floats(Address address) { return at<const float>(address); }

Quantizer quantizer(int bits, size_t bucket, bool l2, std::optional<uint64_t> seed) {
  return {bits, bucket, l2, seed.has_value(), seed.value_or(0)};
}

std::tuple<double, size_t> pair(Picked picked) { return {picked.energy, picked.count}; }

using Addresses = std::vector<Address>;
using Sizes = std::vector<size_t>;

std::vector<Piece> pieces(const Addresses& at_, const Sizes& sizes) {
  std::vector<Piece> made;
  for (size_t i = 0; i < at_.size(); ++i) made.push_back({at<uint8_t>(at_[i]), sizes[i]});
  return made;
}

std::vector<Flat> flats(const Addresses& xs, const Addresses& residuals, const Sizes& numels) {
  std::vector<Flat> made;
  for (size_t i = 0; i < xs.size(); ++i) made.push_back({at<float>(xs[i]), residuals.empty() ? nullptr : floats(residuals[i]), numels[i]});
  return made;
}

std::vector<Matrix> matrices(const Addresses& xs, const Addresses& residuals, const Sizes& rows, const Sizes& columns, const Sizes& ranks,
                             const Addresses& ps, const Addresses& qs) {
  std::vector<Matrix> made;
  for (size_t i = 0; i < xs.size(); ++i)
    made.push_back({at<float>(xs[i]), residuals.empty() ? nullptr : floats(residuals[i]), rows[i], columns[i], ranks[i],
                    ps.empty() ? nullptr : at<float>(ps[i]), at<float>(qs[i])});
  return made;
}

}  // namespace

NB_MODULE(_native, m) {
  using Free = nb::call_guard<nb::gil_scoped_release>;

  m.def("instruction_sets", &instruction_sets);
  m.def("instruction_set", [] { return std::string(table().name); });
  m.def("choose", &choose);

  m.def("travel", &travel, Free());
  m.def("extend", [](Address before, Address after, const std::vector<Rung>& rungs, Window old, Window now) {
    extend(at<int32_t>(before), at<int32_t>(after), rungs, old, now);
  }, Free());

  m.def("energy", [](Address x, size_t n, int threads) { return energy(floats(x), n, threads); }, Free());
  m.def("fold", [](Address x, Address r, size_t n, int threads) { return fold(at<float>(x), floats(r), n, threads); }, Free());
  m.def("settle", [](Address x, Address r, size_t n, int threads) { settle(at<float>(x), at<float>(r), n, threads); }, Free());

  m.def("quantize", [](Address x, Address r, size_t n, Address codes, Address steps, int bits, size_t bucket, bool l2,
                       std::optional<uint64_t> seed, int threads) {
    return quantize(quantizer(bits, bucket, l2, seed), at<float>(x), floats(r), n, at<uint8_t>(codes), at<float>(steps), threads);
  }, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg(), Free());
  m.def("dequantize_add", [](Address codes, Address steps, Address out, size_t n, int bits, size_t bucket, float weight, int threads) {
    return dequantize_add(bits, bucket, at<uint8_t>(codes), floats(steps), at<float>(out), n, weight, threads);
  }, Free());
  m.def("requantize", [](Address codes, Address steps, size_t rows, size_t pitch, Address x, size_t n, Address codes_out, Address steps_out,
                         int bits, size_t bucket, bool l2, std::optional<uint64_t> seed, int threads) {
    return requantize(quantizer(bits, bucket, l2, seed), rows, pitch, at<uint8_t>(codes), at<uint8_t>(steps), at<float>(x), n,
                      at<uint8_t>(codes_out), at<float>(steps_out), threads);
  }, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(),
     nb::arg().none(), nb::arg(), Free());

  m.def("top_k", [](Address x, Address r, size_t n, size_t k, Address indices, Address values, int threads) {
    return top_k(at<float>(x), floats(r), n, k, at<int32_t>(indices), at<float>(values), threads);
  }, Free());
  m.def("sampled_top_k", [](Address x, Address r, size_t n, size_t k, size_t room, size_t stride, size_t share, Address indices, Address values, int threads) {
    return pair(sampled_top_k(at<float>(x), floats(r), n, k, room, stride, share, at<int32_t>(indices), at<float>(values), threads));
  }, Free());
  m.def("threshold", [](Address x, Address r, size_t n, size_t k, size_t room, int bisections, Address indices, Address values, int threads) {
    return pair(threshold(at<float>(x), floats(r), n, k, room, bisections, at<int32_t>(indices), at<float>(values), threads));
  }, Free());

  m.def("strata", [](size_t numel, uint64_t seed, Address indices, size_t k, int threads) { strata(numel, seed, at<int32_t>(indices), k, threads); }, Free());
  m.def("take", [](Address x, size_t n, Address indices, size_t k, Address values, int threads) {
    return take(at<float>(x), n, at<int32_t>(indices), k, at<float>(values), threads);
  }, Free());
  m.def("scatter_add", [](Address indices, Address values, size_t k, Address out, size_t n, float weight, int threads) {
    return scatter_add(at<int32_t>(indices), floats(values), k, at<float>(out), n, weight, threads);
  }, Free());
  m.def("pack_indices", [](Address indices, size_t count, int low, size_t split, Address code, size_t size) {
    return pack_indices(at<int32_t>(indices), count, low, split, at<uint8_t>(code), size);
  }, Free());
  m.def("unpack_indices", [](Address code, size_t size, int low, size_t split, size_t numel, Address indices, size_t count) {
    return unpack_indices(at<uint8_t>(code), size, low, split, numel, at<int32_t>(indices), count);
  }, Free());

  m.def("sign", [](Address x, Address r, size_t n, Address bits, bool two_sided, int threads) {
    Signs s = sign(at<float>(x), floats(r), n, at<uint8_t>(bits), two_sided, threads);
    return std::tuple<double, float, float>(s.energy, s.below, s.above);
  }, Free());
  m.def("unsign_add", [](Address bits, float clear, float set, Address out, size_t n, int threads) {
    unsign_add(at<uint8_t>(bits), clear, set, at<float>(out), n, threads);
  }, Free());
  m.def("majority", [](Address rows, size_t count, size_t pitch, Address out, size_t size) {
    majority(at<uint8_t>(rows), count, pitch, at<uint8_t>(out), size);
  }, Free());

  m.def("natural", [](Address x, Address r, size_t n, Address codes, uint64_t seed, int threads) {
    Powers p = natural(at<float>(x), floats(r), n, at<uint8_t>(codes), seed, threads);
    return std::tuple<double, int>(p.energy, p.exponent);
  }, Free());
  m.def("unnatural_add", [](Address codes, int exponent, Address out, size_t n, float weight, int threads) {
    unnatural_add(at<uint8_t>(codes), exponent, at<float>(out), n, weight, threads);
  }, Free());

  m.def("adacomp", [](Address x, Address r, size_t n, size_t bin, Address words, size_t size, int threads) {
    Adapted a = adacomp(at<float>(x), floats(r), n, bin, at<uint8_t>(words), size, threads);
    return std::tuple<double, float, size_t>(a.energy, a.scale, a.words);
  }, Free());
  m.def("unadacomp_add", [](Address words, size_t count, float scale, size_t bin, Address out, size_t n, float weight) {
    return unadacomp_add(at<uint8_t>(words), count, scale, bin, at<float>(out), n, weight);
  }, Free());

  m.def("ternary_bytes", &ternary_bytes);
  m.def("ternary", [](Address x, Address r, size_t n, size_t bucket, size_t each, Address payload, int threads) {
    return ternary_code(at<float>(x), floats(r), n, bucket, each, at<uint8_t>(payload), threads);
  }, Free());
  m.def("unternary_add", [](Address payload, size_t bucket, size_t each, Address out, size_t n, float weight, int threads) {
    return ternary_add(at<uint8_t>(payload), 1, 0, bucket, each, at<float>(out), n, weight, false, threads);
  }, Free());

  m.def("narrow", [](Address x, Address r, Address code, size_t n, float weight, bool brain, int threads) {
    return narrow(at<float>(x), floats(r), at<uint16_t>(code), n, weight, brain, threads);
  }, Free());
  m.def("widen_add", [](Address code, Address out, size_t n, float weight, bool brain, int threads) {
    widen_add(at<uint16_t>(code), at<float>(out), n, weight, brain, threads);
  }, Free());

  m.def("sketch", [](Address x, Address r, size_t rows, size_t columns, Address q, size_t rank, Address p, int threads) {
    return sketch(at<float>(x), floats(r), rows, columns, floats(q), rank, at<float>(p), threads);
  }, Free());
  m.def("sketch_back", [](Address x, size_t rows, size_t columns, Address p, size_t rank, Address q, int threads) {
    sketch_back(floats(x), rows, columns, floats(p), rank, at<float>(q), threads);
  }, Free());
  m.def("add_product", [](Address x, size_t rows, size_t columns, Address p, Address q, size_t rank, float weight, bool fresh, int threads) {
    add_product(at<float>(x), rows, columns, floats(p), floats(q), rank, weight, fresh, threads);
  }, Free());

  m.def("factor_bytes", &factor_bytes);
  m.def("code_factor", [](Address factor, size_t length, size_t rank, int bits, Address payload) {
    code_factor(at<float>(factor), length, rank, bits, at<uint8_t>(payload));
  }, Free());
  m.def("sum_factors", [](Address payload, size_t payloads, size_t pitch, size_t length, size_t rank, int bits, float weight, Address total) {
    return sum_factors(at<uint8_t>(payload), payloads, pitch, length, rank, bits, weight, at<float>(total));
  }, Free());

  m.def("lay", [](const Addresses& from, const Sizes& sizes, Address out, size_t room) { lay(pieces(from, sizes), at<uint8_t>(out), room); }, Free());
  m.def("spread", [](Address from, const Addresses& to, const Sizes& sizes) { spread(at<uint8_t>(from), pieces(to, sizes)); }, Free());
  m.def("lay_weighed", [](const Addresses& from, const Sizes& sizes, float weight, Address out, size_t room) {
    lay_weighed(pieces(from, sizes), weight, at<uint8_t>(out), room);
  }, Free());
  m.def("spread_sum", [](Address from, size_t rows, size_t pitch, const Addresses& to, const Sizes& sizes) {
    return spread_sum(at<uint8_t>(from), rows, pitch, pieces(to, sizes));
  }, Free());
  m.def("store", [](const std::vector<float>& values, Address out) { std::memcpy(at<float>(out), values.data(), 4 * values.size()); });
  m.def("add_rows", [](Address from, size_t rows, size_t pitch, size_t count) {
    std::vector<float> sums(count);
    add_rows(at<uint8_t>(from), rows, pitch, count, sums.data());
    return sums;
  });
  m.def("orthonormal", [](Address p, size_t rows, size_t rank) { orthonormal(at<float>(p), rows, rank); }, Free());
  m.def("quantize_all", [](const Addresses& xs, const Addresses& residuals, const Sizes& numels, Address payload, int bits, size_t bucket, bool l2,
                           const std::vector<uint64_t>& seeds, int threads) {
    std::vector<double> energies(xs.size());
    Quantizer how{bits, bucket, l2, !seeds.empty(), 0};
    quantize_all(how, flats(xs, residuals, numels), seeds.empty() ? nullptr : seeds.data(), at<uint8_t>(payload), energies.data(), threads);
    return energies;
  }, Free());
  m.def("dequantize_all", [](Address payloads, size_t rows, size_t pitch, const Addresses& outs, const Sizes& numels, int bits, size_t bucket,
                             float weight, int threads) {
    return dequantize_all(bits, bucket, at<uint8_t>(payloads), rows, pitch, flats(outs, {}, numels), weight, threads);
  }, Free());
  m.def("ternary_all", [](const Addresses& xs, const Addresses& residuals, const Sizes& numels, Address payload, size_t bucket, size_t each, int threads) {
    std::vector<double> energies(xs.size());
    ternary_all(flats(xs, residuals, numels), bucket, each, at<uint8_t>(payload), energies.data(), threads);
    return energies;
  }, Free());
  m.def("unternary_all", [](Address payloads, size_t rows, size_t pitch, const Addresses& outs, const Sizes& numels, size_t bucket, size_t each,
                            float weight, int threads) {
    return unternary_all(at<uint8_t>(payloads), rows, pitch, flats(outs, {}, numels), bucket, each, weight, threads);
  }, Free());
  m.def("sketch_all", [](int form, const Addresses& xs, const Addresses& residuals, const Sizes& rows, const Sizes& columns, const Sizes& ranks,
                         const Addresses& qs, Address message, int threads) {
    std::vector<double> energies(xs.size());
    sketch_all(Form(form), matrices(xs, residuals, rows, columns, ranks, {}, qs), at<uint8_t>(message), energies.data(), threads);
    return energies;
  }, Free());
  m.def("turn_all", [](int heard, int said, Address reply, size_t replies, size_t pitch, const Addresses& xs, const Sizes& rows, const Sizes& columns,
                       const Sizes& ranks, const Addresses& ps, const Addresses& qs, Address message, int threads) {
    return turn_all(Form(heard), Form(said), {at<uint8_t>(reply), replies, pitch}, matrices(xs, {}, rows, columns, ranks, ps, qs), at<uint8_t>(message), threads);
  }, Free());
  m.def("leave_all", [](const Addresses& xs, const Sizes& rows, const Sizes& columns, const Sizes& ranks, const Addresses& ps, const Addresses& qs, int threads) {
    leave_all(matrices(xs, {}, rows, columns, ranks, ps, qs), threads);
  }, Free());
  m.def("product_all", [](int form, Address reply, size_t replies, size_t pitch, const Addresses& outs, const Sizes& rows, const Sizes& columns,
                          const Sizes& ranks, const Addresses& ps, const Addresses& qs, float weight, int threads) {
    return product_all(Form(form), {at<uint8_t>(reply), replies, pitch}, matrices(outs, {}, rows, columns, ranks, ps, qs), weight, threads);
  }, Free());

  m.def("quantize_errors", [](Address x, size_t n, size_t bucket, bool l2, int threads) {
    std::vector<double> errors(8);
    quantize_errors(floats(x), n, bucket, l2, errors.data(), threads);
    return errors;
  }, Free());
  m.def("top_k_errors", [](Address x, size_t n, const std::vector<size_t>& ks, int threads) {
    std::vector<double> errors(ks.size());
    top_k_errors(floats(x), n, ks.data(), ks.size(), errors.data(), threads);
    return errors;
  }, Free());
}
