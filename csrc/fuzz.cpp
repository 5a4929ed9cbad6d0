// A fuzz target: arbitrary bytes as payloads for every decoder, and as gradients for every encoder. What they write must be
// the same on every instruction set. libFuzzer calls LLVMFuzzerTestOneInput; built by itself, it makes up its own inputs:
// fuzz [runs [seed]].
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "chorus.h"
#include "kernels.h"

using namespace laconic;

namespace {

// Reads parameters from the front of the input and hands out the rest in buffers of exactly the size asked for, so that
// the sanitizers see every byte too far.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  uint32_t number(uint32_t below) {
    uint32_t v = 0;
    take(&v, 4);
    return below ? v % below : 0;
  }
  template <class T> std::vector<T> some(size_t count) {
    std::vector<T> out(count);
    take(out.data(), count * sizeof(T));
    return out;
  }

 private:
  void take(void* to, size_t count) {
    size_t n = count < size_ ? count : size_;
    if (n) std::memcpy(to, data_, n);
    data_ += n;
    size_ -= n;
  }
  const uint8_t* data_;
  size_t size_;
};

// What was written, in order: a number for every output. One NaN is as good as another.
class Trace {
 public:
  template <class T> void note(const std::vector<T>& out) {
    uint64_t hash = 1469598103934665603u;
    for (T v : out) hash = (hash ^ bits(v)) * 1099511628211u;
    seen_.push_back(hash);
  }
  void note(double v) { seen_.push_back(bits(v)); }
  bool operator==(const Trace& other) const { return seen_ == other.seen_; }
  size_t first_difference(const Trace& other) const {
    size_t i = 0;
    while (i < seen_.size() && seen_[i] == other.seen_[i]) ++i;
    return i;
  }

 private:
  template <class T> static uint64_t bits(T v) {
    uint64_t out = 0;
    if (v != v) return ~out;
    std::memcpy(&out, &v, sizeof v);
    return out;
  }
  std::vector<uint64_t> seen_;
};

// kernels/index.py
int low_bits(size_t numel, size_t room) {
  size_t ratio = numel / (room ? room : 1);
  int bits = 0;
  while (ratio >> (bits + 1)) ++bits;
  return bits;
}

void decode(Input& in, size_t n, Trace& trace) {
  std::vector<float> out(n, 1.0f);
  int bits = int(in.number(8)) + 1;
  size_t bucket = in.number(600) + 8;
  auto steps = in.some<float>((n + bucket - 1) / bucket);
  auto codes = in.some<uint8_t>((n * bits + 7) / 8);
  dequantize_add(bits, bucket, codes.data(), steps.data(), out.data(), n, 0.5f, 1);
  trace.note(out);
  auto signs = in.some<uint8_t>((n + 7) / 8);
  unsign_add(signs.data(), -1.0f, 1.0f, out.data(), n, 1);
  trace.note(out);
  auto powers = in.some<uint8_t>(n);
  unnatural_add(powers.data(), int(in.number(277)) - 149, out.data(), n, 0.5f, 1);
  trace.note(out);
  auto halves = in.some<uint16_t>(n);
  widen_add(halves.data(), out.data(), n, 0.5f, in.number(2), 1);
  trace.note(out);
  size_t half = n / 2, rows = in.number(3) + 1;
  std::vector<float> first(half), second(n - half);
  std::vector<Flat> layers{{first.data(), nullptr, half}, {second.data(), nullptr, n - half}};
  auto aligned = [](size_t nbytes) { return nbytes ? (nbytes + 7) / 8 * 8 : 8; };
  size_t pitch = 0;
  for (const Flat& one : layers) pitch += aligned((one.n + bucket - 1) / bucket * 4) + aligned((one.n * bits + 7) / 8);
  auto payloads = in.some<uint8_t>(rows * pitch);
  dequantize_all(bits, bucket, payloads.data(), rows, pitch, layers, 0.5f, 1);
  trace.note(first), trace.note(second);
  size_t bin = in.number(600) + 2, width = bin < 64 ? 1 : 2, words = in.number(uint32_t(2 * n + 2));
  auto spelled = in.some<uint8_t>(words * width);
  unadacomp_add(spelled.data(), words, 1.0f, bin, out.data(), n, 0.5f);
  size_t held = in.number(uint32_t(n + 1)), count = in.number(uint32_t(held + 1));
  int low = low_bits(n, held);
  size_t split = (held + (n >> low) + 1 + 7) / 8, size = split + (held * size_t(low) + 7) / 8;
  auto code = in.some<uint8_t>(size);
  std::vector<int32_t> indices(count);
  if (unpack_indices(code.data(), size, low, split, n, indices.data(), count) == int64_t(count)) {
    std::vector<float> values(count, 1.0f);
    if (!scatter_add(indices.data(), values.data(), count, out.data(), n, 0.5f, 1)) std::abort();
  }
  size_t buckets_of = in.number(600) + 8, each = in.number(80) + 16;
  auto thirds = in.some<uint8_t>(ternary_bytes(n, buckets_of, each));
  if (in.number(2) && thirds.size() > 6) thirds[0] %= 8, thirds[1] = 0, thirds[5] = 63;  // a count and a step that may be true
  ternary_add(thirds.data(), 1, 0, buckets_of, each, out.data(), n, 0.5f, false, 1);
  trace.note(out);
  auto wild = in.some<int32_t>(count);
  std::vector<float> values(count, 1.0f);
  scatter_add(wild.data(), values.data(), count, out.data(), n, 0.5f, 1);
  trace.note(out);
}

