// Decoding on a CPU: products of few rows with bfloat16 or int8 weights, and attention of one new
// token a row over its KV cache, as calls that XLA makes.
//
// Both read memory once and in order, on the threads of XLA's own pool. No result depends on how
// the work falls to the threads, nor a row's on the rows beside it or their number.

#include <algorithm>
#include <atomic>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "xla/ffi/api/ffi.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ffi = xla::ffi;

constexpr int64_t COLUMNS = 4;      // weight rows read side by side
constexpr int64_t BLOCK = 1024;     // weights of each at a time: x stays in the fastest cache
constexpr int64_t DISTANCE = 4096;  // bytes ahead that a stream is fetched where that pays
constexpr int64_t MOST_ROWS = 16;   // of x at a time
constexpr int64_t PIECE = 32;       // cached positions at a time: their values stay there, too
constexpr int64_t SEGMENT = 1024;   // cached positions that are one thread's work
constexpr int64_t ALONE = 1 << 17;  // reading fewer bytes is not worth waking another thread for
constexpr int64_t MOST_LANES = 16;
constexpr int64_t LINE = 64;        // bytes that are read from memory at once
constexpr int64_t LARGEST = (1 << 14) - 1;  // whole number that a row of x is counted to
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
static uint16_t narrow(float x) {
  uint32_t word;
  memcpy(&word, &x, 4);
  if (x != x) return uint16_t(word >> 16 | 0x40);
  return uint16_t((word + 0x7fff + (word >> 16 & 1)) >> 16);
}

// One product's matrix, [out, in], and where its [rows, out] go.
struct Matrix {
  const void* weights;
  const float* scale;  // of each of its rows; null where they have none
  float* y;
  int64_t out;
};

struct Product {
  const void* x;       // arranged
  const float* units;  // what a row of x counts in
  int64_t rows, in;
};

struct Attention {
  int64_t heads, kv_heads, share, head_dim, context;
};

// The loops for one kind of weights.
struct Products {
  void (*product)(const Product&, const Matrix&, int64_t from, int64_t to);
  Product (*arrange)(const void* x, int64_t rows, int64_t in, std::vector<float>& room);
};

// One instruction set's loops.
struct Kernels {
  Products bfloat16, int8;
  void (*attend_bits)(const Attention&, const float* q, const uint16_t* keys,
                      const uint16_t* values, int64_t n, float* out);
  void (*attend_floats)(const Attention&, const float* q, const float* keys, const float* values,
                        int64_t n, float* out);
};

#if defined(__x86_64__)

#if defined(__clang__)
#define WIDE  // it does not know the word, and takes whole registers
#else
#define WIDE ",prefer-vector-width=512"
#endif

#if __has_include(<avx512bf16intrin.h>)
#define NAME avx512_bf16
#define TARGET \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16,fma" WIDE)))
#define LANES 16
#define ROWS 4
#define DOT 1
#define WIDEN _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p))
#define WIDEN8 _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i*)p))
#define MULTIPLIED _mm512_dpwssd_epi32((__m512i)sum, (__m512i)a, (__m512i)b)
#include "lanes.h"
#define HAS_BF16 1
#endif

#define NAME avx512
#define WIDEN _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p))
#define WIDEN8 _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i*)p))
#define MULTIPLIED sum + (Ints)_mm512_madd_epi16((__m512i)a, (__m512i)b)
#define TARGET \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma" WIDE)))
#define LANES 16
#define ROWS 4
#define DOT 0
#include "lanes.h"

#define NAME avx2
#define WIDEN _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)p))
#define WIDEN8 _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i*)p))
#define MULTIPLIED sum + (Ints)_mm256_madd_epi16((__m256i)a, (__m256i)b)
#define TARGET __attribute__((target("avx2,fma")))
#define LANES 8
#define ROWS 2
#define DOT 0
#include "lanes.h"

#endif

#define NAME plain  // what every CPU of the architecture has: NEON, SSE2
#define TARGET
#define LANES 4
#define ROWS 2
#define DOT 0
#include "lanes.h"

// The instruction sets in order of preference, as Python knows them: see `supported`.
static const Kernels* const SETS[] = {
#ifdef HAS_BF16
    &avx512_bf16::KERNELS,
#else
    nullptr,
#endif
#if defined(__x86_64__)
    &avx512::KERNELS, &avx2::KERNELS,
#else
    nullptr, nullptr,
#endif
    &plain::KERNELS,
};

