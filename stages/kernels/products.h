// Products of rows of x with matrices, for one instruction set: part of `lanes.h`.

// A kind of weights says how a STEP of them is loaded, how x lies to meet them (Input), and how
// both are multiplied and added to Sums. `prepare` arranges some of a row of x, rounded; where
// Input is whole numbers, of what `unit` has found.

struct Bfloat16 {
  typedef uint16_t Weight;
  typedef Floats Sums;
  static constexpr int64_t STEP = 2 * LANES;  // a register of them, two to a word

  FAST float unit(const float*, int64_t) { return 1; }

#if DOT

  typedef uint16_t Input;

  struct Pairs {
    __m512i v;
  };

  FAST Pairs pairs(const uint16_t* p) { return {_mm512_loadu_si512(p)}; }

  FAST Sums dot(const Sums& sum, const Pairs& w, const Pairs& x) {
    return (Sums)_mm512_dpbf16_ps((__m512)sum, (__m512bh)w.v, (__m512bh)x.v);
  }

  TARGET static void prepare(const float* x, int64_t count, float, Input* to) {
    narrow(x, count, to);
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

  FAST Sums dot(const Sums& sum, const Pairs& w, const Pairs& x) {
    return (sum + w.lower * x.lower) + w.upper * x.upper;
  }

  TARGET static void prepare(const float* x, int64_t count, float, Input* to) {
    for (int64_t i = 0; i < round_up(count, STEP); ++i)
      to[i / STEP * STEP + i % 2 * LANES + i % STEP / 2] = i < count ? widen(narrowed(x[i])) : 0;
  }

#endif
};

// int8, and x as the nearest whole numbers of 16 bits: sums are exact.
struct Int8 {
  typedef int8_t Weight;
  typedef int16_t Input;
  typedef Ints Sums;
  static constexpr int64_t STEP = 4 * LANES;

  struct Pairs {
    Shorts first, second;
  };

  FAST Pairs pairs(const int8_t* p) { return {widened(p), widened(p + 2 * LANES)}; }

  FAST Pairs pairs(const int16_t* p) {
    Shorts first, second;  // one by one: compilers take both through memory
    memcpy(&first, p, sizeof first);
    memcpy(&second, p + 2 * LANES, sizeof second);
    return {first, second};
  }

  FAST Sums dot(const Sums& sum, const Pairs& w, const Pairs& x) {
    return multiplied(multiplied(sum, w.first, x.first), w.second, x.second);
  }

  // Of which a row's largest value is LARGEST; 0 where all are next to it; NaN where not all are finite.
  TARGET static float unit(const float* x, int64_t count) {
    Floats top = {}, lost = {};
    for (int64_t i = 0; i < count; i += LANES) {
      const Floats v = load_some(x + i, count - i);
      const Floats size = v < 0 ? -v : v;
      top = size > top ? size : top;
      lost += v * 0.f;
    }
    const float found = largest(top) / float(LARGEST);
    return (found < FLT_MIN ? 0 : found) + sum(lost);
  }

