// Vectors of float32, and the inputs of products: elements (activations) and weights. Both are float32, or both
// bfloat16 with AVX-512's product, or only weights are bfloat16, upcast in registers for float32 products.
//
// One source serves every build; `isa/` holds the code specific to an instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__AVX512F__)
#include "isa/avx512.h"
#elif defined(__AVX2__)
#include "isa/avx2.h"
#elif defined(__aarch64__)
#include "isa/neon.h"
#else
#error "Compile with -mavx2 -mfma, with AVX-512, or for AArch64."
#endif

constexpr int ROWS = 6; // rows of a tile
constexpr int PANEL = LANES * VECTORS;

static inline int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

static inline vec load(const float *from) {
    vec value;
    std::memcpy(&value, from, sizeof value);
    return value;
}
static inline void store(float *to, vec value) { std::memcpy(to, &value, sizeof value); }
static inline vec splat(float value) { return value - vec{}; }
static inline vec larger(vec a, vec b) { return a > b ? a : b; }

// STEP and WEIGHT_STEP neighbours along the inner dimension lie together in panels of elements and of weights.
// WIDENED products take those of weights one after another, `part` by `part`.
#if defined(SIE_BFLOAT16) || defined(SIE_BFLOAT16_WEIGHTS)
typedef uint16_t weight;
constexpr int WEIGHT_STEP = 2;

static inline weight to_weight(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    if ((bits & 0x7fffffff) > 0x7f800000) return (weight)(bits >> 16 | 0x40); // keeps a NaN one
    return (weight)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
#else
typedef float weight;
constexpr int WEIGHT_STEP = 1;

static inline weight to_weight(float value) { return value; }
#endif

#if defined(SIE_BFLOAT16)
typedef uint16_t element;
constexpr int STEP = 2; // one product instruction takes pairs
typedef __m512i operand;

static inline void store(element *to, vec value) {
    __m256bh half = _mm512_cvtneps_pbh((__m512)value);
    std::memcpy(to, &half, sizeof half);
}
static inline vec load(const element *from) {
    return (vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)from)), 16);
}
static inline float to_float(element value) {
    uint32_t bits = (uint32_t)value << 16;
    float result;
    std::memcpy(&result, &bits, 4);
    return result;
}
static inline element to_element(float value) { return to_weight(value); }
static inline operand load_operand(const element *from, int) { return _mm512_loadu_si512(from); }
static inline operand broadcast(const element *from) {
    int32_t pair;
    std::memcpy(&pair, from, 4);
    return _mm512_set1_epi32(pair);
}
static inline vec multiply_add(operand a, operand b, vec sum) {
    return (vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
}
#else
typedef float element;
constexpr int STEP = 1;
typedef vec operand;

static inline float to_float(element value) { return value; }
static inline element to_element(float value) { return value; }
static inline operand load_operand(const element *from, int) { return load(from); }
static inline operand broadcast(const element *from) { return splat(*from); }
static inline vec multiply_add(operand a, operand b, vec sum) { return sum + a * b; }
#if defined(SIE_BFLOAT16_WEIGHTS)
// The first or the second of each pair: bfloat16 is the upper half of float32.
static inline operand load_operand(const weight *from, int part) {
    const __m512i pairs = _mm512_loadu_si512(from);
    return (vec)(part ? _mm512_and_si512(pairs, _mm512_set1_epi32(~0xffff)) : _mm512_slli_epi32(pairs, 16));
}
#endif
#endif

template <typename Number> constexpr bool WIDENED = !std::is_same_v<Number, element>;
