// NEON (AArch64): four lanes. A tile of six rows by four vectors accumulates in 24 of the 32 registers.
#pragma once

#include <arm_neon.h>
#include <cstdint>

constexpr int LANES = 4;
constexpr int VECTORS = 4;
constexpr bool MANY_REGISTERS = true;

typedef float vec __attribute__((vector_size(LANES * 4)));
typedef int32_t ivec __attribute__((vector_size(LANES * 4)));

static const ivec LANE = {0, 1, 2, 3};

static inline float sum_of(vec value) { return vaddvq_f32((float32x4_t)value); }
static inline float largest_of(vec value) { return vmaxvq_f32((float32x4_t)value); }
static inline void relax() { asm volatile("yield"); }