  TARGET static void prepare(const float* x, int64_t count, float unit, Input* to) {
    const Floats by = Floats{} + (unit > 0 ? unit : 1);
    const int32_t all = unit == unit ? -1 : 0;  // what is not finite shows by the unit
    for (int64_t i = 0; i < round_up(count, STEP); i += LANES) {
      const int64_t left = count - i;
      const Floats v = left < LANES ? load_rest(x + i, left > 0 ? left : 0) : load(x + i);
      const Ints whole = ((Ints)(v / by + ROUNDS) - (Ints)(Floats{} + ROUNDS)) & all;
      const HalfShorts kept = __builtin_convertvector(whole, HalfShorts);
      memcpy(to + i, &kept, sizeof kept);
    }
  }
};

// Adds R rows of x by C weight rows, which lie `apart`, to y, where their columns lie `gap` apart:
// over `count` weights of each. AHEAD weight rows from the address `ahead` on are fetched
// meanwhile. A sum is one register's, added up in the order of the weights and then across: the
// same whatever R, C and AHEAD are.
template <class K, int R, int C, int AHEAD>
FAST void tile(const typename K::Weight* w, int64_t apart, uintptr_t ahead, int64_t count,
               const typename K::Input* x, bool first, float* y, int64_t out, int64_t gap) {
  constexpr int64_t STEP = K::STEP;
  const int64_t width = round_up(count, STEP), whole = count / STEP * STEP;
  typename K::Sums total[R][COLUMNS] = {};
  for (int64_t k = 0; k < whole; k += STEP) {
    typename K::Pairs a[R];
    FLAT for (int r = 0; r < R; ++r) a[r] = K::pairs(x + r * width + k);
    FLAT for (int c = 0; c < C; ++c) {
      if (c < AHEAD) fetch<ONCE>(ahead + (c * apart + k) * sizeof *w);
      const typename K::Pairs b = K::pairs(w + c * apart + k);
      FLAT for (int r = 0; r < R; ++r) total[r][c] = K::dot(total[r][c], b, a[r]);
    }
  }
  if (whole < count) {
    FLAT for (int c = 0; c < C; ++c) {
      typename K::Weight rest[STEP] = {};
      memcpy(rest, w + c * apart + whole, (count - whole) * sizeof rest[0]);
      FLAT for (int r = 0; r < R; ++r)
        total[r][c] = K::dot(total[r][c], K::pairs(rest), K::pairs(x + r * width + whole));
    }
  }
  FLAT for (int r = 0; r < R; ++r) {
    const Four sum = sums(total[r][0], total[r][1], total[r][2], total[r][3]);
    float* to = y + r * out;
    FLAT for (int c = 0; c < C; ++c) to[c * gap] = first ? sum[c] : to[c * gap] + sum[c];
  }
}

// Few rows of x by two weight rows at a time: each half of them is one stream of memory, which the
// CPU follows from page to page, and two keep its arithmetic busy. It would fetch them by itself,
// but into all caches: what the program does between two steps would find them full of weights.
template <class K, int R>
TARGET static void stream(const typename K::Weight* w, int64_t in, int64_t columns,
                          const typename K::Input* x, float* y, int64_t out) {
  const int64_t half = columns / 2;
  for (int64_t c = 0; c < half; ++c)
    for (int64_t k = 0; k < in; k += BLOCK) {
      const auto* from = w + c * in + k;
      tile<K, R, 2, 2>(from, half * in, uintptr_t(from) + DISTANCE, least(BLOCK, in - k),
                       x + k * R, k == 0, y + c, out, half);
    }
  if (columns % 2 == 0) return;
  const int64_t last = columns - 1;
  for (int64_t k = 0; k < in; k += BLOCK)
    tile<K, R, 1, 0>(w + last * in + k, in, 0, least(BLOCK, in - k), x + k * R, k == 0, y + last,
                     out, 1);
}

// More rows of x by COLUMNS weight rows. Most of the tile that comes next is fetched, in equal parts
// while each tile of rows is computed.
template <class K>
TARGET static void columns(const typename K::Weight* w, int64_t in, int64_t count,
                           const typename K::Input* x, int64_t rows, bool first, float* y,
                           int64_t out) {
  const int64_t width = round_up(count, K::STEP), tiles = (rows + ROWS - 1) / ROWS;
  uintptr_t ahead = uintptr_t(w) + COLUMNS * in * sizeof *w;
  for (int64_t t = 0; t < tiles; ++t, x += ROWS * width, y += ROWS * out) {
    const int64_t left = rows - t * ROWS;
#define CASE(R)                                                                    \
  if (tiles > 2)                                                                   \
    tile<K, R, COLUMNS, 1>(w, in, ahead, count, x, first, y, out, 1);              \
  else                                                                             \
    tile<K, R, COLUMNS, 2>(w, in, ahead, count, x, first, y, out, 1);
    if (left >= ROWS) {
      CASE(ROWS)
    } else if (left == 1) {
      CASE(1)
#if ROWS > 2
    } else if (left == 2) {
      CASE(2)
    } else {
      CASE(3)
#endif
    }
#undef CASE
    ahead += COLUMNS / (tiles < COLUMNS ? tiles : COLUMNS) * in * sizeof *w;
  }
}

// Many rows of x, block by block: as many at a time as stay in the fastest cache.
template <class K>
TARGET static void tiles(const Product& job, const Matrix& m, int64_t from, int64_t to) {
  const int64_t in = job.in, out = m.out;
  for (int64_t k = 0; k < in; k += BLOCK) {
    const int64_t count = least(BLOCK, in - k), width = round_up(count, K::STEP);
    const auto* w = (const typename K::Weight*)m.weights + k;
    for (int64_t r = 0; r < job.rows; r += MOST_ROWS) {
      const int64_t rows = least(MOST_ROWS, job.rows - r);
      const auto* x = (const typename K::Input*)job.x + k * job.rows + r * width;
      float* y = m.y + r * out;
      int64_t c = from;
      for (; c + COLUMNS <= to; c += COLUMNS)
        columns<K>(w + c * in, in, count, x, rows, k == 0, y + c, out);
      for (; c < to; ++c)
        for (int64_t i = 0; i < rows; ++i)
          tile<K, 1, 1, 0>(w + c * in, in, 0, count, x + i * width, k == 0, y + i * out + c, out,
                           1);
    }
  }
}

// Rows of y at columns `from` to `to`, of x as `arrange` leaves it.
template <class K>
TARGET static void product(const Product& job, const Matrix& m, int64_t from, int64_t to) {
  const auto* w = (const typename K::Weight*)m.weights + from * job.in;
  const auto* x = (const typename K::Input*)job.x;
  switch (job.rows <= ROWS ? job.rows : 0) {
#define CASE(R)                                                     \
  case R:                                                           \
    stream<K, R>(w, job.in, to - from, x, m.y + from, m.out); \
    break;
    CASE(1)
    CASE(2)
#if ROWS > 2
    CASE(3)
    CASE(4)
#endif
#undef CASE
    default:
      tiles<K>(job, m, from, to);
  }
  if (m.scale)
    for (int64_t r = 0; r < job.rows; ++r)
      for (int64_t c = from; c < to; ++c) m.y[r * m.out + c] *= job.units[r] * m.scale[c];
}

// A row of x as `product` reads it.
template <class K>
TARGET static void arrange(const Product& job, int64_t row, const float* x) {
  const float unit = job.units[row] = K::unit(x, job.in);
  for (int64_t k = 0; k < job.in; k += BLOCK) {
    const int64_t count = least(BLOCK, job.in - k), width = round_up(count, K::STEP);
    K::prepare(x + k, count, unit, (typename K::Input*)job.x + k * job.rows + row * width);
  }
}
