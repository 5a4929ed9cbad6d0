// A step as the engine takes it: planning/lanes.py says what the model is, and this does the same sooner.
#pragma once
#include <tuple>
#include <vector>

namespace laconic {

using Send = std::tuple<int, double, double, double>;            // link, latency, seconds, computing
using Round = std::tuple<double, std::vector<Send>>;             // work, sends
using Load = std::tuple<double, std::vector<Round>, double, bool>;  // ready, rounds, ending, inline
using Passage = std::tuple<double, double, std::vector<double>, double>;  // end, backward, arrived, sending

Passage travel(const std::vector<Load>& loads, double cores, bool at_once);

}  // namespace laconic
