#include "instruction_sets.h"

#include <atomic>
#include <stdexcept>

namespace laconic {

namespace {

std::vector<const Table*> runnable() {
  std::vector<const Table*> out;
#if defined(__x86_64__)
  __builtin_cpu_init();
  bool scalar = __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");  // as good as always, beside AVX2
  if (scalar && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    out.push_back(&avx512_table);
  if (scalar && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"))
    out.push_back(&avx2_table);
#elif defined(__aarch64__)
  out.push_back(&neon_table);  // part of every such processor
#endif
  out.push_back(&generic_table);
  return out;
}

std::atomic<const Table*>& chosen() {
  static std::atomic<const Table*> table{runnable().front()};
  return table;
}

}  // namespace

const Table& table() { return *chosen().load(std::memory_order_relaxed); }

std::vector<std::string> instruction_sets() {
  std::vector<std::string> names;
  for (const Table* each : runnable()) names.emplace_back(each->name);
  return names;
}

void choose(const std::string& name) {
  for (const Table* each : runnable())
    if (name == each->name) return chosen().store(each);
  throw std::invalid_argument("this processor does not run " + name);
}

}  // namespace laconic
