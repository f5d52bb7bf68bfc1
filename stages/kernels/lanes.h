// The inner loops for one instruction set. Included once for each, between definitions of
//   NAME    its namespace
//   TARGET  the attribute that lets a function use it: each function bears it itself, for neither
//           templates nor lambdas inherit it
//   LANES   floats in a register
//   ROWS    rows of a product computed at once: their sums by COLUMNS must fit in the registers
//   DOT     1 where one instruction multiplies and adds pairs of bfloat16
// and where the compiler needs telling which instruction
//   WIDEN       loads 16-bit words as 32-bit ones
//   WIDEN8      loads int8 as int16
//   MULTIPLIED  adds the products of int16, a pair at a time, to int32
// Registers are the compiler's own vector types, so hardly anything here names an instruction.

#define FAST TARGET static inline __attribute__((always_inline))
#define FLAT _Pragma("GCC unroll 16")

namespace NAME {

typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef uint32_t Words __attribute__((vector_size(4 * LANES)));
typedef uint16_t Halves __attribute__((vector_size(2 * LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * LANES)));
typedef int16_t Shorts __attribute__((vector_size(4 * LANES)));
typedef int16_t HalfShorts __attribute__((vector_size(2 * LANES)));
typedef int8_t Bytes __attribute__((vector_size(2 * LANES)));

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

// Has memory fetched that will be read. There need be none at that address.
template <int HOW>
FAST void fetch(uintptr_t address) {
  __builtin_prefetch((const void*)address, 0, HOW);
}

// What is left of a row shorter than a register, and zeros.
template <class T>
FAST Floats load_rest(const T* p, int64_t count) {
  T padded[LANES] = {};
  memcpy(padded, p, count * sizeof(T));
  return load(padded);
}

template <class T>
FAST Floats load_some(const T* p, int64_t left) {
  return left < LANES ? load_rest(p, left) : load(p);
}

FAST void store(float* p, const Floats& v) { memcpy(p, &v, sizeof v); }

FAST void store_some(float* p, const Floats& v, int64_t left) {
  memcpy(p, &v, 4 * (left < LANES ? left : LANES));
}

// The int8 at p, as int16.
FAST Shorts widened(const int8_t* p) {
#ifdef WIDEN8
  return (Shorts)WIDEN8;
#else
  Bytes v;
  memcpy(&v, p, sizeof v);
  return __builtin_convertvector(v, Shorts);
#endif
}

FAST Ints multiplied(const Ints& sum, const Shorts& a, const Shorts& b) {
#ifdef MULTIPLIED
  return (Ints)MULTIPLIED;
#else
  const Ints x = (Ints)a, y = (Ints)b;  // two to a word
  const Ints lower = ((Ints)((Words)x << 16) >> 16) * ((Ints)((Words)y << 16) >> 16);
  return sum + lower + (x >> 16) * (y >> 16);
#endif
}

// Halves added until four lanes are left.
template <class T, int N>
FAST typename Vector<T, 4>::Type fold(const typename Vector<T, N>::Type& v) {
  if constexpr (N == 4) {
    return v;
  } else {
    typename Vector<T, N / 2>::Type half[2];
    memcpy(half, &v, sizeof v);
    return fold<T, N / 2>(half[0] + half[1]);
  }
}

// The sum of the lanes of each of four.
template <class V>
FAST V across(const V& p, const V& q, const V& r, const V& s) {
  const V pq = MIX(p, q, 0, 4, 1, 5) + MIX(p, q, 2, 6, 3, 7);
  const V rs = MIX(r, s, 0, 4, 1, 5) + MIX(r, s, 2, 6, 3, 7);
  return MIX(pq, rs, 0, 1, 4, 5) + MIX(pq, rs, 2, 3, 6, 7);
}

// The sum of each of four registers.
FAST Four sums(const Floats& a, const Floats& b, const Floats& c, const Floats& d) {
  return across(fold<float, LANES>(a), fold<float, LANES>(b), fold<float, LANES>(c),
                fold<float, LANES>(d));
}

// The same of whole numbers, rounded once; they add up to no more than LARGEST allows.
FAST Four sums(const Ints& a, const Ints& b, const Ints& c, const Ints& d) {
  const auto whole = across(fold<int32_t, LANES>(a), fold<int32_t, LANES>(b),
                            fold<int32_t, LANES>(c), fold<int32_t, LANES>(d));
  return __builtin_convertvector(whole, Four);
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
  const Floats least = Floats{} - 87.f;
  x = x < least ? least : x;  // and not the other way round: a NaN stays one
  const Floats shifted = x * 1.44269504f + ROUNDS, n = shifted - ROUNDS;
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

#include "rows.h"

#include "products.h"

#include "attention.h"

#include "top.h"

constexpr Kernels KERNELS = {{arrange<Bfloat16>, product<Bfloat16>},
                             {arrange<Int8>, product<Int8>},
                             attend_all<uint16_t>,
                             attend_all<float>,
                             norm,
                             rotate,
                             gate,
                             narrow,
                             top};

}  // namespace NAME

#undef FAST
#undef FLAT
#undef NAME
#undef TARGET
#undef LANES
#undef ROWS
#undef DOT
#undef WIDEN
#undef WIDEN8
#undef MULTIPLIED
