// Attention of one head within one sequence: softmax(Q K^T * scale) V, queries taken ROWS at a time.
//
// Keys and values are laid out in panels first, so both products run on the kernel of product.h. Rows of scores are
// whole, not streamed: exact at any length, and a row of 8 192 keys is 32 kB.
#pragma once

#include <algorithm>

#include "distances.h"
#include "../functions.h"

struct Scratch { // per thread, large enough for the longest sequence
    element *keys, *values, *weights;
    float *scores, *of_queries, *of_keys; // the last two: distance scores
    float *biases;                        // of one head, by the place of the key minus that of the query
    element *widened;                     // a panel of weights, see product.h
};

// The panels of a matrix `wide` columns wide: `body(column, vectors)` with the number of vectors at compile time.
template <typename Body> static inline void for_panels(int64_t wide, Body &&body) {
    int64_t column = 0;
    for (; column + PANEL <= wide; column += PANEL) body(column, std::integral_constant<int, VECTORS>{});
    const int64_t left = (wide - column) / LANES;
    if (left == 1) return body(column, std::integral_constant<int, 1>{});
    if constexpr (VECTORS == 4) {
        if (left == 2) return body(column, std::integral_constant<int, 2>{});
        if (left == 3) return body(column, std::integral_constant<int, 3>{});
    }
}

// Lays `length` rows of `width` elements out as the columns of a product: panels over tokens, `width` inside.
static inline void transpose_keys(const element *rows, int64_t stride, int64_t length, int64_t width, element *panels) {
    for_panels(round_up(length, LANES), [&](int64_t first, auto vectors) {
        element *panel = panels + first * width;
        constexpr int columns = vectors() * LANES;
        for (int64_t start = 0; start < columns; start += LANES) {
            const int64_t present = length - first - start < LANES ? length - first - start : LANES;
            const element *from = rows + (first + start) * stride;
#if defined(SIE_BFLOAT16)
            const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
            const __m512i offsets = _mm512_mullo_epi32(lane, _mm512_set1_epi32((int)(stride / STEP)));
            const __mmask16 mask = (__mmask16)((1u << present) - 1);
            for (int64_t k = 0; k < width; k += STEP)
                _mm512_storeu_si512(panel + (k * vectors()) * LANES + start * STEP,
                                    _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), mask, offsets, from + k, 4));
#else
            for (int64_t k = 0; k < width; k++)
                for (int64_t token = 0; token < LANES; token++)
                    panel[k * columns + start + token] = token < present ? from[token * stride + k] : 0;
#endif
        }
    });
}

// Lays `length` rows of `width` elements out as the rows of a product: panels over `width`, tokens inside.
static inline void interleave_values(const element *rows, int64_t stride, int64_t length, int64_t width,
                                     element *panels) {
    const int64_t inner = round_up(length, LANES);
    for_panels(width, [&](int64_t first, auto vectors) {
        element *panel = panels + first * inner;
        for (int64_t token = 0; token < inner; token += STEP)
            for (int v = 0; v < vectors(); v++) {
                element *to = panel + (token * vectors() + v * STEP) * LANES;
                const element *from = rows + token * stride + first + v * LANES;
#if defined(SIE_BFLOAT16)
                const __m256i zero = _mm256_setzero_si256();
                const __m256i even = token < length ? _mm256_loadu_si256((const __m256i *)from) : zero;
                const __m256i odd = token + 1 < length ? _mm256_loadu_si256((const __m256i *)(from + stride)) : zero;
                _mm512_storeu_si512(to, _mm512_or_si512(_mm512_cvtepu16_epi32(even),
                                                        _mm512_slli_epi32(_mm512_cvtepu16_epi32(odd), 16)));
#else
                store(to, token < length ? load(from) : vec{});
#endif
            }
    });
}

// Scores from `key` on, masked outside `first` to `last`. They are blended, not stored in place: reading a vector right
// after a partial store of it stalls.
static inline vec seen_scores(const float *scores, int64_t key, int64_t first, int64_t last) {
    const vec found = load(scores + key);
    if (key >= first && key + LANES <= last) return found;
    const ivec place = LANE + (int32_t)key;
    return (place >= (int32_t)first) & (place < (int32_t)last) ? found : splat(-1e30f);
}

