// The inner loops for one instruction set. Included once for each, between definitions of
//   NAME    its namespace
//   TARGET  the attribute that lets a function use it: each function bears it itself, for neither
//           templates nor lambdas inherit it
//   LANES   floats in a register
//   ROWS    rows of a product computed at once: their sums by COLUMNS must fit in the registers
//   DOT     1 where one instruction multiplies and adds pairs of bfloat16
//   WIDEN   the instruction that loads 16-bit words as 32-bit ones, if the compiler needs telling
// Registers are the compiler's own vector types, so hardly anything here names an instruction.

#define FAST TARGET static inline __attribute__((always_inline))
#define FLAT _Pragma("GCC unroll 16")

namespace NAME {

typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef uint32_t Words __attribute__((vector_size(4 * LANES)));
typedef uint16_t Halves __attribute__((vector_size(2 * LANES)));

FAST Floats load(const float* p) {
  Floats v;
  memcpy(&v, p, sizeof v);
  return v;
}

FAST Floats load(const uint16_t* p) {
#ifdef WIDEN
  const Words words = (Words)WIDEN;
#else
  Halves v;
  memcpy(&v, p, sizeof v);
  const Words words = __builtin_convertvector(v, Words);
#endif
  return (Floats)(words << 16);
}

// What is left of a row shorter than a register, and zeros.
template <class T>
FAST Floats load_rest(const T* p, int64_t count) {
  T padded[LANES] = {};
  memcpy(padded, p, count * sizeof(T));
  return load(padded);
}

FAST void store(float* p, const Floats& v) { memcpy(p, &v, sizeof v); }

template <int N>
FAST Four fold(const typename Vector<N>::Type& v) {
  if constexpr (N == 4) {
    return v;
  } else {
    typename Vector<N / 2>::Type half[2];
    memcpy(half, &v, sizeof v);
    return fold<N / 2>(half[0] + half[1]);
  }
}

// The sum of each of four registers, halves added until one lane is left.
FAST Four sums(const Floats& a, const Floats& b, const Floats& c, const Floats& d) {
  const Four p = fold<LANES>(a), q = fold<LANES>(b), r = fold<LANES>(c), s = fold<LANES>(d);
  const Four pq = MIX(p, q, 0, 4, 1, 5) + MIX(p, q, 2, 6, 3, 7);
  const Four rs = MIX(r, s, 0, 4, 1, 5) + MIX(r, s, 2, 6, 3, 7);
  return MIX(pq, rs, 0, 1, 4, 5) + MIX(pq, rs, 2, 3, 6, 7);
}

FAST float sum(const Floats& v) { return sums(v, v, v, v)[0]; }

FAST float largest(const Floats& v) {
  float top = v[0];
  for (int i = 1; i < LANES; ++i) top = v[i] > top ? v[i] : top;
  return top;
}

// exp(x) for x <= 0, within 2 units in the last place; below -87 what it is there, 1e-38.
// x = n log 2 + r with |r| <= log 2 / 2: 2^n by the exponent's bits, e^r by its Taylor series.
FAST Floats exponential(Floats x) {
  const Floats least = Floats{} - 87.f, magic = Floats{} + 12582912.f;  // 1.5 * 2^23 rounds
  x = x > least ? x : least;
  const Floats shifted = x * 1.44269504f + magic, n = shifted - magic;
  const Floats r = x - n * 0.693359375f + n * 2.12194440e-4f;
  Floats y = r * (1.f / 5040) + 1.f / 720;
  y = y * r + 1.f / 120;
  y = y * r + 1.f / 24;
  y = y * r + 1.f / 6;
  y = y * r + .5f;
  y = y * r + 1.f;
  y = y * r + 1.f;
  return y * (Floats)(((Words)shifted + 127) << 23);
}

// ---- Products ------------------------------------------------------------------------------

constexpr int64_t STEP = 2 * LANES;  // weights in a register, two to a word

#if DOT

typedef uint16_t Input;  // x as it is

struct Pairs {
  __m512i v;
};

FAST Pairs pairs(const uint16_t* p) { return {_mm512_loadu_si512(p)}; }

FAST Floats dot(const Floats& sum, const Pairs& w, const Pairs& x) {
  return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)w.v, (__m512bh)x.v);
}

