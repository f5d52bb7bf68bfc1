// What all instruction sets have in common: sizes, and what the loops are given.

constexpr int64_t COLUMNS = 4;      // weight rows read side by side
constexpr int64_t BLOCK = 1024;     // weights of each at a time: x stays in the fastest cache
constexpr int64_t DISTANCE = 3072;  // bytes ahead that a stream is fetched
constexpr int64_t MOST_ROWS = 16;   // of x at a time
constexpr int64_t PIECE = 32;       // cached positions at a time: their values stay there, too
constexpr int64_t SEGMENT = 1024;   // cached positions that are one thread's work
constexpr int64_t ALONE = 1 << 17;  // reading fewer bytes is not worth waking another thread for
constexpr int64_t MOST_LANES = 16;
constexpr int64_t MOST_STEP = 64;   // weights of a register, at most
constexpr int64_t TOP_GROUP = 32;   // numbers of which the largest is found first
constexpr int64_t LINE = 64;        // bytes that are read from memory at once
constexpr int64_t LARGEST = (1 << 14) - 1;  // whole number that a row of x is counted to
constexpr int ONCE = 0, AGAIN = 3;  // whether what is fetched stays in the caches
constexpr float LOWEST = -FLT_MAX;  // no score is below it but minus infinity
constexpr float ROUNDS = 3 << 22;   // floats near it are whole numbers, in the order of their bits

static_assert(BLOCK * LARGEST * 128 < int64_t{1} << 31, "sums hold in 32 bits");

typedef float Four __attribute__((vector_size(16)));

template <class T, int N>
struct Vector {
  typedef T Type __attribute__((vector_size(sizeof(T) * N)));
};

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define MIX(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#endif
#endif
#ifndef MIX
typedef int32_t Places __attribute__((vector_size(16)));
#define MIX(a, b, ...) __builtin_shuffle(a, b, Places{__VA_ARGS__})
#endif

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static constexpr int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

static float widen(uint16_t bits) {
  const uint32_t word = uint32_t{bits} << 16;
  float x;
  memcpy(&x, &word, 4);
  return x;
}

// To the nearest bfloat16, of two the even one; a NaN stays one.
static uint16_t narrowed(float x) {
  uint32_t word;
  memcpy(&word, &x, 4);
  if (x != x) return uint16_t(word >> 16 | 0x40);
  return uint16_t((word + 0x7fff + (word >> 16 & 1)) >> 16);
}

// Numbers as their order: a larger one first, and zeros alike; a NaN has any.
static uint32_t descending(float x) {
  uint32_t word;
  memcpy(&word, &x, 4);
  if (word << 1 == 0) word = 0;  // by its bits: XLA's threads take the smallest numbers for zeros
  return word >> 31 ? word : ~word & 0x7fffffff;
}

// One product's matrix, [out, in], and where its [rows, out] go.
struct Matrix {
  const void* weights;
  const float* scale;  // of each of its rows; null where they have none
  int64_t out;
  float* y;
};

struct Product {
  void* x;       // arranged
  float* units;  // what a row of x counts in
  int64_t rows, in;
};

struct Attention {
  int64_t heads, kv_heads, share, head_dim, context;
};

// The loops for one kind of weights.
struct Products {
  void (*arrange)(const Product&, int64_t row, const float* x);
  void (*product)(const Product&, const Matrix&, int64_t from, int64_t to);
};

// One instruction set's loops.
struct Kernels {
  Products bfloat16, int8;
  void (*attend_bits)(const Attention&, const float* q, const uint16_t* keys,
                      const uint16_t* values, const uint16_t* following, int64_t n, float* out);
  void (*attend_floats)(const Attention&, const float* q, const float* keys, const float* values,
                        const float* following, int64_t n, float* out);
  void (*norm)(const float* x, int64_t n, const uint16_t* weight, float eps, float* to);
  void (*rotate)(float* x, int64_t half, const float* cos, const float* sin);
  void (*gate)(float* x, const float* up, int64_t n);
  void (*narrow)(const float* x, int64_t n, uint16_t* to);
  void (*top)(const float* x, int64_t n, int64_t count, float* values, int32_t* places,
              uint64_t* room);
};
