// exp, erf, reciprocals and the activations made of them, over vectors.
#pragma once

#include "simd.h"

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
// exp, relative error below 2e-7: 2^k times a polynomial on [-ln2/2, ln2/2] (Cephes' expf). What would be subnormal is
// 0, so that a masked score weighs nothing; NaN stays NaN.
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
    return x < -87.33f ? vec{} : p * (vec)exponent;
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
