// What one call computes, on any instruction set: products, attention, and a whole block.

// Memory for one call.
using Room = std::unique_ptr<float[]>;

static Room room(int64_t floats) { return Room(new float[floats]); }

// Rows of x that products read, each to be arranged by `products.arrange`.
struct Given : Product {
  Given(int64_t rows, int64_t in)
      : Product{nullptr, nullptr, rows, in},
        memory_(room(round_up(rows, LINE / 4) + rows * round_up(in, MOST_STEP) + LINE / 4)) {
    units = (float*)round_up((int64_t)memory_.get(), LINE);
    x = units + round_up(rows, LINE / 4);
  }

 private:
  Room memory_;
};

// x by each of the matrices.
template <class Matrices>
static void multiply(Team& team, const Products& products, const Product& x,
                     const Matrices& matrices) {
  int64_t columns = 0;
  for (const Matrix& m : matrices) columns += round_up(m.out, COLUMNS);
  team.share(columns, 2 * COLUMNS, [&](int64_t from, int64_t to) {
    int64_t first = 0;  // of a matrix, among the columns of all
    for (const Matrix& m : matrices) {
      const int64_t begin = std::max(from - first, int64_t{0}), end = least(to - first, m.out);
      if (begin < end) products.product(x, m, begin, end);
      first += round_up(m.out, COLUMNS);
    }
  });
}

// ---- Attention ----

// A row's cache, and the position of its new token.
struct Row {
  void *keys, *values;
  int64_t position;
};

// A part of the cached positions of one row and KV head.
struct Part {
  int64_t row, head, from, count;
};

static void put(const Kernels& kernels, const float* x, int64_t n, uint16_t* to) {
  kernels.narrow(x, n, to);
}

static void put(const Kernels&, const float* x, int64_t n, float* to) { memcpy(to, x, 4 * n); }

// What a cache makes of a value.
static float as_kept(float x, uint16_t) { return widen(narrowed(x)); }

static float as_kept(float x, float) { return x; }

// Divides what the parts of a row and KV head found by the weights' sum: [share, head_dim].
static void merge(const Attention& job, const float* found, int64_t parts, float* y) {
  const int64_t dim = job.head_dim, width = round_up(dim, MOST_LANES), stride = width + 2;
  for (int64_t g = 0; g < job.share; ++g, y += dim) {
    const auto part = [&](int64_t i) { return found + (i * job.share + g) * stride; };
    float top = LOWEST, total = 0;
    for (int64_t i = 0; i < parts; ++i) top = std::max(top, part(i)[width]);
    if (top == LOWEST) total = NAN;  // no score is a number above minus infinity
    std::fill(y, y + dim, 0.f);
    for (int64_t i = 0; i < parts; ++i) {
      const float weight = std::exp(part(i)[width] - top);
      total += weight * part(i)[width + 1];
      for (int64_t d = 0; d < dim; ++d) y[d] += weight * part(i)[d];
    }
    for (int64_t d = 0; d < dim; ++d) y[d] /= total;
  }
}

// T is what a cache holds: floats, or the bits of bfloat16. `before(row)` makes a row's q, k and v,
// `after(row)` takes its y.
template <class T, class Before, class After>
static void attend_rows(Team& team, const Kernels& kernels, const Attention& job,
                        const std::vector<Row>& rows, const float* q, const float* k,
                        const float* v, float* y, const Before& before, const After& after) {
  const int64_t dim = job.head_dim, width = round_up(dim, MOST_LANES), stride = width + 2;
  const int64_t count = rows.size(), own = job.kv_heads * dim;  // floats of a row's k
  std::vector<Part> parts;
  std::vector<int64_t> first;  // part of each row
  for (int64_t row = 0; row < count; ++row) {
    first.push_back(parts.size());
    for (int64_t h = 0; h < job.kv_heads; ++h)
      for (int64_t at = rows[row].position, from = 0; from <= at; from += SEGMENT)
        parts.push_back({row, h, from, least(SEGMENT, at + 1 - from)});
  }
  first.push_back(parts.size());

  const float scale = 1 / std::sqrt(float(dim));
  const Room queries = room(count * job.heads * width);
  team.each(count, [&](int64_t row) {
    before(row);
    const int64_t at = rows[row].position;
    for (int64_t h = 0; at >= 0 && h < job.kv_heads; ++h) {
      const int64_t place = (h * job.context + at) * dim;
      put(kernels, k + row * own + h * dim, dim, (T*)rows[row].keys + place);
      put(kernels, v + row * own + h * dim, dim, (T*)rows[row].values + place);
    }
    const float* from = q + row * job.heads * dim;
    float* to = queries.get() + row * job.heads * width;
    for (int64_t i = 0; i < job.heads; ++i, from += dim, to += width) {
      for (int64_t d = 0; d < dim; ++d) to[d] = from[d] * scale;
      std::fill(to + dim, to + width, 0.f);
    }
  });

  const Room found = room(parts.size() * job.share * stride);
  const auto keys_of = [&](const Part& p) {
    return (const T*)rows[p.row].keys + (p.head * job.context + p.from) * dim;
  };
  team.share(parts.size(), 1, [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) {
      const Part& p = parts[i];
      const T *keys = keys_of(p), *following = keys_of(parts[i + 1 < to ? i + 1 : i]);
      const T* values = (const T*)rows[p.row].values + (keys - (const T*)rows[p.row].keys);
      const float* mine = queries.get() + (p.row * job.heads + p.head * job.share) * width;
      float* out = found.get() + i * job.share * stride;
      if constexpr (sizeof(T) == 2)
        kernels.attend_bits(job, mine, keys, values, following, p.count, out);
      else
        kernels.attend_floats(job, mine, keys, values, following, p.count, out);
    }
  });

  team.each(count, [&](int64_t row) {
    float* to = y + row * job.heads * dim;
    const int64_t of_head = (first[row + 1] - first[row]) / job.kv_heads;
    for (int64_t h = 0; h < job.kv_heads; ++h)
      for (int64_t g = 0; g < job.share && !of_head; ++g, to += dim)  // it sees itself alone
        for (int64_t d = 0; d < dim; ++d) to[d] = as_kept(v[row * own + h * dim + d], T());
    for (int64_t h = 0; h < job.kv_heads && of_head; ++h, to += job.share * dim)
      merge(job, found.get() + (first[row] + h * of_head) * job.share * stride, of_head, to);
    after(row);
  });
}