// Bit i says whether this CPU can run SETS[i].
extern "C" uint32_t kafila_supported() {
  uint32_t found = 1 << 3;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) found |= 1 << 2;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    found |= 1 << 1;
#ifdef HAS_BF16
    if (__builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni")) found |= 1;
#endif
  }
#endif
  return found;
}

// Calls work(from, to) until all items are done, on this thread and others of the pool. Whoever is
// free takes half of its share of what is left, at least `unit`, which what it takes divides by.
template <class Work>
static void share(ffi::ThreadPool& pool, int64_t items, int64_t unit, bool alone,
                  const Work& work) {
  const int64_t threads = alone ? 1 : least(pool.num_threads(), (items + unit - 1) / unit);
  if (threads < 2) return work(0, items);
  struct State {
    std::atomic<int64_t> next{0}, done{0};
  };
  const auto state = std::make_shared<State>();  // a helper may come when all is over
  auto help = [state, items, unit, threads, &work] {
    int64_t from = state->next.load(std::memory_order_relaxed);
    while (from < items) {
      const int64_t part = std::max(unit, (items - from) / (2 * threads) / unit * unit);
      const int64_t to = least(items, from + part);
      if (!state->next.compare_exchange_weak(from, to, std::memory_order_relaxed)) continue;
      work(from, to);
      state->done.fetch_add(to - from, std::memory_order_release);
      from = state->next.load(std::memory_order_relaxed);
    }
  };
  using Helper = decltype(help);
  for (int64_t i = 1; i < threads; ++i) pool.Schedule(Helper(help));
  help();
  for (int spins = 0; state->done.load(std::memory_order_acquire) < items; ++spins) {
    if (spins > 4096) std::this_thread::yield();
  }
}

static ffi::Error refuse(const char* why) { return ffi::Error::InvalidArgument(why); }

// x as `products` arranges it by all matrices, of which a weight has so many bytes.
static void multiply(ffi::ThreadPool& pool, const Products& products, const void* x, int64_t rows,
                     int64_t in, const std::vector<Matrix>& matrices, int64_t bytes) {
  static thread_local std::vector<float> room;
  const Product job = products.arrange(x, rows, in, room);
  int64_t columns = 0;
  for (const Matrix& m : matrices) columns += round_up(m.out, COLUMNS);
  share(pool, columns, 2 * COLUMNS, bytes * columns * in < ALONE, [&](int64_t from, int64_t to) {
    int64_t first = 0;  // of a matrix, among the columns of all
    for (const Matrix& m : matrices) {
      const int64_t begin = std::max(from - first, int64_t{0}), end = least(to - first, m.out);
      if (begin < end) products.product(job, m, begin, end);
      first += round_up(m.out, COLUMNS);
    }
  });
}

template <class Buffer>
static bool shaped(const Buffer& buffer, std::initializer_list<int64_t> dims) {
  const auto found = buffer.dimensions();
  return std::equal(found.begin(), found.end(), dims.begin(), dims.end());
}

// x [rows, in] by each of the weights [out, in] -> [rows, out] each.
static ffi::Error products(ffi::ThreadPool pool, int32_t set, ffi::Buffer<ffi::BF16> x,
                           ffi::RemainingArgs weights, ffi::RemainingRets ys) {
  if (x.dimensions().size() != 2 || weights.size() != ys.size())
    return refuse("shapes of a product");
  const int64_t rows = x.dimensions()[0], in = x.dimensions()[1];
  std::vector<Matrix> matrices;
  for (size_t i = 0; i < weights.size(); ++i) {
    auto w = weights.get<ffi::Buffer<ffi::BF16>>(i);
    auto y = ys.get<ffi::Buffer<ffi::F32>>(i);
    if (!w || !y || w->dimensions().size() != 2) return refuse("shapes of a product");
    const int64_t out = w->dimensions()[0];
    if (in < 1 || !shaped(*w, {out, in}) || !shaped(**y, {rows, out}))
      return refuse("shapes of a product");
    matrices.push_back({w->untyped_data(), nullptr, (*y)->typed_data(), out});
  }
  multiply(pool, SETS[set]->bfloat16, x.untyped_data(), rows, in, matrices, 2);
  return ffi::Error::Success();
}

