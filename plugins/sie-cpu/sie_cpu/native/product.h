// Matrix products over panels: `[columns / PANEL][inner / step][PANEL][step]`, zero-padded. The step is WEIGHT_STEP
// for weights, and STEP for elements: the keys and values of attention.
//
// A tile of up to ROWS rows and one panel accumulates in registers over the whole inner dimension, always in the same
// order: a row's result does not depend on the other rows.
#pragma once

#include "simd.h"

struct Matrix { // a linear layer's weight in panels, with its bias (zeros if it has none), PANEL-padded
    const weight *panels;
    const float *bias;
    int64_t inner;   // elements of an input row, a multiple of WEIGHT_STEP
    int64_t columns; // a multiple of PANEL
};

struct Correction { // a LoRA delta of a product: `rows` times `panels`, laid out as the product's own weight
    const element *rows = nullptr;
    int64_t stride = 0;
    const weight *panels = nullptr;
    int64_t inner = 0; // 0: none
};

constexpr int64_t AHEAD = PANEL * sizeof(weight) / 16; // bytes prefetched per inner element: 16 tiles fetch a panel
constexpr int64_t AHEAD_ROWS = 8 * ROWS; // prefetch the next panel from this many rows on; below, loads limit
constexpr int64_t LINE = 64;             // bytes of a cache line
constexpr int64_t KEPT_ROWS = 4 * ROWS;  // rows from which the first tile stores its widened weights for the others

template <int rows, int vectors, typename Number>
__attribute__((always_inline)) static inline void multiply(const element *a, int64_t a_stride, const Number *panel,
                                                           int64_t inner, vec (&sums)[rows][vectors],
                                                           const char *ahead, element *kept = nullptr) {
    constexpr int step = WIDENED<Number> ? WEIGHT_STEP : STEP;
    constexpr int parts = WIDENED<Number> ? WEIGHT_STEP : 1;
    for (int64_t k = 0; k < inner; k += step) {
        if (ahead && k * AHEAD % LINE == 0) __builtin_prefetch(ahead + k * AHEAD, 0, 2);
#pragma GCC unroll 2
        for (int part = 0; part < parts; part++) {
            operand b[vectors];
#pragma GCC unroll 8
            for (int v = 0; v < vectors; v++) b[v] = load_operand(panel + (k * vectors + v * step) * LANES, part);
            if constexpr (WIDENED<Number>)
                if (kept)
#pragma GCC unroll 8
                    for (int v = 0; v < vectors; v++) store(kept + ((k + part) * vectors + v) * LANES, b[v]);
#pragma GCC unroll 8
            for (int row = 0; row < rows; row++) {
                const operand left = broadcast(a + row * a_stride + k + part);
#pragma GCC unroll 8
                for (int v = 0; v < vectors; v++) sums[row][v] = multiply_add(left, b[v], sums[row][v]);
            }
        }
    }
}

template <int rows, int vectors, typename Number>
__attribute__((always_inline)) static inline void product_of(const element *a, int64_t a_stride, const Number *panel,
                                                             int64_t inner, const Correction &correction,
                                                             const char *ahead, element *kept,
                                                             vec (&sums)[rows][vectors]) {
    for (int row = 0; row < rows; row++)
        for (int v = 0; v < vectors; v++) sums[row][v] = vec{};
    multiply<rows, vectors>(a, a_stride, panel, inner, sums, ahead, kept);
    multiply<rows, vectors>(correction.rows, correction.stride, correction.panels, correction.inner, sums, nullptr);
}

// The same out of line: with sixteen registers, inlined code after the sums would spill some of them.
template <int rows, int vectors, typename Number>
__attribute__((noinline)) static void product_apart(const element *a, int64_t a_stride, const Number *panel,
                                                    int64_t inner, const Correction &correction, const char *ahead,
                                                    element *kept, vec (&result)[rows][vectors]) {
    vec sums[rows][vectors];
    product_of<rows, vectors>(a, a_stride, panel, inner, correction, ahead, kept, sums);
    std::memcpy(result, sums, sizeof sums);
}

// Rows times a panel, plus the correction. `ahead`, if given, is prefetched; `kept`, if given, receives the panel as
// elements, if it is widened.
template <int rows, int vectors, typename Number>
__attribute__((always_inline)) static inline void tile_product(const element *a, int64_t a_stride, const Number *panel,
                                                               int64_t inner, const Correction &correction,
                                                               const char *ahead, vec (&sums)[rows][vectors],
                                                               element *kept = nullptr) {
    if constexpr (MANY_REGISTERS) product_of<rows, vectors>(a, a_stride, panel, inner, correction, ahead, kept, sums);
    else product_apart<rows, vectors>(a, a_stride, panel, inner, correction, ahead, kept, sums);
}

// Calls `tile` with the number of rows as a compile-time constant, over `count` rows in nearly equal tiles.
template <typename Tile> static inline void for_tiles(int64_t count, Tile &&tile) {
    int64_t tiles = (count + ROWS - 1) / ROWS;
    for (int64_t start = 0; tiles > 0; tiles--) {
        const int64_t rows = (count - start + tiles - 1) / tiles;
        switch (rows) {
        case 1: tile(std::integral_constant<int, 1>{}, start); break;
        case 2: tile(std::integral_constant<int, 2>{}, start); break;
        case 3: tile(std::integral_constant<int, 3>{}, start); break;
        case 4: tile(std::integral_constant<int, 4>{}, start); break;
        case 5: tile(std::integral_constant<int, 5>{}, start); break;
        default: tile(std::integral_constant<int, 6>{}, start); break;
        }
        start += rows;
    }
}

// `rows x inner` times one panel of the matrix; `finish(row, vectors)` takes each row's sums, bias included. Meanwhile
// the next panel is prefetched: the weights exceed a core's cache, and the first tile would wait for memory.
// `widened` has room for a panel of elements, if weights are widened; the results are the same.
template <typename Finish>
static inline void panel_product(const element *a, int64_t a_stride, int64_t rows, const Matrix &matrix, int64_t panel,
                                 const Correction &correction, element *widened, Finish &&finish) {
    const weight *weights = matrix.panels + panel * PANEL * matrix.inner;
    const weight *corrections = correction.panels + panel * PANEL * correction.inner;
    const char *next = (const char *)(weights + PANEL * matrix.inner);
    element *kept = rows < KEPT_ROWS ? nullptr : widened;
    for_tiles(rows, [&](auto height, int64_t start) {
        vec sums[height()][VECTORS];
        const char *ahead = rows < AHEAD_ROWS ? nullptr : next + start / ROWS * matrix.inner * AHEAD;
        const Correction low{correction.rows + start * correction.stride, correction.stride, corrections,
                             correction.inner};
        const auto product = [&](const auto *numbers) {
            tile_product<height(), VECTORS>(a + start * a_stride, a_stride, numbers, matrix.inner, low, ahead, sums,
                                            kept);
        };
        if (WIDENED<weight> && kept && start) product((const element *)kept);
        else product(weights);
        for (int row = 0; row < height(); row++) {
            for (int v = 0; v < VECTORS; v++) sums[row][v] += load(matrix.bias + panel * PANEL + v * LANES);
            finish(start + row, sums[row]);
        }
    });
}
