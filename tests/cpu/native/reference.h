// The same encoders in double precision, spelled out from the papers: nothing here is shared with the kernels.
#pragma once

#include "drawn.h"

typedef std::vector<double> Row;

static Row through(const Adapted &linear, const Row &input) {
    const auto product = [](const Linear &matrix, const Row &from, bool biased) {
        Row to(matrix.out);
        for (int64_t i = 0; i < matrix.out; i++) {
            to[i] = biased ? matrix.bias[i] : 0;
            for (int64_t j = 0; j < matrix.in; j++) to[i] += (double)matrix.at(i, j) * from[j];
        }
        return to;
    };
    Row result = product(linear.base, input, true);
    if (linear.low.rank) {
        const Row added = product(linear.low.upper, product(linear.low.lower, input, false), false);
        for (size_t i = 0; i < result.size(); i++) result[i] += added[i];
    }
    return result;
}

static Row normalised_row(const Affine &norm, const Row &from, bool rms, double epsilon) {
    double mean = 0, variance = 0;
    for (double value : from) mean += rms ? 0 : value / from.size();
    for (double value : from) variance += (value - mean) * (value - mean) / from.size();
    Row to(from.size());
    for (size_t i = 0; i < from.size(); i++)
        to[i] = (from[i] - mean) / std::sqrt(variance + epsilon) * norm.weight[i] + (rms ? 0 : norm.bias[i]);
    return to;
}

// What a token's rows of the tables add up to; those of a missing table add nothing.
static Row embedded_row(const DrawnEmbeddings &drawn, int64_t id, int64_t type, int64_t position, double epsilon) {
    Row sum(drawn.words.in);
    for (size_t i = 0; i < sum.size(); i++) {
        sum[i] = drawn.words.at(id, i);
        if (drawn.types.out) sum[i] += drawn.types.at(type, i);
        if (drawn.positions.out) sum[i] += drawn.positions.at(position, i);
    }
    return drawn.norm.weight.empty() ? sum : normalised_row(drawn.norm, sum, false, epsilon);
}

static double activated(int64_t activation, double x) {
    switch (activation) {
    case GELU: return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case GELU_TANH: return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case RELU: return std::max(x, 0.0);
    default: return x / (1 + std::exp(-x));
    }
}

// One sequence through all layers: `states` are its tokens, `cosine` and `sine` their angles, `[tokens][turned]`.
struct Reference {
    const Shape &shape;
    const std::vector<DrawnLayer> &layers;
    const Affine &entry;

    std::vector<Row> run(std::vector<Row> states, int64_t keys, const std::vector<Row> &cosine,
                         const std::vector<Row> &sine) const {
        const Affine *before = shape.enters ? &entry : nullptr;
        for (const DrawnLayer &layer : layers) {
            std::vector<Row> inputs = states;
            if (before)
                for (Row &row : inputs) row = norm(*before, row);
            const std::vector<Row> attended = attend(layer, inputs, keys, cosine, sine);
            for (size_t i = 0; i < states.size(); i++) {
                Row middle = add(states[i], layer.attended, through(layer.output, attended[i]));
                const Row normal = norm(layer.attention, middle);
                const Row narrowed = through(layer.down, widen(layer, normal));
                states[i] = add(shape.pre_norm ? middle : normal, layer.narrowed, narrowed);
                if (!shape.pre_norm) states[i] = norm(layer.after, states[i]);
            }
            if (shape.pre_norm) before = &layer.after;
        }
        if (shape.pre_norm)
            for (Row &row : states) row = norm(layers.back().after, row);
        return states;
    }

  private:
    Row norm(const Affine &affine, const Row &row) const { return normalised_row(affine, row, shape.rms, shape.epsilon); }

    Row add(Row states, const Affine &own, Row part) const {
        if (!own.weight.empty()) part = norm(own, part);
        for (size_t i = 0; i < part.size(); i++) part[i] += states[i];
        return part;
    }

    Row widen(const DrawnLayer &layer, const Row &input) const {
        Row up = through(layer.up, input);
        if (!shape.gated) {
            for (double &value : up) value = activated(shape.activation, value);
            return up;
        }
        const Row gate = through(layer.gate, input);
        for (size_t i = 0; i < up.size(); i++) up[i] *= activated(shape.activation, gate[i]);
        return up;
    }

    // The head `number` of a row: normalised, then rotated, its halves paired.
    Row head(const Row &row, int64_t number, const Affine &own, const Row &cosine, const Row &sine) const {
        Row part(row.begin() + number * shape.head_size, row.begin() + (number + 1) * shape.head_size);
        if (!own.weight.empty()) part = normalised_row(own, part, true, shape.epsilon);
        Row turned = part;
        const int64_t half = shape.turned / 2;
        for (int64_t i = 0; i < half; i++) {
            turned[i] = part[i] * cosine[i] - part[half + i] * sine[i];
            turned[half + i] = part[half + i] * cosine[half + i] + part[i] * sine[half + i];
        }
        return turned;
    }

    std::vector<Row> attend(const DrawnLayer &layer, const std::vector<Row> &inputs, int64_t keys,
                            const std::vector<Row> &cosine, const std::vector<Row> &sine) const {
        const int64_t length = inputs.size(), size = shape.head_size;
        std::vector<Row> query(length), key(length), value(length), output(length, Row(shape.heads() * size, 0.0));
        for (int64_t i = 0; i < length; i++)
            query[i] = through(layer.query, inputs[i]), key[i] = through(layer.key, inputs[i]),
            value[i] = through(layer.value, inputs[i]);
        for (int64_t number = 0; number < shape.heads(); number++) {
            const int64_t group = number / shape.groups;
            std::vector<Row> queries, others;
            for (int64_t i = 0; i < length; i++) {
                queries.push_back(head(query[i], number, layer.query_norm, cosine[i], sine[i]));
                others.push_back(head(key[i], group, layer.key_norm, cosine[i], sine[i]));
            }
            for (int64_t i = 0; i < length; i++) {
                double total = 0;
                Row sum(size, 0.0);
                for (int64_t j = 0; j < std::clamp<int64_t>(keys, 0, length); j++) {
                    if (layer.window && std::abs(i - j) >= layer.window) continue;
                    if (shape.causal && j > i) continue;
                    double score = 0;
                    for (int64_t k = 0; k < size; k++) score += queries[i][k] * others[j][k];
                    if (shape.positions.count) {
                        const int64_t position = shape.positions.at(i - j);
                        for (int64_t k = 0; k < size; k++)
                            score += queries[i][k] * layer.position_keys.at(position, number * size + k) +
                                     others[j][k] * layer.position_queries.at(position, number * size + k);
                    }
                    score *= shape.scale;
                    if (shape.biases.of.out) score += shape.biases.at(number, j - i);
                    const double weight = std::exp(score);
                    total += weight;
                    for (int64_t k = 0; k < size; k++) sum[k] += weight * value[j][group * size + k];
                }
                for (int64_t k = 0; k < size; k++) output[i][number * size + k] = total ? sum[k] / total : 0;
            }
        }
        return output;
    }
};