TARGET static void prepare(const uint16_t* x, int64_t count, Input* to) {
  memcpy(to, x, 2 * count);
  memset(to + count, 0, 2 * (round_up(count, STEP) - count));
}

#else

typedef float Input;  // x widened: of each STEP those that meet lower halves, then the others

struct Pairs {
  Floats lower, upper;
};

FAST Pairs pairs(const uint16_t* p) {
  Words words;
  memcpy(&words, p, sizeof words);
  return {(Floats)(words << 16), (Floats)(words & 0xffff0000u)};
}

FAST Pairs pairs(const float* p) { return {load(p), load(p + LANES)}; }

FAST Floats dot(const Floats& sum, const Pairs& w, const Pairs& x) {
  return (sum + w.lower * x.lower) + w.upper * x.upper;
}

TARGET static void prepare(const uint16_t* x, int64_t count, Input* to) {
  for (int64_t i = 0; i < round_up(count, STEP); ++i)
    to[i / STEP * STEP + i % 2 * LANES + i % STEP / 2] = i < count ? widen(x[i]) : 0;
}

#endif

// Adds R rows of x by C weight rows to y, over `count` weights of each; AHEAD weight rows of the
// tile to come are fetched meanwhile. A sum is one register's, added up in the order of the
// weights and then across: the same whatever R, C and AHEAD are.
template <int R, int C, int AHEAD>
FAST void tile(const uint16_t* w, const uint16_t* ahead, int64_t in, int64_t count, const Input* x,
               bool first, float* y, int64_t out) {
  const int64_t width = round_up(count, STEP), whole = count / STEP * STEP;
  Floats total[R][COLUMNS] = {};
  for (int64_t k = 0; k < whole; k += STEP) {
    Pairs a[R];
    FLAT for (int r = 0; r < R; ++r) a[r] = pairs(x + r * width + k);
    FLAT for (int c = 0; c < C; ++c) {
      if (c < AHEAD) __builtin_prefetch(ahead + c * in + k, 0, 0);
      const Pairs b = pairs(w + c * in + k);
      FLAT for (int r = 0; r < R; ++r) total[r][c] = dot(total[r][c], b, a[r]);
    }
  }
  if (whole < count) {
    FLAT for (int c = 0; c < C; ++c) {
      uint16_t rest[STEP] = {};
      memcpy(rest, w + c * in + whole, 2 * (count - whole));
      FLAT for (int r = 0; r < R; ++r)
        total[r][c] = dot(total[r][c], pairs(rest), pairs(x + r * width + whole));
    }
  }
  FLAT for (int r = 0; r < R; ++r) {
    Four sum = sums(total[r][0], total[r][1], total[r][2], total[r][3]), before = {};
    if (!first) memcpy(&before, y + r * out, 4 * C);
    sum += before;
    memcpy(y + r * out, &sum, 4 * C);
  }
}

// All rows of x by COLUMNS weight rows. The tile that comes next is fetched in equal parts while
// each tile of rows is computed.
TARGET static void columns(const uint16_t* w, int64_t in, int64_t count, const Input* x,
                           int64_t rows, bool first, float* y, int64_t out) {
  const int64_t width = round_up(count, STEP), tiles = (rows + ROWS - 1) / ROWS;
  const uint16_t* ahead = w + COLUMNS * in;
  for (int64_t t = 0; t < tiles; ++t, x += ROWS * width, y += ROWS * out) {
    const int64_t left = rows - t * ROWS;
#define CASE(R, AHEAD) tile<R, COLUMNS, AHEAD>(w, ahead, in, count, x, first, y, out)
#define CASES(R)               \
  switch (tiles) {             \
    case 1: CASE(R, 4); break; \
    case 2: CASE(R, 2); break; \
    default: CASE(R, 1);       \
  }
    if (left >= ROWS) {
      CASES(ROWS)
    } else if (left == 1) {
      CASES(1)
    } else if (left == 2) {
      CASES(2)
    } else {
      CASES(3)
    }
    ahead += COLUMNS / (tiles < COLUMNS ? tiles : COLUMNS) * in;
  }
#undef CASES
#undef CASE
}