// Turns a row of `padded` scores, masked outside `first` to `last`, into unnormalised weights; returns the inverse of
// their sum.
static inline float softmax(const float *scores, element *weights, int64_t first, int64_t last, int64_t padded,
                            float scale) {
    vec largest = seen_scores(scores, 0, first, last);
    for (int64_t key = LANES; key < padded; key += LANES)
        largest = larger(seen_scores(scores, key, first, last), largest);
    const float top = largest_of(largest);
    vec total = vec{};
    for (int64_t key = 0; key < padded; key += LANES) {
        const vec weight = exp_of((seen_scores(scores, key, first, last) - top) * scale);
        total += weight;
        store(weights + key, weight);
    }
    return 1.0f / sum_of(total);
}

struct Visibility { // token i sees token j if i - j < behind and j - i < ahead
    int64_t behind, ahead;
    Visibility(int64_t window, bool causal, int64_t length)
        : behind(window ? window : length), ahead(causal ? 1 : behind) {}
};

// Lays the first `keys` tokens of a head's keys and values out in panels; the values' elements are at `value`.
static inline void lay_out(const element *key, const element *value, int64_t stride, int64_t keys, int64_t width,
                           const Scratch &scratch) {
    transpose_keys(key, stride, keys, width, scratch.keys);
    interleave_values(value, stride, keys, width, scratch.values);
}

// Writes a head's bias of each distance within a sequence of `length` tokens, and returns that of the distance 0. Of keys
// there are as many as the vectors that hold the first `keys`.
static inline const float *lay_out_biases(const Biases &biases, int64_t head, int64_t length, int64_t keys, float *to) {
    const int64_t far = biases.farthest, last = round_up(keys, LANES) - 1;
    const float *of_head = biases.numbers + head * (2 * far + 1) + far;
    float *middle = to + length - 1;
    for (int64_t distance = 1 - length; distance <= last; distance++)
        middle[distance] = of_head[std::clamp(distance, -far, far)];
    return middle;
}

// Attends for one head, whose keys and values `lay_out` laid out. `query` points at its first token's elements,
// `stride` apart, `width` wide (a multiple of LANES); the result is written the same way at `output`, `output_stride`
// apart. Only the first `keys` of the `length` tokens are keys. A token that sees no key gets zeros. `distances`, or
// null, has scored the keys. `biases`, or null, are those of `lay_out_biases`.
static inline void attend(const element *query, int64_t stride, int64_t length, int64_t keys, int64_t width,
                          const Visibility &visibility, float scale, const DistanceScores *distances,
                          const float *biases, const Scratch &scratch, element *output, int64_t output_stride) {
    const int64_t padded = round_up(keys, LANES);
    for_tiles(length, [&](auto height, int64_t start) {
        // The range of panels that the rows of the tile see.
        const int64_t low = std::max<int64_t>(0, start - visibility.behind + 1) / PANEL * PANEL;
        const int64_t high = std::min(padded, round_up(std::min(keys, start + height() - 1 + visibility.ahead), LANES));
        const int64_t seen = std::max<int64_t>(0, high - low);
        for_panels(padded, [&](int64_t first, auto vectors) {
            if (first < low || first >= high) return;
            vec sums[height()][vectors()];
            tile_product<height(), vectors()>(query + start * stride, stride, scratch.keys + first * width, width, {},
                                              nullptr, sums);
            for (int row = 0; row < height(); row++)
                for (int v = 0; v < vectors(); v++) {
                    const int64_t key = first + v * LANES;
                    if (biases) sums[row][v] += load(biases + key - start - row);
                    store(scratch.scores + row * padded + key - low, sums[row][v]);
                }
        });
        if (distances)
            distances->add<height()>(query + start * stride, stride, start, low, high, scratch.scores, padded);
        float shares[height()];
        for (int row = 0; row < height(); row++) {
            const int64_t first = std::max<int64_t>(0, start + row - visibility.behind + 1) - low;
            const int64_t last = std::min(keys, start + row + visibility.ahead) - low;
            element *weights = scratch.weights + row * padded;
            shares[row] = 0;
            if (first < last) shares[row] = softmax(scratch.scores + row * padded, weights, first, last, seen, scale);
            else std::memset(weights, 0, seen * sizeof(element));
        }
        for_panels(width, [&](int64_t first, auto vectors) {
            vec sums[height()][vectors()];
            const element *values = scratch.values + first * padded + low * vectors() * LANES;
            tile_product<height(), vectors()>(scratch.weights, padded, values, seen, {}, nullptr, sums);
            for (int row = 0; row < height(); row++)
                for (int v = 0; v < vectors(); v++)
                    store(output + (start + row) * output_stride + first + v * LANES, sums[row][v] * shares[row]);
        });
    });
}