// ---- A block ----

// Weights of one of Qwen3's transformer blocks: matrices [out, in], norms bfloat16.
struct Block {
  int64_t hidden, ffn;
  Attention attention;
  float eps;
  const Products* products;
  const uint16_t *input_norm, *q_norm, *k_norm, *post_norm;
  Matrix q, k, v, o, gate, up, down;
};

// One token of each row: x [rows, hidden] -> the same, bits of bfloat16; cosines and sines are
// [rows, head_dim / 2]. The residual stream is float32 within the block.
static void run_block(Team& team, const Kernels& kernels, const Block& block,
                      const std::vector<Row>& rows, const uint16_t* x, const float* cos,
                      const float* sin, uint16_t* y) {
  const Products& products = *block.products;
  const Attention& job = block.attention;
  const int64_t count = rows.size(), hidden = block.hidden, ffn = block.ffn, dim = job.head_dim;
  const int64_t heads = job.heads * dim, kv_heads = job.kv_heads * dim;
  const Room stream = room(count * hidden), added = room(count * hidden);
  const Room q = room(count * heads), k = room(count * kv_heads), v = room(count * kv_heads);
  const Room mixed = room(count * heads), gate = room(count * ffn), up = room(count * ffn);
  const Given input(count, hidden), heard(count, heads), middle(count, hidden), wide(count, ffn);

  const auto multiplied = [&](const Given& given, std::initializer_list<Matrix> matrices) {
    multiply(team, products, given, matrices);
  };
  const auto into = [](Matrix matrix, const Room& to) {
    matrix.y = to.get();
    return matrix;
  };
  // `added` is no longer needed when a norm of the sum takes its place.
  const auto normed = [&](int64_t row, const uint16_t* weight, const Given& to) {
    float* h = added.get() + row * hidden;
    kernels.norm(stream.get() + row * hidden, hidden, weight, block.eps, h);
    products.arrange(to, row, h);
  };
  const auto add = [&](int64_t row) {
    float* sum = stream.get() + row * hidden;
    const float* more = added.get() + row * hidden;
    for (int64_t i = 0; i < hidden; ++i) sum[i] += more[i];
  };

  team.each(count, [&](int64_t row) {
    for (int64_t i = row * hidden; i < (row + 1) * hidden; ++i) stream[i] = widen(x[i]);
    normed(row, block.input_norm, input);
  });
  multiplied(input, {into(block.q, q), into(block.k, k), into(block.v, v)});
  attend_rows<uint16_t>(
      team, kernels, job, rows, q.get(), k.get(), v.get(), mixed.get(),
      [&](int64_t row) {
        const auto turn = [&](float* head, const uint16_t* weight) {
          kernels.norm(head, dim, weight, block.eps, head);
          kernels.rotate(head, dim / 2, cos + row * dim / 2, sin + row * dim / 2);
        };
        for (int64_t i = 0; i < heads; i += dim) turn(q.get() + row * heads + i, block.q_norm);
        for (int64_t i = 0; i < kv_heads; i += dim)
          turn(k.get() + row * kv_heads + i, block.k_norm);
      },
      [&](int64_t row) { products.arrange(heard, row, mixed.get() + row * heads); });
  multiplied(heard, {into(block.o, added)});
  team.each(count, [&](int64_t row) {
    add(row);
    normed(row, block.post_norm, middle);
  });
  multiplied(middle, {into(block.gate, gate), into(block.up, up)});
  team.each(count, [&](int64_t row) {
    kernels.gate(gate.get() + row * ffn, up.get() + row * ffn, ffn);
    products.arrange(wide, row, gate.get() + row * ffn);
  });
  multiplied(wide, {into(block.down, added)});
  team.each(count, [&](int64_t row) {
    add(row);
    kernels.narrow(stream.get() + row * hidden, hidden, y + row * hidden);
  });
}