// The same with int8 weights, each followed by the scale [out] of its rows.
static ffi::Error int8_products(ffi::ThreadPool pool, int32_t set, ffi::Buffer<ffi::F32> x,
                                ffi::RemainingArgs weights, ffi::RemainingRets ys) {
  if (x.dimensions().size() != 2 || weights.size() != 2 * ys.size())
    return refuse("shapes of a product");
  const int64_t rows = x.dimensions()[0], in = x.dimensions()[1];
  std::vector<Matrix> matrices;
  for (size_t i = 0; i < ys.size(); ++i) {
    auto w = weights.get<ffi::Buffer<ffi::S8>>(2 * i);
    auto scale = weights.get<ffi::Buffer<ffi::F32>>(2 * i + 1);
    auto y = ys.get<ffi::Buffer<ffi::F32>>(i);
    if (!w || !scale || !y || w->dimensions().size() != 2) return refuse("shapes of a product");
    const int64_t out = w->dimensions()[0];
    if (in < 1 || !shaped(*w, {out, in}) || !shaped(*scale, {out}) || !shaped(**y, {rows, out}))
      return refuse("shapes of a product");
    matrices.push_back({w->untyped_data(), scale->typed_data(), (*y)->typed_data(), out});
  }
  multiply(pool, SETS[set]->int8, x.untyped_data(), rows, in, matrices, 1);
  return ffi::Error::Success();
}

#define PRODUCTS(NAME, WITH, X)                             \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(NAME, WITH,                 \
                                ffi::Ffi::Bind()            \
                                    .Ctx<ffi::ThreadPool>() \
                                    .Attr<int32_t>("set")   \
                                    .Arg<ffi::Buffer<X>>()  \
                                    .RemainingArgs()        \
                                    .RemainingRets())

PRODUCTS(kafila_products, products, ffi::BF16);
PRODUCTS(kafila_int8_products, int8_products, ffi::F32);

struct Row {
  void *keys, *values;
  int64_t position;
};

static void put(float from, uint16_t& to) { to = narrow(from); }
static void put(float from, float& to) { to = from; }
static float get(uint16_t bits) { return widen(bits); }
static float get(float x) { return x; }

// A part of the positions of one row and KV head.
struct Part {
  int64_t row, head, from, count;
};

// T is what a cache holds: floats, or the bits of bfloat16.
template <class T>
static void attend_rows(ffi::ThreadPool& pool, const Kernels& kernels, const Attention& job,
                        const std::vector<Row>& rows, const float* q, const float* k,
                        const float* v, float* y) {
  const int64_t dim = job.head_dim, width = round_up(dim, MOST_LANES), stride = width + 2;
  std::vector<Part> parts;
  int64_t bytes = 0;
  for (int64_t row = 0; row < int64_t(rows.size()); ++row) {
    const int64_t at = rows[row].position;
    for (int64_t h = 0; h < job.kv_heads; ++h) {
      const float *key = k + (row * job.kv_heads + h) * dim, *value = v + (key - k);
      if (at < 0) {
        for (int64_t i = 0; i < job.share * dim; ++i) {
          T alone;
          put(value[i % dim], alone);
          y[(row * job.kv_heads + h) * job.share * dim + i] = get(alone);
        }
        continue;
      }
      T* keys = (T*)rows[row].keys + (h * job.context + at) * dim;
      T* values = (T*)rows[row].values + (h * job.context + at) * dim;
      for (int64_t d = 0; d < dim; ++d) put(key[d], keys[d]), put(value[d], values[d]);
      for (int64_t from = 0; from <= at; from += SEGMENT)
        parts.push_back({row, h, from, least(SEGMENT, at + 1 - from)});
      bytes += 2 * (at + 1) * dim * int64_t(sizeof(T));
    }
  }

  const float scale = 1 / std::sqrt(float(dim));
  std::vector<float> queries(rows.size() * job.heads * width);
  for (size_t i = 0; i < rows.size() * job.heads; ++i)
    for (int64_t d = 0; d < dim; ++d) queries[i * width + d] = q[i * dim + d] * scale;

  std::vector<float> found(parts.size() * job.share * stride);
  share(pool, parts.size(), 1, bytes < ALONE, [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) {
      const Part& p = parts[i];
      const int64_t start = (p.head * job.context + p.from) * dim;
      const float* mine = queries.data() + (p.row * job.heads + p.head * job.share) * width;
      const T* keys = (const T*)rows[p.row].keys + start;
      const T* values = (const T*)rows[p.row].values + start;
      float* out = found.data() + i * job.share * stride;
      if constexpr (sizeof(T) == 2)
        kernels.attend_bits(job, mine, keys, values, p.count, out);
      else
        kernels.attend_floats(job, mine, keys, values, p.count, out);
    }
  });

  for (size_t i = 0, next; i < parts.size(); i = next) {
    for (next = i + 1; next < parts.size() && parts[next].from > 0;) ++next;
    for (int64_t g = 0; g < job.share; ++g) {
      const auto part = [&](size_t j) { return found.data() + (j * job.share + g) * stride; };
      float top = LOWEST, total = 0;
      for (size_t j = i; j < next; ++j) top = std::max(top, part(j)[width]);
      if (top == LOWEST) total = NAN;  // no score is a number above minus infinity
      float* to = y + ((parts[i].row * job.kv_heads + parts[i].head) * job.share + g) * dim;
      std::fill(to, to + dim, 0.f);
      for (size_t j = i; j < next; ++j) {
        const float weight = std::exp(part(j)[width] - top);
        total += weight * part(j)[width + 1];
        for (int64_t d = 0; d < dim; ++d) to[d] += weight * part(j)[d];
      }
      for (int64_t d = 0; d < dim; ++d) to[d] /= total;
    }
  }
}

