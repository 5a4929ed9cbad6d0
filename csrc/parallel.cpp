#include "parallel.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>

namespace laconic {

namespace {

struct Job {
  size_t count, helpers;
  void (*call)(void*, size_t);
  void* what;
  std::atomic<size_t> next{0};
  size_t inside = 0;  // helpers at work, under the pool's lock

  void work() {
    for (size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) call(what, i);
  }
};

class Pool {
 public:
  void run(Job& job) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!stopping_) grow(job.helpers);
      jobs_.push_back(&job);
    }
    for (size_t i = 0; i < job.helpers; ++i) wake_.notify_one();
    job.work();
    std::unique_lock<std::mutex> lock(mutex_);
    jobs_.erase(std::find(jobs_.begin(), jobs_.end(), &job));
    done_.wait(lock, [&] { return job.inside == 0; });
  }

  // Ends the helpers. Callers that are still under way, and those that come later, do without.
  void stop() {
    std::vector<std::thread> helpers;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
      helpers.swap(helpers_);
    }
    wake_.notify_all();
    for (std::thread& each : helpers) each.join();
  }

 private:
  void grow(size_t wanted) {
    sigset_t all, before;
    sigfillset(&all);
    if (helpers_.size() >= wanted) return;
    pthread_sigmask(SIG_SETMASK, &all, &before);  // a program's signals are for its own threads
    try {
      while (helpers_.size() < wanted) helpers_.emplace_back([this] { help(); });
    } catch (const std::system_error&) {  // no more threads to be had: the caller does more
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  Job* open() {
    for (Job* job : jobs_)
      if (job->inside < job->helpers && job->next.load(std::memory_order_relaxed) < job->count) return job;
    return nullptr;
  }

  void help() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      Job* job = nullptr;
      wake_.wait(lock, [&] { return stopping_ || (job = open()); });
      if (stopping_) return;
      ++job->inside;
      lock.unlock();
      job->work();
      lock.lock();
      if (--job->inside == 0) done_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::vector<Job*> jobs_;
  std::vector<std::thread> helpers_;
  bool stopping_ = false;
};

std::atomic<Pool*> current{nullptr};

// Never freed: a daemon thread may be inside when the program ends, and after a fork the child cannot tell in which
// state the parent's pool was. The child forgets it; its threads exist in the parent alone.
Pool& pool() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { current.store(nullptr); });
  (void)registered;
  Pool* mine = current.load(std::memory_order_acquire);
  if (mine) return *mine;
  Pool* fresh = new Pool;
  if (current.compare_exchange_strong(mine, fresh)) return *fresh;
  delete fresh;  // another thread was first; this one has no helpers yet
  return *mine;
}

struct AtExit {
  ~AtExit() {
    if (Pool* last = current.load()) last->stop();
  }
} at_exit;

}  // namespace

void share(size_t count, size_t helpers, void (*call)(void*, size_t), void* what) {
  Job job{count, std::min(helpers, count - 1), call, what};
  pool().run(job);
}

}  // namespace laconic
