// Decoding on a CPU: products with bfloat16 or int8 weights, attention of one new token a row over
// its KV cache, a whole transformer block of both, and the likeliest tokens, as calls that XLA
// makes.
//
// All read memory once, on the threads of XLA's own pool. No result depends on how the work falls
// to the threads, nor a row's on the rows beside it or their number.

#include <algorithm>
#include <atomic>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "xla/ffi/api/ffi.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ffi = xla::ffi;

#include "common.h"

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

// The instruction sets in order of preference: `stages.kernels.SETS`.
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

#include "team.h"

#include "block.h"

static ffi::Error refuse(const char* why) { return ffi::Error::InvalidArgument(why); }

// XLA, which calls, knows no exceptions.
#define CATCH                                                                        \
  catch (const std::bad_alloc&) {                                                    \
    return ffi::Error(ffi::ErrorCode::kResourceExhausted, "no memory for a kernel"); \
  }

// What `call` returns with the loops of an instruction set; an error where there is none.
template <class Call>
static ffi::Error with(int32_t set, const Call& call) {
  const int32_t sets = sizeof SETS / sizeof *SETS;
  if (set < 0 || set >= sets || !(kafila_supported() >> set & 1))
    return refuse("no such instruction set");
  return call(*SETS[set]);
}

template <class Buffer>
static bool shaped(const Buffer& buffer, std::initializer_list<int64_t> dims) {
  const auto found = buffer.dimensions();
  return std::equal(found.begin(), found.end(), dims.begin(), dims.end());
}

// Weights that are taken one after the other.
struct Weights {
  const ffi::RemainingArgs& given;
  const bool int8 = type(0) == ffi::S8 || type(1) == ffi::S8;  // matrices, each with its scale
  size_t taken = 0;
  int64_t bytes = 0;  // of matrices
  bool wrong = false;

  ffi::DataType type(size_t i) const {
    const auto found = given.get<ffi::AnyBuffer>(i);
    return found ? found->element_type() : ffi::DataType::INVALID;
  }

  // The next, which is to have this type and these dimensions.
  const void* take(ffi::DataType type, std::initializer_list<int64_t> dims) {
    const auto found = given.get<ffi::AnyBuffer>(taken++);
    if (found && found->element_type() == type && shaped(*found, dims))
      return found->untyped_data();
    wrong = true;
    return nullptr;
  }

  const uint16_t* norm(int64_t size) { return (const uint16_t*)take(ffi::BF16, {size}); }

  Matrix matrix(int64_t out, int64_t in) {
    const void* weights = take(int8 ? ffi::S8 : ffi::BF16, {out, in});
    bytes += out * in * (int8 ? 1 : 2);
    return {weights, int8 ? (const float*)take(ffi::F32, {out}) : nullptr, out, nullptr};
  }
};

// x [rows, in] by each of the weights [out, in] -> [rows, out] each. Those of int8 are each
// followed by the scale [out] of their rows.
static ffi::Error call_products(ffi::ThreadPool pool, int32_t set, ffi::Buffer<ffi::F32> x,
                                ffi::RemainingArgs given, ffi::RemainingRets ys) try {
  if (x.dimensions().size() != 2 || x.element_count() < 1) return refuse("shapes of a product");
  const int64_t rows = x.dimensions()[0], in = x.dimensions()[1];
  Weights weights{given};
  std::vector<Matrix> matrices;
  for (size_t i = 0; i < ys.size(); ++i) {
    auto y = ys.get<ffi::Buffer<ffi::F32>>(i);
    if (!y || (*y)->dimensions().size() != 2) return refuse("shapes of a product");
    matrices.push_back(weights.matrix((*y)->dimensions()[1], in));
    matrices.back().y = (*y)->typed_data();
    if (weights.wrong || !shaped(**y, {rows, matrices.back().out}))
      return refuse("shapes of a product");
  }
  if (weights.taken != given.size()) return refuse("shapes of a product");
  return with(set, [&](const Kernels& kernels) {
    const Products& kind = weights.int8 ? kernels.int8 : kernels.bfloat16;
    Team team(pool, weights.bytes < ALONE);
    const Given arranged(rows, in);
    team.each(rows, [&](int64_t row) { kind.arrange(arranged, row, x.typed_data() + row * in); });
    multiply(team, kind, arranged, matrices);
    return ffi::Error::Success();
  });
}
CATCH

