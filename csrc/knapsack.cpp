#include "knapsack.h"

#include <algorithm>

namespace laconic {

void extend(const int32_t* before, int32_t* after, const std::vector<Rung>& rungs, Window old, Window now) {
  for (auto [error, cost] : rungs) {
    int64_t start = std::max(now.first, old.first + error), stop = std::min(now.second, old.second + error) + 1;
    for (int64_t i = start; i < stop; ++i) after[i] = std::min(after[i], before[i - error] + cost);
    for (int64_t i = std::max(now.first, stop); i <= now.second; ++i) after[i] = std::min(after[i], before[old.second] + cost);
  }
}

}  // namespace laconic
