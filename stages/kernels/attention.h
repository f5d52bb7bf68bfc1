// Attention of some queries over cached positions, for one instruction set: part of `lanes.h`.

// Scores of G queries (each `width` floats, zeros after head_dim) with positions 0 to n of keys.
// What is to be read next is fetched meanwhile: as much, from the address `next` on.
template <int G, class T>
FAST void scores(const float* q, int64_t width, const T* keys, uintptr_t next, int64_t head_dim,
                 int64_t n, float (*to)[PIECE]) {
  const int64_t whole = head_dim / LANES * LANES;
  for (int64_t t = 0; t < n; t += 4) {
    int64_t at[4];  // the last of a piece once more where there are not four
    FLAT for (int i = 0; i < 4; ++i) at[i] = least(t + i, n - 1) * head_dim;
    Floats total[G][4] = {};
    for (int64_t d = 0; d < whole; d += LANES) {
      Floats query[G];
      FLAT for (int g = 0; g < G; ++g) query[g] = load(q + g * width + d);
      FLAT for (int i = 0; i < 4; ++i) {
        fetch<AGAIN>(next + (at[i] + d) * sizeof *keys);
        const Floats key = load(keys + at[i] + d);
        FLAT for (int g = 0; g < G; ++g) total[g][i] += query[g] * key;
      }
    }
    if (whole < head_dim)
      FLAT for (int i = 0; i < 4; ++i) {
        const Floats key = load_rest(keys + at[i] + whole, head_dim - whole);
        FLAT for (int g = 0; g < G; ++g) total[g][i] += load(q + g * width + whole) * key;
      }
    FLAT for (int g = 0; g < G; ++g) {
      const Four sum = sums(total[g][0], total[g][1], total[g][2], total[g][3]);
      memcpy(to[g] + t, &sum, sizeof sum);
    }
  }
}

// Adds to V registers of each of G outputs (`width` floats apart) their weights times the values
// at positions 0 to n; `rest` of a row's values are left where there are fewer than a register.
// What is to be read next is fetched as above.
template <int G, int V, class T>
FAST void mix(const float (*weights)[PIECE], const T* values, uintptr_t next, int64_t head_dim,
              int64_t n, float* out, int64_t width, int64_t rest) {
  Floats total[G][V];
  FLAT for (int g = 0; g < G; ++g)
    FLAT for (int i = 0; i < V; ++i) total[g][i] = load(out + g * width + i * LANES);
  for (int64_t t = 0; t < n; ++t)
    FLAT for (int i = 0; i < V; ++i) {
      const int64_t at = t * head_dim + i * LANES;
      fetch<AGAIN>(next + at * sizeof *values);
      const Floats v = rest < LANES ? load_rest(values + at, rest) : load(values + at);
      FLAT for (int g = 0; g < G; ++g) total[g][i] += weights[g][t] * v;
    }
  FLAT for (int g = 0; g < G; ++g)
    FLAT for (int i = 0; i < V; ++i) store(out + g * width + i * LANES, total[g][i]);
}

#define MIXED(V)                                                                        \
  mix<G, V>(weights, values + t * head_dim + d, next + d * sizeof *keys, head_dim, size, \
            out + d, stride, head_dim - d)

// G queries over positions 0 to n: out holds the values weighted by exp(score - top), and behind
// each head's `width` of them that top and the weights' sum. `following` are the keys that are read
// after these.
template <int G, class T>
TARGET static void attend(const float* q, int64_t width, const T* keys, const T* values,
                          const T* following, int64_t head_dim, int64_t n, float* out) {
  alignas(64) float weights[G][PIECE];
  const int64_t stride = width + 2;
  for (int g = 0; g < G; ++g) {
    memset(out + g * stride, 0, 4 * stride);
    out[g * stride + width] = LOWEST;
  }
  for (int64_t t = 0; t < n; t += PIECE) {
    const int64_t size = least(PIECE, n - t), padded = round_up(size, LANES);
    const auto next = uintptr_t(t + PIECE < n ? keys + (t + PIECE) * head_dim : following);
    scores<G>(q, width, keys + t * head_dim, uintptr_t(values + t * head_dim), head_dim, size,
              weights);
    for (int g = 0; g < G; ++g) {
      float* w = weights[g];
      float &top = out[g * stride + width], &total = out[g * stride + width + 1];
      for (int64_t i = size; i < padded; ++i) w[i] = LOWEST;
      Floats highest = load(w);
      for (int64_t i = LANES; i < padded; i += LANES) {
        const Floats s = load(w + i);
        highest = s > highest ? s : highest;
      }
      const float before = top;
      top = largest(highest) > before ? largest(highest) : before;
      Floats added = {};
      for (int64_t i = 0; i < padded; i += LANES) {
        const Floats e = exponential(load(w + i) - top);
        store(w + i, e);
        added += e;
      }
      const float kept = exponential(Floats{} + (before - top))[0];
      total = total * kept + sum(added);
      for (int64_t d = 0; d < width; d += LANES)
        store(out + g * stride + d, load(out + g * stride + d) * kept);
    }
    constexpr int V = LANES > 8 ? 4 : 2;
    int64_t d = 0;
    for (; d + V * LANES <= head_dim; d += V * LANES) MIXED(V);
    for (; d < head_dim; d += LANES) MIXED(1);
  }
}

#undef MIXED

template <class T>
TARGET static void attend_all(const Attention& job, const float* q, const T* keys, const T* values,
                              const T* following, int64_t n, float* out) {
  const int64_t width = round_up(job.head_dim, MOST_LANES), stride = width + 2;
  int64_t g = 0;
#define NEXT(G)                                                                               \
  attend<G>(q + g * width, width, keys, values, following, job.head_dim, n, out + g * stride), \
      g += G
  while (job.share - g >= 4) NEXT(4);
  if (job.share - g >= 2) NEXT(2);
  if (job.share - g >= 1) NEXT(1);
#undef NEXT
}
