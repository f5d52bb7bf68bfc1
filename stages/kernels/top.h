// The largest of many numbers, for one instruction set: part of `lanes.h`.

// The `count` largest of x [n] and their places: the largest first, of equals the first. A NaN is
// none of them; where too few are left, the last place stands with minus infinity. `room` is for
// n + n / TOP_GROUP numbers.
TARGET static void top(const float* x, int64_t n, int64_t count, float* values, int32_t* places,
                       uint64_t* room) {
  const int64_t groups = n / TOP_GROUP;
  float* tops = (float*)(room + n);
  uint32_t* order = (uint32_t*)(tops + groups);
  for (int64_t g = 0; g < groups; ++g) {
    Floats highest = Floats{} - INFINITY;
    for (int64_t i = 0; i < TOP_GROUP; i += LANES) {
      const Floats v = load(x + g * TOP_GROUP + i);
      highest = v > highest ? v : highest;
    }
    tops[g] = largest(highest);
    order[g] = descending(tops[g]);
  }
  // The largest of so many groups are as many numbers, so those sought are no smaller.
  uint32_t last = ~uint32_t{0};
  if (count <= groups) {
    std::nth_element(order, order + count - 1, order + groups);
    last = order[count - 1];
  }
  int64_t found = 0;
  const auto collect = [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) {
      room[found] = uint64_t{descending(x[i])} << 32 | uint64_t(i);
      found += x[i] == x[i] && descending(x[i]) <= last;
    }
  };
  for (int64_t g = 0; g < groups; ++g)
    if (descending(tops[g]) <= last) collect(g * TOP_GROUP, (g + 1) * TOP_GROUP);
  collect(groups * TOP_GROUP, n);
  const int64_t some = least(count, found);
  std::nth_element(room, room + some, room + found);
  std::sort(room, room + some);
  for (int64_t i = 0; i < count; ++i) {
    places[i] = i < some ? int32_t(room[i]) : int32_t(n - 1);
    values[i] = i < some ? x[places[i]] : -INFINITY;
  }
}