// One new token a row, at `positions`: its keys and values go into the row's cache, and it attends
// to all positions up to its own. A row of negative position sees only itself and leaves its cache
// as it is. Further arguments and results: keys and values [kv_heads, context, head_dim] of each
// row, which share their memory.
static ffi::Error attention(ffi::ThreadPool pool, int32_t set, ffi::Buffer<ffi::F32> q,
                            ffi::Buffer<ffi::F32> k, ffi::Buffer<ffi::F32> v,
                            ffi::Buffer<ffi::S32> positions, ffi::RemainingArgs given,
                            ffi::Result<ffi::Buffer<ffi::F32>> y, ffi::RemainingRets caches) {
  const int64_t count = positions.element_count();
  if (q.dimensions().size() != 3 || k.dimensions().size() != 3)
    return refuse("shapes of attention");
  const int64_t heads = q.dimensions()[1], kv_heads = k.dimensions()[1], dim = q.dimensions()[2];
  if (kv_heads < 1 || heads % kv_heads || dim < 1 || !shaped(positions, {count}) ||
      !shaped(q, {count, heads, dim}) || !shaped(k, {count, kv_heads, dim}) ||
      !shaped(v, {count, kv_heads, dim}) || !shaped(*y, {count, heads, dim}))
    return refuse("shapes of attention");
  if (given.size() != size_t(2 * count) || caches.size() != given.size())
    return refuse("caches of attention");
  Attention job{heads, kv_heads, heads / kv_heads, dim, 0};
  ffi::DataType kind = ffi::F32;
  std::vector<Row> rows;
  std::vector<void*> places;
  for (size_t i = 0; i < caches.size(); ++i) {
    auto before = given.get<ffi::AnyBuffer>(i);
    auto cache = caches.get<ffi::AnyBuffer>(i);
    if (!before || !cache || (*cache)->dimensions().size() != 3)
      return refuse("caches of attention");
    if (i == 0) {
      kind = (*cache)->element_type();
      job.context = (*cache)->dimensions()[1];
      if (kind != ffi::U16 && kind != ffi::F32) return refuse("caches of attention");
    }
    if ((*cache)->element_type() != kind || !shaped(**cache, {kv_heads, job.context, dim}) ||
        (*cache)->untyped_data() != before->untyped_data())
      return refuse("caches of attention");
    places.push_back((*cache)->untyped_data());
  }
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = positions.typed_data()[i];
    if (at >= job.context) return refuse("a position beyond the cache");
    rows.push_back({places[2 * i], places[2 * i + 1], at});
  }
  const auto run = kind == ffi::U16 ? attend_rows<uint16_t> : attend_rows<float>;
  run(pool, *SETS[set], job, rows, q.typed_data(), k.typed_data(), v.typed_data(), y->typed_data());
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(kafila_attention, attention,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Attr<int32_t>("set")
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::S32>>()
                                  .RemainingArgs()
                                  .Ret<ffi::Buffer<ffi::F32>>()
                                  .RemainingRets());