// Rows of y at columns `from` to `to`, of x as `prepare` leaves it: block by block of all rows.
TARGET static void product(const Product& job, const Matrix& m, int64_t from, int64_t to) {
  const int64_t out = m.out;
  for (int64_t k = 0; k < job.in; k += BLOCK) {
    const int64_t count = least(BLOCK, job.in - k);
    const Input* x = (const Input*)job.x + k * job.rows;
    const uint16_t* w = m.weights + k;
    int64_t c = from;
    for (; c + COLUMNS <= to; c += COLUMNS)
      columns(w + c * job.in, job.in, count, x, job.rows, k == 0, m.y + c, out);
    for (; c < to; ++c)
      for (int64_t r = 0; r < job.rows; ++r)
        tile<1, 1, 0>(w + c * job.in, w, job.in, count, x + r * round_up(count, STEP), k == 0,
                      m.y + r * out + c, out);
  }
}

// x as `product` reads it.
TARGET static void* arrange(const uint16_t* x, int64_t rows, int64_t in, std::vector<float>& room) {
  room.resize(rows * round_up(in, STEP) * sizeof(Input) / 4 + 1);
  Input* to = (Input*)room.data();
  for (int64_t k = 0; k < in; k += BLOCK)
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t count = least(BLOCK, in - k);
      prepare(x + r * in + k, count, to + k * rows + r * round_up(count, STEP));
    }
  return room.data();
}

// ---- Attention -----------------------------------------------------------------------------

// Fetches what lies at the same place of another part of the cache, to be read next.
template <class T>
FAST void fetch(const T* next, int64_t place) {
  __builtin_prefetch(next + place);
}

// Scores of G queries (each `width` floats, zeros after head_dim) with positions 0 to n of keys.
template <int G, class T>
FAST void scores(const float* q, int64_t width, const T* keys, const T* next, int64_t head_dim,
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
        fetch(next, at[i] + d);
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
template <int G, int V, class T>
FAST void mix(const float (*weights)[PIECE], const T* values, const T* next, int64_t head_dim,
              int64_t n, float* out, int64_t width, int64_t rest) {
  Floats total[G][V];
  FLAT for (int g = 0; g < G; ++g)
    FLAT for (int i = 0; i < V; ++i) total[g][i] = load(out + g * width + i * LANES);
  for (int64_t t = 0; t < n; ++t)
    FLAT for (int i = 0; i < V; ++i) {
      const int64_t at = t * head_dim + i * LANES;
      fetch(next, at);
      const Floats v = rest < LANES ? load_rest(values + at, rest) : load(values + at);
      FLAT for (int g = 0; g < G; ++g) total[g][i] += weights[g][t] * v;
    }
  FLAT for (int g = 0; g < G; ++g)
    FLAT for (int i = 0; i < V; ++i) store(out + g * width + i * LANES, total[g][i]);
}

#define MIXED(V)                                                                     \
  mix<G, V>(weights, values + t * head_dim + d, keys + (t + PIECE) * head_dim + d, head_dim, \
            size, out + d, stride, head_dim - d)

// G queries over positions 0 to n: out holds the values weighted by exp(score - top), and behind
// each head's `width` of them that top and the weights' sum.
template <int G, class T>
TARGET static void attend(const float* q, int64_t width, const T* keys, const T* values,
                          int64_t head_dim, int64_t n, float* out) {
  alignas(64) float weights[G][PIECE];
  const int64_t stride = width + 2;
  for (int g = 0; g < G; ++g) {
    memset(out + g * stride, 0, 4 * stride);
    out[g * stride + width] = LOWEST;
  }
  for (int64_t t = 0; t < n; t += PIECE) {
    const int64_t size = least(PIECE, n - t), padded = round_up(size, LANES);
    scores<G>(q, width, keys + t * head_dim, values + t * head_dim, head_dim, size, weights);
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
                              int64_t n, float* out) {
  const int64_t width = round_up(job.head_dim, MOST_LANES), stride = width + 2;
  int64_t g = 0;
#define NEXT(G)                                                                        \
  attend<G>(q + g * width, width, keys, values, job.head_dim, n, out + g * stride), g += G
  while (job.share - g >= 4) NEXT(4);
  if (job.share - g >= 2) NEXT(2);
  if (job.share - g >= 1) NEXT(1);
#undef NEXT
}

constexpr Kernels KERNELS = {product, arrange, attend_all<uint16_t>, attend_all<float>};

}  // namespace NAME

#undef FAST
#undef FLAT
#undef NAME
#undef TARGET
#undef LANES
#undef ROWS
#undef DOT
#undef WIDEN
