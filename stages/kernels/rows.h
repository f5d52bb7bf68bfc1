// What happens to a row between products, for one instruction set: part of `lanes.h`.

TARGET static void narrow(const float* __restrict x, int64_t n, uint16_t* __restrict to) {
  for (int64_t i = 0; i < n; ++i) to[i] = narrowed(x[i]);
}

// x / sqrt(the mean of its squares + eps) * weight; `to` may be x.
TARGET static void norm(const float* x, int64_t n, const uint16_t* weight, float eps, float* to) {
  Floats squares = {};
  for (int64_t i = 0; i < n; i += LANES) {
    const Floats v = load_some(x + i, n - i);
    squares += v * v;
  }
  const float scale = 1 / std::sqrt(sum(squares) / float(n) + eps);
  for (int64_t i = 0; i < n; i += LANES) {
    const Floats v = load_some(x + i, n - i) * scale * load_some(weight + i, n - i);
    store_some(to + i, v, n - i);
  }
}

// Rotary embedding: turns pairs of x, those of its two halves.
TARGET static void rotate(float* x, int64_t half, const float* cos, const float* sin) {
  for (int64_t i = 0; i < half; i += LANES) {
    const int64_t left = half - i;
    const Floats c = load_some(cos + i, left), s = load_some(sin + i, left);
    const Floats a = load_some(x + i, left), b = load_some(x + half + i, left);
    store_some(x + i, a * c - b * s, left);
    store_some(x + half + i, b * c + a * s, left);
  }
}

// x = silu(x) * up.
TARGET static void gate(float* x, const float* up, int64_t n) {
  for (int64_t i = 0; i < n; i += LANES) {
    const Floats v = load_some(x + i, n - i), e = exponential(v < 0 ? v : -v);
    const Floats y = v * ((v < 0 ? e : Floats{} + 1) / (1 + e)) * load_some(up + i, n - i);
    store_some(x + i, y, n - i);
  }
}
