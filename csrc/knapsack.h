// A row of the knapsack's table: planning/knapsack.py says what it is, and this does the same sooner.
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace laconic {

using Rung = std::pair<int64_t, int32_t>;    // units of error, cost
using Window = std::pair<int64_t, int64_t>;  // the first and the last capacity of a row

void extend(const int32_t* before, int32_t* after, const std::vector<Rung>& rungs, Window old, Window now);

}  // namespace laconic
