// Vectors of float32, the element type that products read, and the functions between them.
//
// One source serves three builds: AVX-512 with bfloat16 products (SIE_BFLOAT16), AVX-512 and AVX2 in float32. It knows
// no transformer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <immintrin.h>

#if defined(__AVX512F__)
constexpr int LANES = 16;
constexpr int VECTORS = 4; // a panel is four vectors wide, a tile at most six rows high: 24 of 32 registers accumulate
#else
constexpr int LANES = 8;
constexpr int VECTORS = 2; // 12 of 16 registers accumulate
#endif
constexpr int ROWS = 6;
constexpr int PANEL = LANES * VECTORS;

typedef float vec __attribute__((vector_size(LANES * 4)));
typedef int32_t ivec __attribute__((vector_size(LANES * 4)));

#if defined(__AVX512F__)
static const ivec LANE = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
#else
static const ivec LANE = {0, 1, 2, 3, 4, 5, 6, 7};
#endif

static inline vec load(const float *from) {
    vec value;
    std::memcpy(&value, from, sizeof value);
    return value;
}
static inline void store(float *to, vec value) { std::memcpy(to, &value, sizeof value); }
static inline vec splat(float value) { return value - vec{}; }

#if defined(SIE_BFLOAT16)
typedef uint16_t element;
constexpr int STEP = 2; // one product instruction takes pairs of neighbours along the inner dimension
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
static inline element to_element(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    if ((bits & 0x7fffffff) > 0x7f800000) return (element)(bits >> 16 | 0x40); // keeps a NaN one
    return (element)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
static inline operand load_operand(const element *from) { return _mm512_loadu_si512(from); }
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
static inline operand load_operand(const element *from) { return load(from); }
static inline operand broadcast(const element *from) { return splat(*from); }
static inline vec multiply_add(operand a, operand b, vec sum) { return sum + a * b; }
#endif

// Over the lanes, in a tree: a chain of sixteen takes as long as all else that a short row needs.
#if defined(__AVX512F__)
static inline float sum_of(vec value) { return _mm512_reduce_add_ps((__m512)value); }
static inline float largest_of(vec value) { return _mm512_reduce_max_ps((__m512)value); }
#else
static inline float sum_of(vec value) {
    const __m256 wide = (__m256)value;
    __m128 part = _mm_add_ps(_mm256_castps256_ps128(wide), _mm256_extractf128_ps(wide, 1));
    part = _mm_add_ps(part, _mm_movehl_ps(part, part));
    return _mm_cvtss_f32(_mm_add_ss(part, _mm_movehdup_ps(part)));
}
static inline float largest_of(vec value) {
    const __m256 wide = (__m256)value;
    __m128 part = _mm_max_ps(_mm256_castps256_ps128(wide), _mm256_extractf128_ps(wide, 1));
    part = _mm_max_ps(part, _mm_movehl_ps(part, part));
    return _mm_cvtss_f32(_mm_max_ss(part, _mm_movehdup_ps(part)));
}
#endif
static inline vec larger(vec a, vec b) { return a > b ? a : b; }

#if defined(SIE_BFLOAT16)
// Results are rounded to 8 bits of mantissa: approximations to 13 bits and more lose nothing and take half the time.

// exp, relative error below 5e-6 for |x| < 20: 2^k times a polynomial for 2^r on [-1/2, 1/2]. NaN stays NaN.
static inline vec exp_of(vec x) {
    const vec scaled = x * 1.44269504f;
    const vec rounded = (vec)_mm512_roundscale_ps((__m512)scaled, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const vec r = scaled - rounded;
    vec p = 9.5701e-3f * r + 5.591786e-2f;
    p = p * r + 2.4024745e-1f;
    p = p * r + 6.9312181e-1f;
    p = p * r + 9.9999926e-1f;
    return (vec)_mm512_scalef_ps((__m512)p, (__m512)rounded);
}
static inline vec reciprocal(vec x) { return (vec)_mm512_rcp14_ps((__m512)x); }

// erf: Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.25. Their bound of 2.5e-5 is for an exact
// reciprocal; with the approximate one the absolute error is below 1.1e-4.
static inline vec erf_of(vec x) {
    const vec magnitude = x < 0.0f ? -x : x;
    const vec t = reciprocal(1.0f + 0.47047f * magnitude);
    const vec p = ((0.7478556f * t - 0.0958798f) * t + 0.3480242f) * t;
    const vec y = 1.0f - p * exp_of(-magnitude * magnitude);
    return x < 0.0f ? -y : y;
}
#else
// exp, relative error below 2e-7: 2^k times a polynomial on [-ln2/2, ln2/2] (Cephes' expf). NaN stays NaN.
static inline vec exp_of(vec x) {
    const vec clamped = x < -87.33f ? splat(-87.33f) : (x > 88.37f ? splat(88.37f) : x);
    const vec rounded = (clamped * 1.44269504f + 12582912.0f) - 12582912.0f; // adding 1.5 * 2^23 rounds to an integer
    const vec r = (clamped - rounded * 0.693359375f) + rounded * 2.12194440e-4f;
    vec p = 1.9875691500e-4f * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    const ivec exponent = (__builtin_convertvector(rounded, ivec) + 127) << 23;
    return p * (vec)exponent;
}

// erf: Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26. Their bound is 1.5e-7; in float32 the
// absolute error is below 5e-7.
static inline vec erf_of(vec x) {
    const vec magnitude = x < 0.0f ? -x : x;
    const vec t = 1.0f / (1.0f + 0.3275911f * magnitude);
    vec p = 1.061405429f * t - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    const vec y = 1.0f - p * t * exp_of(-magnitude * magnitude);
    return x < 0.0f ? -y : y;
}
static inline vec reciprocal(vec x) { return 1.0f / x; }
#endif

enum Activation { NONE = 0, GELU = 1, GELU_TANH = 2, RELU = 3, SILU = 4 };

template <int activation> static inline vec activate(vec x) {
    if constexpr (activation == GELU) return 0.5f * x * (1.0f + erf_of(x * 0.70710678f));
    if constexpr (activation == GELU_TANH)
        return x * reciprocal(1.0f + exp_of(-1.59576912f * (x + 0.044715f * x * x * x)));
    if constexpr (activation == RELU) return x < 0.0f ? vec{} : x;
    if constexpr (activation == SILU) return x * reciprocal(1.0f + exp_of(-x));
    return x;
}
