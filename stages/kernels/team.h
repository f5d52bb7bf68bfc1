// Threads that share the work of one call.

// The calling thread and others of XLA's pool. These come when they are first needed and then wait
// for the next piece of work without sleeping: to wake one takes as long as the work. Nothing
// depends on whether they come.
class Team {
 public:
  Team(ffi::ThreadPool& pool, bool alone)
      : pool_(pool), threads_(alone ? 1 : std::max(int64_t{1}, pool.num_threads())) {}

  ~Team() {
    if (state_) state_->ticket.store(OVER, std::memory_order_release);
  }

  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  // Calls work(from, to), which must not throw, until all items are done. Whoever is free takes
  // half of its share of what is left, at least `unit`, which what it takes divides by.
  template <class Work>
  void share(int64_t items, int64_t unit, const Work& work) {
    if (threads_ < 2 || items <= unit) {
      if (items > 0) work(0, items);
      return;
    }
    if (!state_) gather();
    State& s = *state_;
    const uint64_t next = (s.ticket.load(std::memory_order_relaxed) / CLOSED + 1) * CLOSED;
    s.ticket.store(next - 1, std::memory_order_relaxed);  // so that nobody mixes old with new
    std::atomic_thread_fence(std::memory_order_release);
    s.items.store(items, std::memory_order_relaxed);
    s.unit.store(unit, std::memory_order_relaxed);
    s.work.store(&work, std::memory_order_relaxed);
    s.run.store(
        [](const void* work, int64_t from, int64_t to) { (*(const Work*)work)(from, to); },
        std::memory_order_relaxed);
    s.done.store(0, std::memory_order_relaxed);
    s.ticket.store(next, std::memory_order_release);
    while (s.take(threads_)) {
    }
    for (int spins = 0; s.done.load(std::memory_order_acquire) < items; ++spins) wait(spins);
  }

  // Calls work(item) of each.
  template <class Work>
  void each(int64_t items, const Work& work) {
    share(items, 1, [&](int64_t from, int64_t to) {
      for (int64_t i = from; i < to; ++i) work(i);
    });
  }

 private:
  static constexpr uint64_t CLOSED = uint64_t{1} << 32, OVER = ~uint64_t{0};

  struct State {
    std::atomic<uint64_t> ticket{CLOSED - 1};  // the piece of work, and its first item not taken
    std::atomic<int64_t> items{0}, unit{1}, done{0};
    std::atomic<const void*> work{nullptr};
    std::atomic<void (*)(const void*, int64_t, int64_t)> run{nullptr};

    // Takes some of the items there are, if there are any, and works.
    bool take(int64_t threads) {
      uint64_t now = ticket.load(std::memory_order_acquire);
      for (;;) {
        const int64_t from = int64_t(now % CLOSED), all = items.load(std::memory_order_acquire);
        if (from >= all) return false;
        const int64_t least = unit.load(std::memory_order_relaxed);
        const int64_t part = std::max(least, (all - from) / (2 * threads) / least * least);
        const int64_t to = std::min(all, from + part);
        const auto* given = work.load(std::memory_order_relaxed);
        const auto call = run.load(std::memory_order_relaxed);
        if (!ticket.compare_exchange_weak(now, now + (to - from), std::memory_order_acquire))
          continue;
        call(given, from, to);
        done.fetch_add(to - from, std::memory_order_release);
        return true;
      }
    }
  };

  static void wait(int spins) {
    if (spins >= 4096) return std::this_thread::yield();
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  void gather() {
    state_ = std::make_shared<State>();  // a helper may come when all is over
    auto help = [state = state_, threads = threads_, caller = std::this_thread::get_id()] {
      if (std::this_thread::get_id() == caller) return;  // where there is no pool
      for (int spins = 0; state->ticket.load(std::memory_order_relaxed) != OVER; ++spins) {
        if (state->take(threads))
          spins = 0;
        else
          wait(spins);
      }
    };
    using Helper = decltype(help);
    for (int64_t i = 1; i < threads_; ++i) pool_.Schedule(Helper(help));
  }

  ffi::ThreadPool& pool_;
  const int64_t threads_;
  std::shared_ptr<State> state_;
};