XLA_FFI_DEFINE_HANDLER_SYMBOL(kafila_products, call_products,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Attr<int32_t>("set")
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .RemainingArgs()
                                  .RemainingRets());

// The largest of each row of x [rows, n] and their places -> [rows, count] each.
static ffi::Error call_top(ffi::ThreadPool pool, int32_t set, ffi::Buffer<ffi::F32> x,
                           ffi::Result<ffi::Buffer<ffi::F32>> values,
                           ffi::Result<ffi::Buffer<ffi::S32>> places) try {
  if (x.dimensions().size() != 2 || values->dimensions().size() != 2)
    return refuse("shapes of the largest");
  const int64_t rows = x.dimensions()[0], n = x.dimensions()[1], count = values->dimensions()[1];
  if (count < 1 || count > n || n > INT32_MAX || !shaped(*values, {rows, count}) ||
      !shaped(*places, {rows, count}))
    return refuse("shapes of the largest");
  return with(set, [&](const Kernels& kernels) {
    Team team(pool, rows * n * 4 < ALONE);
    const int64_t room = n + n / TOP_GROUP;
    const std::unique_ptr<uint64_t[]> rooms(new uint64_t[rows * room]);
    team.each(rows, [&](int64_t row) {
      kernels.top(x.typed_data() + row * n, n, count, values->typed_data() + row * count,
                  places->typed_data() + row * count, rooms.get() + row * room);
    });
    return ffi::Error::Success();
  });
}
CATCH

XLA_FFI_DEFINE_HANDLER_SYMBOL(kafila_top, call_top,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Attr<int32_t>("set")
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::S32>>());

// Where rows are cached: arguments and results from `first` and 0 on are keys and values
// [kv_heads, context, head_dim] of each row, which share their memory.
struct Caches {
  ffi::DataType kind = ffi::DataType::INVALID;
  int64_t kv_heads = 0, context = 0, head_dim = 0;
  std::vector<Row> rows;
  int64_t bytes = 0;  // to be read

  const char* find(const ffi::RemainingArgs& given, size_t first, const ffi::RemainingRets& rets,
                   const ffi::Buffer<ffi::S32>& positions) {
    const size_t count = positions.element_count();
    if (positions.dimensions().size() != 1 || count < 1 || rets.size() != 2 * count ||
        given.size() != first + rets.size())
      return "caches of attention";
    std::vector<void*> places;
    for (size_t i = 0; i < rets.size(); ++i) {
      const auto before = given.get<ffi::AnyBuffer>(first + i);
      auto cache = rets.get<ffi::AnyBuffer>(i);
      if (!before || !cache || (*cache)->dimensions().size() != 3) return "caches of attention";
      if (i == 0) {
        const auto dims = (*cache)->dimensions();
        kind = (*cache)->element_type(), kv_heads = dims[0], context = dims[1], head_dim = dims[2];
        if ((kind != ffi::U16 && kind != ffi::F32) || (*cache)->element_count() < 1)
          return "caches of attention";
      }
      if ((*cache)->element_type() != kind || !shaped(**cache, {kv_heads, context, head_dim}) ||
          (*cache)->untyped_data() != before->untyped_data())
        return "caches of attention";
      places.push_back((*cache)->untyped_data());
    }
    for (size_t i = 0; i < count; ++i) {
      const int64_t at = positions.typed_data()[i];
      if (at >= context) return "a position beyond the cache";
      rows.push_back({places[2 * i], places[2 * i + 1], at});
      bytes += 2 * (at + 1) * kv_heads * head_dim * (kind == ffi::U16 ? 2 : 4);
    }
    return nullptr;
  }
};

