// AVX2 with FMA: eight lanes. A tile of six rows by two vectors accumulates in 12 of the 16 registers.
#pragma once

#include <cstdint>
#include <immintrin.h>

constexpr int LANES = 8;
constexpr int VECTORS = 2;
constexpr bool MANY_REGISTERS = false;

typedef float vec __attribute__((vector_size(LANES * 4)));
typedef int32_t ivec __attribute__((vector_size(LANES * 4)));

static const ivec LANE = {0, 1, 2, 3, 4, 5, 6, 7};

// Reduces over the lanes as a tree: a chain of eight takes as long as the rest of the work on a short row.
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
static inline void relax() { _mm_pause(); }
