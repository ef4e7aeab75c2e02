// Operations on a row of states: norms, and the rotation of its heads.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>

#include "encoder.h"

// One over the root of the mean square of `size` elements around `mean`.
static inline float inverse_deviation(const float *from, int64_t size, float mean, float epsilon) {
    const int64_t whole = size / LANES * LANES;
    vec squares = vec{};
    for (int64_t i = 0; i < whole; i += LANES) {
        const vec centred = load(from + i) - mean;
        squares += centred * centred;
    }
    float sum = sum_of(squares);
    for (int64_t i = whole; i < size; i++) sum += (from[i] - mean) * (from[i] - mean);
    return 1.0f / std::sqrt(sum / size + epsilon);
}

static inline float mean_of(const float *from, int64_t size) {
    const int64_t whole = size / LANES * LANES;
    vec total = vec{};
    for (int64_t i = 0; i < whole; i += LANES) total += load(from + i);
    float sum = sum_of(total);
    for (int64_t i = whole; i < size; i++) sum += from[i];
    return sum / size;
}

// Iterates over a normalised row: `take(place, values)` gets vectors, and the last elements as single values.
template <bool rms, typename Take>
static inline void normalised(const float *from, int64_t size, const Norm &norm, float epsilon, Take &&take) {
    const float mean = rms ? 0.0f : mean_of(from, size);
    const float factor = inverse_deviation(from, size, mean, epsilon);
    int64_t i = 0;
    for (; i + LANES <= size; i += LANES) {
        const vec value = (load(from + i) - mean) * factor * load(norm.weight + i);
        if constexpr (rms) take(i, value);
        else take(i, value + load(norm.bias + i));
    }
    for (; i < size; i++) take(i, (from[i] - mean) * factor * norm.weight[i] + (rms ? 0.0f : norm.bias[i]));
}

static inline void put(float *to, vec value) { store(to, value); }
static inline void put(float *to, float value) { *to = value; }
static inline void put_element(element *to, vec value) { store(to, value); }
static inline void put_element(element *to, float value) { *to = to_element(value); }
static inline vec get(const float *from, vec) { return load(from); }
static inline float get(const float *from, float) { return *from; }

// Normalises a row of `from` into `input`, as elements, and into `to` unless that is null; it may be `from`.
static inline void normalise(const Encoder &encoder, const Norm &norm, const float *from, float *to, element *input) {
    const auto take = [&](int64_t i, auto value) {
        if (to) put(to + i, value);
        put_element(input + i, value);
    };
    if (encoder.rms) normalised<true>(from, encoder.hidden, norm, encoder.norm_epsilon, take);
    else normalised<false>(from, encoder.hidden, norm, encoder.norm_epsilon, take);
}

// Adds a row of `from`, normalised, to `to`.
static inline void add_normalised(const Encoder &encoder, const Norm &norm, const float *from, float *to) {
    const auto take = [&](int64_t i, auto value) { put(to + i, get(to + i, value) + value); };
    if (encoder.rms) normalised<true>(from, encoder.hidden, norm, encoder.norm_epsilon, take);
    else normalised<false>(from, encoder.hidden, norm, encoder.norm_epsilon, take);
}

// Computes the state of a token from its embeddings.
static inline void embed(const Embeddings &embeddings, const Tokens &tokens, int64_t token, int64_t size, float *to) {
    const auto row = [&](const Table &table, const int64_t *numbers) {
        return table.rows + (numbers ? numbers[token] : 0) * size;
    };
    std::memcpy(to, row(embeddings.words, tokens.ids), size * sizeof(float));
    const auto add = [&](const Table &table, const int64_t *numbers) {
        if (!table.rows) return;
        const float *from = row(table, numbers);
        for (int64_t i = 0; i < size; i++) to[i] += from[i];
    };
    add(embeddings.types, tokens.types);
    add(embeddings.positions, tokens.positions);
    if (embeddings.norm.weight)
        normalised<false>(to, size, embeddings.norm, embeddings.epsilon, [&](int64_t i, auto value) { put(to + i, value); });
}

// Whether every token has a row in each table.
static inline bool embedded(const Embeddings &embeddings, const Tokens &tokens, int64_t count) {
    const auto within = [&](const Table &table, const int64_t *numbers) {
        return !table.rows || !numbers || std::all_of(numbers, numbers + count, [&](int64_t number) {
                   return 0 <= number && number < table.count;
               });
    };
    return within(embeddings.words, tokens.ids) && within(embeddings.types, tokens.types) &&
           within(embeddings.positions, tokens.positions);
}

// The elements of one head, normalised by its RMSNorm if it has one.
struct Head {
    element *elements;
    const float *weights;
    float factor = 1.0f;

    Head(element *elements, const float *weights, int64_t size, int64_t width, float epsilon)
        : elements(elements), weights(weights) {
        if (!weights) return;
        vec squares = vec{}; // the padding is zeros
        for (int64_t i = 0; i < width; i += LANES) squares += load(elements + i) * load(elements + i);
        factor = 1.0f / std::sqrt(sum_of(squares) / size + epsilon);
    }
    vec vector(int64_t i) const {
        const vec value = load(elements + i);
        return weights ? value * factor * load(weights + i) : value;
    }
    float single(int64_t i) const {
        const float value = to_float(elements[i]);
        return weights ? value * factor * weights[i] : value;
    }
};

// Rotates the first `turned` elements of a head, of which the first half pairs with the second (arXiv 2104.09864), and
// normalises all `size` of them.
static inline void rotate_head(const Head &head, int64_t size, const float *cosine, const float *sine, int64_t turned) {
    const int64_t half = turned / 2;
    int64_t i = 0;
    for (; i + LANES <= half; i += LANES) {
        const vec a = head.vector(i), b = head.vector(half + i);
        store(head.elements + i, a * load(cosine + i) - b * load(sine + i));
        store(head.elements + half + i, b * load(cosine + half + i) + a * load(sine + half + i));
    }
    for (; i < half; i++) {
        const float a = head.single(i), b = head.single(half + i);
        head.elements[i] = to_element(a * cosine[i] - b * sine[i]);
        head.elements[half + i] = to_element(b * cosine[half + i] + a * sine[half + i]);
    }
    if (head.weights)
        for (i = turned; i < size; i++) head.elements[i] = to_element(head.single(i));
}
