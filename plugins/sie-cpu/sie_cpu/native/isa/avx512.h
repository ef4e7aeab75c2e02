// AVX-512: sixteen lanes. A tile of six rows by four vectors accumulates in 24 of the 32 registers.
#pragma once

#include <cstdint>
#include <immintrin.h>

constexpr int LANES = 16;
constexpr int VECTORS = 4;
constexpr bool MANY_REGISTERS = true;

typedef float vec __attribute__((vector_size(LANES * 4)));
typedef int32_t ivec __attribute__((vector_size(LANES * 4)));

static const ivec LANE = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

static inline float sum_of(vec value) { return _mm512_reduce_add_ps((__m512)value); }
static inline float largest_of(vec value) { return _mm512_reduce_max_ps((__m512)value); }
static inline void relax() { _mm_pause(); }
