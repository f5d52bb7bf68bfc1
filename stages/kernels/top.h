// The largest of many numbers, for one instruction set: part of `lanes.h`.

// The `count` largest of x [n] and their places: the largest first, of equals the first. A NaN is
// none of them; where too few are left, the last place stands with minus infinity.
TARGET static void top(const float* x, int64_t n, int64_t count, float* values, int32_t* places) {
  constexpr int64_t GROUP = 32;
  const int64_t groups = n / GROUP;
  std::vector<float> tops(groups);
  for (int64_t g = 0; g < groups; ++g) {
    Floats highest = Floats{} - INFINITY;
    for (int64_t i = 0; i < GROUP; i += LANES) {
      const Floats v = load(x + g * GROUP + i);
      highest = v > highest ? v : highest;
    }
    tops[g] = largest(highest);
  }
  // The largest of so many groups are as many numbers, so those sought are no smaller.
  float floor = -INFINITY;
  if (count < groups) {
    std::vector<uint32_t> order(groups);
    for (int64_t g = 0; g < groups; ++g) order[g] = descending(tops[g]);
    std::nth_element(order.begin(), order.begin() + count - 1, order.end());
    for (int64_t g = 0; g < groups; ++g)
      if (descending(tops[g]) == order[count - 1]) floor = tops[g];
  }
  std::vector<uint64_t> found;  // the order of a number, and its place
  const auto collect = [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i)
      if (x[i] >= floor) found.push_back(uint64_t{descending(x[i])} << 32 | uint64_t(i));
  };
  for (int64_t g = 0; g < groups; ++g)
    if (!(tops[g] < floor)) collect(g * GROUP, (g + 1) * GROUP);
  collect(groups * GROUP, n);
  const int64_t some = least(count, found.size());
  std::nth_element(found.begin(), found.begin() + some, found.end());
  std::sort(found.begin(), found.begin() + some);
  for (int64_t i = 0; i < count; ++i) {
    places[i] = i < some ? int32_t(found[i]) : int32_t(n - 1);
    values[i] = i < some ? x[places[i]] : -INFINITY;
  }
}