// One new token a row, at `positions`: its keys and values go into the row's cache, and it attends
// to all positions up to its own. A row of negative position sees only itself and leaves its cache
// as it is.
static ffi::Error call_attention(ffi::ThreadPool pool, int32_t set, ffi::Buffer<ffi::F32> q,
                                 ffi::Buffer<ffi::F32> k, ffi::Buffer<ffi::F32> v,
                                 ffi::Buffer<ffi::S32> positions, ffi::RemainingArgs given,
                                 ffi::Result<ffi::Buffer<ffi::F32>> y,
                                 ffi::RemainingRets rets) try {
  Caches caches;
  if (const char* why = caches.find(given, 0, rets, positions)) return refuse(why);
  const int64_t count = caches.rows.size(), kv_heads = caches.kv_heads, dim = caches.head_dim;
  const int64_t heads = q.dimensions().size() == 3 ? q.dimensions()[1] : 0;
  if (heads < 1 || heads % kv_heads || !shaped(q, {count, heads, dim}) ||
      !shaped(k, {count, kv_heads, dim}) || !shaped(v, {count, kv_heads, dim}) ||
      !shaped(*y, {count, heads, dim}))
    return refuse("shapes of attention");
  const Attention job{heads, kv_heads, heads / kv_heads, dim, caches.context};
  return with(set, [&](const Kernels& kernels) {
    Team team(pool, caches.bytes < ALONE);
    const auto nothing = [](int64_t) {};
    const auto run = caches.kind == ffi::U16
                         ? attend_rows<uint16_t, decltype(nothing), decltype(nothing)>
                         : attend_rows<float, decltype(nothing), decltype(nothing)>;
    run(team, kernels, job, caches.rows, q.typed_data(), k.typed_data(), v.typed_data(),
        y->typed_data(), nothing, nothing);
    return ffi::Error::Success();
  });
}
CATCH

XLA_FFI_DEFINE_HANDLER_SYMBOL(kafila_attention, call_attention,
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

// One new token a row through a block: x [rows, hidden], cosines and sines [rows, head_dim / 2] of
// its position. Further arguments: the block's weights in the order below, then the rows' caches.
static ffi::Error call_block(ffi::ThreadPool pool, int32_t set, int32_t heads, int32_t ffn,
                             float eps, ffi::Buffer<ffi::BF16> x, ffi::Buffer<ffi::S32> positions,
                             ffi::Buffer<ffi::F32> cos, ffi::Buffer<ffi::F32> sin,
                             ffi::RemainingArgs given, ffi::Result<ffi::Buffer<ffi::BF16>> y,
                             ffi::RemainingRets rets) try {
  Weights weights{given};
  Caches caches;
  const char* why = caches.find(given, weights.int8 ? 18 : 11, rets, positions);
  if (why) return refuse(why);
  const int64_t count = caches.rows.size(), kv_heads = caches.kv_heads, dim = caches.head_dim;
  const int64_t hidden = x.dimensions().size() == 2 ? x.dimensions()[1] : 0;
  if (hidden < 1 || heads < 1 || ffn < 1 || dim % 2 || heads % kv_heads ||
      caches.kind != ffi::U16 || !shaped(x, {count, hidden}) || !shaped(*y, {count, hidden}) ||
      !shaped(cos, {count, dim / 2}) || !shaped(sin, {count, dim / 2}))
    return refuse("shapes of a block");
  Block b{hidden, ffn, {heads, kv_heads, heads / kv_heads, dim, caches.context}, eps};
  b.input_norm = weights.norm(hidden);
  b.q = weights.matrix(heads * dim, hidden);
  b.k = weights.matrix(kv_heads * dim, hidden);
  b.v = weights.matrix(kv_heads * dim, hidden);
  b.q_norm = weights.norm(dim);
  b.k_norm = weights.norm(dim);
  b.o = weights.matrix(hidden, heads * dim);
  b.post_norm = weights.norm(hidden);
  b.gate = weights.matrix(ffn, hidden);
  b.up = weights.matrix(ffn, hidden);
  b.down = weights.matrix(hidden, ffn);
  if (weights.wrong) return refuse("weights of a block");
  return with(set, [&](const Kernels& kernels) {
    Team team(pool, caches.bytes + weights.bytes < ALONE);
    b.products = weights.int8 ? &kernels.int8 : &kernels.bfloat16;
    run_block(team, kernels, b, caches.rows, (const uint16_t*)x.untyped_data(), cos.typed_data(),
              sin.typed_data(), (uint16_t*)y->untyped_data());
    return ffi::Error::Success();
  });
}
CATCH

XLA_FFI_DEFINE_HANDLER_SYMBOL(kafila_block, call_block,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Attr<int32_t>("set")
                                  .Attr<int32_t>("heads")
                                  .Attr<int32_t>("ffn")
                                  .Attr<float>("eps")
                                  .Arg<ffi::Buffer<ffi::BF16>>()
                                  .Arg<ffi::Buffer<ffi::S32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .RemainingArgs()
                                  .Ret<ffi::Buffer<ffi::BF16>>()
                                  .RemainingRets());