// Floats of several layers in one message, weighed, and the sum of several such messages.
void sums(Input& in, size_t n, Trace& trace) {
  size_t half = n / 2, rows = in.number(3) + 1, room = 4 * n + in.number(8);
  std::vector<float> first = in.some<float>(half), second = in.some<float>(n - half);
  std::vector<Piece> pieces{{reinterpret_cast<uint8_t*>(first.data()), 4 * half}, {reinterpret_cast<uint8_t*>(second.data()), 4 * (n - half)}};
  std::vector<float> message((rows * (room + 3) + 3) / 4);
  lay_weighed(pieces, 0.5f, reinterpret_cast<uint8_t*>(message.data()), room);
  trace.note(message);
  auto heard = in.some<float>(rows * n);
  trace.note(double(spread_sum(reinterpret_cast<const uint8_t*>(heard.data()), rows, 4 * n, pieces)));
  trace.note(first), trace.note(second);
}

// A power iteration that hears arbitrary bytes: two layers, of which the second is the first one's upper half.
void iterate(Input& in, std::vector<float>& x, const float* residual, size_t rows, size_t columns, Trace& trace) {
  size_t rank = in.number(4) + 1, heads = in.number(2) + 1;
  if (rows < 2 * rank || columns < rank) return;
  const Form forms[] = {Form::EXACT, Form::BRAIN, Form::IN_3_BITS, Form::IN_4_BITS, Form::IN_6_BITS, Form::IN_8_BITS};
  Form form = forms[in.number(6)], reply = coded(form) ? forms[2 + in.number(4)] : form;
  size_t half = rows / 2, shorter = std::min(rows, columns), shorter_half = std::min(half, columns);
  size_t longer = std::max(rows, columns), longer_half = std::max(half, columns);
  std::vector<float> copy = x, p(shorter * rank), q = in.some<float>(longer * rank), upper(shorter_half * rank), second = in.some<float>(longer_half * rank);
  std::vector<Matrix> layers{{x.data(), residual, rows, columns, rank, p.data(), q.data()},
                             {copy.data(), nullptr, half, columns, rank, upper.data(), second.data()}};
  auto sent = [&](Form as, size_t length) { return coded(as) ? factor_bytes(length, rank, int(as)) : length * rank * (as == Form::BRAIN ? 2 : 4); };
  size_t down = sent(form, shorter) + sent(form, shorter_half), across = sent(reply, longer) + sent(reply, longer_half), copies = coded(form) ? heads : 1;
  std::vector<uint8_t> message(down), answer(across);
  std::vector<double> energies(2);
  auto note = [&](const std::vector<uint8_t>& said) {  // floats as floats: one NaN is as good as another
    std::vector<float> floats(form == Form::EXACT ? said.size() / 4 : 0);
    if (floats.empty()) return trace.note(said);
    std::memcpy(floats.data(), said.data(), said.size());
    trace.note(floats);
  };
  sketch_all(form, layers, message.data(), energies.data(), 1);
  note(message), trace.note(x);
  auto heard = in.some<uint8_t>(copies * down), told = in.some<uint8_t>(copies * across);
  turn_all(form, reply, {heard.data(), copies, down}, layers, answer.data(), 1);
  leave_all(layers, 1);
  trace.note(p), trace.note(upper), note(answer), trace.note(x), trace.note(copy);
  product_all(reply, {told.data(), copies, across}, layers, 0.5f, 1);
  trace.note(q), trace.note(x), trace.note(copy);
}

