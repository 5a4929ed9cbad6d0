#include "lanes.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <stdexcept>

namespace laconic {

namespace {

constexpr double TINY = 1e-12;

struct Transfer {
  size_t bucket;
  int link;
  double latency, left, computing;
  bool moving() const { return latency <= TINY; }
  bool over() const { return moving() && left <= TINY; }
};

struct Stage {
  size_t at = 0;
  double left = 0.0;
  bool waiting = true;
};

class Step {
 public:
  Step(const std::vector<Load>& loads, double cores, bool at_once)
      : loads_(loads), cores_(cores), at_once_(at_once), pending_(loads.size()), passed_(loads.size(), -1), arrived_(loads.size()) {
    for (const Load& load : loads) {
      depth_ = std::max(depth_, rounds(load).size());
      endings_ += std::get<2>(load);
    }
    stages_.resize(depth_ + 1);
    if (!loads.empty()) left_ = std::get<0>(loads[0]);
  }

  Passage play() {
    settle();
    while (ended_ < loads_.size() || !opened()) {
      advance();
      settle();
    }
    return {std::max(now_, backward_), backward_, arrived_, sending_};
  }

 private:
  static const std::vector<Round>& rounds(const Load& load) { return std::get<1>(load); }
  bool opened() const { return opened_ == loads_.size(); }

  void start(size_t bucket, size_t stage) {
    passed_[bucket] = int(stage);
    if (stage >= rounds(loads_[bucket]).size()) return;
    for (const auto& [link, latency, seconds, computing] : std::get<1>(rounds(loads_[bucket])[stage])) {
      ++pending_[bucket];
      transfers_.push_back({bucket, link, latency, seconds, seconds > TINY ? std::min(1.0, computing / seconds) : 0.0});
    }
  }

  double work_of(size_t bucket, size_t stage) const {
    const std::vector<Round>& own = rounds(loads_[bucket]);
    if (stage < depth_) return stage < own.size() ? std::get<0>(own[stage]) : 0.0;
    if (!at_once_) return std::get<2>(loads_[bucket]);
    return bucket + 1 == loads_.size() ? endings_ : 0.0;
  }

  // All that takes no time.
  void settle() {
    for (bool moving = true; moving;) {
      moving = false;
      for (const Transfer& each : transfers_)
        if (each.over()) {
          --pending_[each.bucket];
          moving = true;
        }
      transfers_.erase(std::remove_if(transfers_.begin(), transfers_.end(), [](const Transfer& t) { return t.over(); }), transfers_.end());
      moving |= hand_over();
      for (size_t index = 0; index < stages_.size(); ++index) moving |= pass(index);
    }
  }

  // Buckets that the backward pass has ready; those that need no encoding it opens itself.
  bool hand_over() {
    bool moving = false;
    while (!opened() && left_ <= TINY) {
      const Load& load = loads_[opened_];
      if (std::get<3>(load) && !opening_ && stages_[0].at == opened_) {
        opening_ = true;
        left_ = rounds(load).empty() ? 0.0 : std::get<0>(rounds(load)[0]);
        continue;
      }
      if (opening_) {
        opening_ = false;
        start(opened_, 0);
        ++stages_[0].at;
      }
      ++opened_;
      if (!opened())
        left_ = std::get<0>(loads_[opened_]) - std::get<0>(load);
      else
        backward_ = now_;
      moving = true;
    }
    return moving;
  }

  // What a stage's thread can do now.
  bool pass(size_t index) {
    bool moving = false;
    Stage& stage = stages_[index];
    while (stage.at < loads_.size()) {
      size_t bucket = stage.at;
      if (stage.waiting) {
        bool before = index ? passed_[bucket] >= int(index) - 1 && !pending_[bucket] : opened_ > bucket;
        if (!before) break;
        if (index == depth_) arrived_[bucket] = now_;
        stage.waiting = false;
        stage.left = work_of(bucket, index);
      }
      if (stage.left > TINY) break;
      start(bucket, index);
      stage.at = bucket + 1;
      stage.waiting = true;
      if (index == depth_) ++ended_;
      moving = true;
    }
    return moving;
  }

  // To the next thing that happens.
  void advance() {
    size_t threads = opened() ? 0 : 1;
    for (const Stage& stage : stages_) threads += !stage.waiting;
    std::map<int, int> busy;
    for (const Transfer& each : transfers_)
      if (each.moving()) ++busy[each.link];
    double taken = 0.0;
    for (const Transfer& each : transfers_)
      if (each.moving()) taken += each.computing / busy[each.link];
    double pace = threads ? std::min(1.0, std::max(0.05, cores_ - taken) / double(threads)) : 1.0;
    constexpr double NEVER = std::numeric_limits<double>::infinity();
    double step = NEVER;
    for (const Stage& stage : stages_)
      if (!stage.waiting) step = std::min(step, stage.left / pace);
    if (!opened()) step = std::min(step, left_ / pace);
    for (const Transfer& each : transfers_) step = std::min(step, each.moving() ? each.left * busy[each.link] : each.latency);
    if (!(step < NEVER)) throw std::invalid_argument("a step that never ends: its costs are not finite, or a bucket has no rounds");
    now_ += step;
    if (!busy.empty()) sending_ += step;
    for (Stage& stage : stages_)
      if (!stage.waiting) stage.left -= step * pace;
    if (!opened()) left_ -= step * pace;
    for (Transfer& each : transfers_) each.moving() ? each.left -= step / busy[each.link] : each.latency -= step;
  }

  const std::vector<Load>& loads_;
  double cores_;
  bool at_once_;  // all buckets end together
  size_t depth_ = 0, opened_ = 0, ended_ = 0;
  double endings_ = 0.0, left_ = 0.0, now_ = 0.0, backward_ = 0.0, sending_ = 0.0;
  bool opening_ = false;  // the backward pass does stage 0 itself
  std::vector<int> pending_, passed_;
  std::vector<double> arrived_;
  std::vector<Stage> stages_;
  std::vector<Transfer> transfers_;
};

}  // namespace

Passage travel(const std::vector<Load>& loads, double cores, bool at_once) { return Step(loads, cores, at_once).play(); }

}  // namespace laconic
