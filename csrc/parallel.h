// Several threads for one large layer: helpers that sleep between calls, and work that is handed out in small shares.
//
// Whoever is free takes the next share, so that a helper that is late (its core may be training) costs nothing but its
// help. Helpers never spin. They are as many as the largest request wants, however many callers there are at a time.
#pragma once
#include <cstddef>
#include <vector>

namespace laconic {

constexpr size_t GRAIN = 1 << 17;  // elements that are worth a share: some 50 us of work against 10 us to wake a helper

struct Stretch {
  size_t from, to;
};

// [0, n) in stretches that start at multiples of `unit`: one for one thread, else `shares` a thread; at least one.
inline std::vector<Stretch> stretches(size_t n, size_t unit, int threads, size_t shares = 8) {
  size_t units = (n + unit - 1) / unit, parts = threads < 2 ? 1 : shares * size_t(threads);
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

// call(what, i) for every i in [0, count), on this thread and at most `helpers` others. Any thread may call this, any
// number of them at a time, and a child after a fork: it starts helpers of its own.
void share(size_t count, size_t helpers, void (*call)(void* what, size_t i), void* what);

// work(i) for every i in [0, count).
template <class Work> void at_once(size_t count, int threads, const Work& work) {
  if (threads < 2 || count < 2) {
    for (size_t i = 0; i < count; ++i) work(i);
    return;
  }
  auto call = [](void* what, size_t i) { (*static_cast<const Work*>(what))(i); };
  share(count, size_t(threads) - 1, call, const_cast<Work*>(&work));
}

}  // namespace laconic
