// Several threads for one large layer. Threads live for one call: nothing survives a fork, nothing meets torch's pool.
#pragma once
#include <cstddef>
#include <system_error>
#include <thread>
#include <vector>

namespace laconic {

constexpr size_t GRAIN = 1 << 17;  // elements that are worth a thread: some 50 us of work against 15 us to start one

struct Stretch {
  size_t from, to;
};

// [0, n) in at most `threads` stretches that start at multiples of `unit`; at least one.
inline std::vector<Stretch> stretches(size_t n, size_t unit, int threads) {
  size_t units = (n + unit - 1) / unit, parts = threads < 1 ? 1 : size_t(threads);
  if (parts > n / GRAIN) parts = n / GRAIN;
  if (parts > units) parts = units;
  if (parts < 1) parts = 1;
  std::vector<Stretch> out;
  for (size_t i = 0; i < parts; ++i) {
    size_t to = units * (i + 1) / parts * unit;
    out.push_back({units * i / parts * unit, to < n ? to : n});
  }
  return out;
}

// work(i) for every i in [0, count), the first on this thread.
template <class Work> void at_once(size_t count, Work work) {
  std::vector<std::thread> others;
  size_t started = 1;
  try {
    for (; started < count; ++started) others.emplace_back(work, started);
  } catch (const std::system_error&) {  // no more threads to be had: do the rest here
  }
  work(size_t(0));
  for (size_t i = started; i < count; ++i) work(i);
  for (std::thread& other : others) other.join();
}

}  // namespace laconic