void encode(Input& in, size_t n, Trace& trace) {
  std::vector<float> residual = in.some<float>(n);
  auto fresh = [&] { return in.some<float>(n); };
  const float* r = in.number(2) ? residual.data() : nullptr;
  auto x = fresh();
  Quantizer q{int(in.number(8)) + 1, in.number(2000) + 8, bool(in.number(2)), bool(in.number(2)), in.number(0xffffffff)};
  std::vector<uint8_t> codes((n * q.bits + 7) / 8);
  std::vector<float> steps((n + q.bucket - 1) / q.bucket);
  trace.note(quantize(q, x.data(), r, n, codes.data(), steps.data(), 1));
  trace.note(x), trace.note(codes), trace.note(steps);
  x = fresh();
  size_t k = n ? in.number(uint32_t(n)) + 1 : 0, room = k + in.number(uint32_t(n - k + 1));
  std::vector<int32_t> indices(room);
  std::vector<float> values(room);
  trace.note(top_k(x.data(), r, n, k, indices.data(), values.data(), 1));
  trace.note(x), trace.note(indices), trace.note(values);
  int low = low_bits(n, room);
  std::vector<uint8_t> code((room + (n >> low) + 1 + 7) / 8 + (room * size_t(low) + 7) / 8);
  if (n && !pack_indices(indices.data(), k, low, (room + (n >> low) + 1 + 7) / 8, code.data(), code.size())) std::abort();
  x = fresh();
  if (n) trace.note(double(sampled_top_k(x.data(), r, n, k, room, 1 + in.number(7), 1, indices.data(), values.data(), 1).count));
  trace.note(x), trace.note(values);
  x = fresh();
  trace.note(double(threshold(x.data(), r, n, k, room, 32, indices.data(), values.data(), 1).count));
  trace.note(x), trace.note(values);
  x = fresh();
  std::vector<uint8_t> signs((n + 7) / 8), powers(n);
  trace.note(double(sign(x.data(), r, n, signs.data(), in.number(2), 1).above));
  trace.note(x), trace.note(signs);
  x = fresh();
  trace.note(natural(x.data(), r, n, powers.data(), 7, 1).energy);
  trace.note(x), trace.note(powers);
  x = fresh();
  std::vector<uint8_t> words(in.number(uint32_t(2 * n + 2)));
  trace.note(double(adacomp(x.data(), r, n, in.number(600) + 2, words.data(), words.size(), 1).scale));
  trace.note(x), trace.note(words);
  x = fresh();
  size_t thirds = in.number(2000) + 8, each = in.number(200) + 16;
  std::vector<uint8_t> coded_thirds(ternary_bytes(n, thirds, each));
  std::vector<float> decoded(n);
  trace.note(ternary_code(x.data(), r, n, thirds, each, coded_thirds.data(), 1));
  if (!ternary_add(coded_thirds.data(), 1, 0, thirds, each, decoded.data(), n, 1.0f, true, 1)) std::abort();
  trace.note(x), trace.note(coded_thirds), trace.note(decoded);
  x = fresh();
  std::vector<uint16_t> halves(n);
  trace.note(narrow(x.data(), r, halves.data(), n, 0.5f, in.number(2), 1));
  trace.note(x), trace.note(halves);
  double errors[8];
  quantize_errors(x.data(), n, in.number(2000) + 8, in.number(2), errors, 1);
  for (double each : errors) trace.note(each);
  size_t ks[2] = {k, n};
  top_k_errors(x.data(), n, ks, 2, errors, 1);
  size_t rank = in.number(20) + 1, rows = in.number(40) + 1, columns = n / rows;
  x = fresh();
  size_t shorter = std::min(rows, columns), longer = std::max(rows, columns);
  std::vector<float> p(shorter * rank), back(longer * rank), right = in.some<float>(longer * rank);
  sketch(x.data(), r, rows, columns, right.data(), rank, p.data(), 1);  // its energy is added up tile by tile
  sketch_back(x.data(), rows, columns, p.data(), rank, back.data(), 1);
  add_product(x.data(), rows, columns, p.data(), back.data(), rank, -1.0f, false, 1);
  trace.note(p), trace.note(back), trace.note(x);
  int bits = int(2 + in.number(7));
  std::vector<uint8_t> codes_of(factor_bytes(longer, rank, bits));
  code_factor(right.data(), longer, rank, bits, codes_of.data());
  auto received = in.some<uint8_t>(codes_of.size());
  sum_factors(received.data(), 1, received.size(), longer, rank, bits, 0.5f, back.data());
  trace.note(codes_of), trace.note(right), trace.note(back);
  iterate(in, x, r, rows, columns, trace);
  sums(in, n, trace);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Trace best;
  for (const std::string& set : instruction_sets()) {
    choose(set);
    Trace trace;
    Input in(data, size);
    size_t n = in.number(3000);
    decode(in, n, trace);
    encode(in, n, trace);
    if (set == instruction_sets().front()) best = trace;
    if (!(trace == best)) {
      std::fprintf(stderr, "%s writes another output %zu\n", set.c_str(), best.first_difference(trace));
      std::abort();
    }
  }
  return 0;
}

#ifndef LACONIC_LIBFUZZER
int main(int argc, char** argv) {
  int runs = argc > 1 ? std::atoi(argv[1]) : 1000;
  std::mt19937 dice(argc > 2 ? unsigned(std::atoi(argv[2])) : 1);
  for (int run = 0; run < runs; ++run) {
    std::vector<uint8_t> bytes(dice() % 200000);
    for (uint8_t& byte : bytes) byte = uint8_t(dice());
    if (run % 3 == 0)  // floats of ordinary size, or the non-finite path is all that is ever seen
      for (size_t i = 8; i + 4 <= bytes.size(); i += 4) {
        float v = float(int(dice() % 2001) - 1000) / 64.0f;
        std::memcpy(&bytes[i], &v, 4);
      }
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  }
  std::printf("%d inputs\n", runs);
}
#endif
