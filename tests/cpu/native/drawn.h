// Encoders drawn at random: their numbers in double for the reference, and packed as the kernels want them.
#pragma once

#include <memory>
#include <random>

#include "layer.h"

extern "C" void sie_pack(const float *weight, int64_t columns, int64_t inner, void *panels);

class Dice {
  public:
    explicit Dice(uint64_t seed) : engine_(seed) {}
    int64_t between(int64_t least, int64_t most) { return std::uniform_int_distribution<int64_t>(least, most)(engine_); }
    bool coin() { return between(0, 1); }
    float normal() { return std::normal_distribution<float>()(engine_); }
    std::vector<float> normals(int64_t count, float deviation, float mean = 0) {
        std::vector<float> values(count);
        for (float &value : values) value = mean + deviation * normal();
        return values;
    }

  private:
    std::mt19937_64 engine_;
};

struct Linear { // `out x in`, row after row, with a bias
    int64_t out = 0, in = 0;
    std::vector<float> weight, bias;
    float at(int64_t row, int64_t column) const { return weight[row * in + column]; }
};

struct Factors { // of low rank; none where `rank` is 0
    int64_t rank = 0;
    Linear lower, upper;
};

struct Adapted { // a linear layer and what low rank adds to it
    Linear base;
    Factors low;
};

struct Affine {
    std::vector<float> weight, bias;
};

struct DrawnEmbeddings { // tables with a row each for what tokens have; none without rows
    Linear words, types, positions;
    Affine norm; // of the sum; none without weights
};

struct DrawnLayer {
    Adapted query, key, value, output, up, gate, down;
    Affine attention, after, attended, narrowed, query_norm, key_norm;
    int64_t window = 0;
    Linear position_keys, position_queries; // a row of all heads for each relative position; none where there are none
    bool tables_of_low_rank = false;        // whether those are given in place of the layer's own
};

// Which position a distance has: beyond `own` several share one, from `farthest` on all.
struct Positions {
    int64_t count = 0, own = 0;
    std::vector<int32_t> of; // of the distances from -farthest to farthest
    int64_t farthest() const { return (int64_t)of.size() / 2; }
    int32_t at(int64_t distance) const { return of[std::clamp(distance, -farthest(), farthest()) + farthest()]; }

    static Positions draw(Dice &dice) {
        Positions drawn;
        const int64_t half = dice.between(1, 100);
        drawn.count = 2 * half, drawn.own = dice.between(0, half - 1);
        const int64_t farthest = half + dice.between(0, 40);
        drawn.of.resize(2 * farthest + 1);
        int64_t up = half, down = half;
        for (int64_t distance = 0; distance <= farthest; distance++) {
            const bool shared = distance > drawn.own;
            up = shared ? std::min(up + dice.coin(), 2 * half - 1) : half + distance;
            down = shared ? std::max<int64_t>(down - dice.coin(), 0) : half - distance;
            drawn.of[farthest + distance] = (int32_t)up, drawn.of[farthest - distance] = (int32_t)down;
        }
        return drawn;
    }
};

// A number for each head and distance of a key from its query; those beyond `farthest` share one in either direction.
struct DrawnBiases {
    int64_t farthest = 0;
    Linear of; // `heads x (2 * farthest + 1)`; none without rows

    float at(int64_t head, int64_t distance) const {
        return of.at(head, std::clamp(distance, -farthest, farthest) + farthest);
    }
    static DrawnBiases draw(Dice &dice, int64_t heads) {
        const int64_t farthest = dice.between(1, 60), width = 2 * farthest + 1;
        return {farthest, {heads, width, dice.normals(heads * width, 1.0f), {}}};
    }
};

// What is the same in all layers of one encoder.
struct Shape {
    int64_t hidden, key_heads, groups, head_size, inner, layers, activation, turned;
    bool gated, causal, rms, pre_norm, sandwich, head_norms, enters, low_rank;
    Positions positions;
    DrawnBiases biases;
    float scale, epsilon = 1e-3f;
    int64_t heads() const { return key_heads * groups; }
    int64_t width() const { return round_up(head_size, LANES); }

    static Shape draw(Dice &dice) {
        Shape shape{};
        shape.hidden = dice.between(3, 200), shape.key_heads = dice.between(1, 3), shape.groups = dice.between(1, 3);
        shape.head_size = 2 * dice.between(1, 40), shape.inner = dice.between(2, 200), shape.layers = dice.between(1, 3);
        shape.activation = dice.between(GELU, SILU);
        shape.turned = dice.coin() ? 2 * dice.between(1, shape.head_size / 2) : 0;
        shape.gated = dice.coin(), shape.causal = dice.coin(), shape.rms = dice.coin(), shape.pre_norm = dice.coin();
        shape.sandwich = shape.pre_norm && dice.coin(), shape.head_norms = dice.coin();
        shape.enters = shape.pre_norm && dice.coin(), shape.low_rank = dice.coin();
        if (dice.coin()) shape.positions = Positions::draw(dice);
        if (dice.coin()) shape.biases = DrawnBiases::draw(dice, shape.heads());
        shape.scale = 1.0f / std::sqrt((float)shape.head_size);
        return shape;
    }
};

static Adapted draw_linear(Dice &dice, const Shape &shape, int64_t out, int64_t in) {
    const auto linear = [&](int64_t rows, int64_t columns, float deviation) {
        const float scale = deviation / std::sqrt((float)columns);
        return Linear{rows, columns, dice.normals(rows * columns, scale), dice.normals(rows, 0.3f)};
    };
    Adapted drawn{linear(out, in, 1.0f), {}};
    if (shape.low_rank && dice.coin()) {
        const int64_t rank = dice.between(1, 9);
        drawn.low = {rank, linear(rank, in, 1.0f), linear(out, rank, 0.5f)};
    }
    return drawn;
}

static Affine draw_norm(Dice &dice, int64_t size, bool rms) {
    return {dice.normals(size, 0.3f, 1.0f), rms ? std::vector<float>() : dice.normals(size, 0.3f)};
}

static DrawnEmbeddings draw_embeddings(Dice &dice, int64_t size) {
    const auto table = [&](int64_t rows) { return Linear{rows, size, dice.normals(rows * size, 1.0f), {}}; };
    DrawnEmbeddings drawn;
    drawn.words = table(dice.between(1, 30));
    if (dice.coin()) drawn.types = table(dice.between(1, 3));
    if (dice.coin()) drawn.positions = table(dice.between(1, 30));
    if (dice.coin()) drawn.norm = draw_norm(dice, size, false);
    return drawn;
}

static DrawnLayer draw_layer(Dice &dice, const Shape &shape) {
    const auto linear = [&](int64_t out, int64_t in) { return draw_linear(dice, shape, out, in); };
    const auto norm = [&](int64_t size) { return draw_norm(dice, size, shape.rms); };
    const int64_t queries = shape.heads() * shape.head_size, keys = shape.key_heads * shape.head_size;
    DrawnLayer layer;
    layer.query = linear(queries, shape.hidden), layer.key = linear(keys, shape.hidden);
    layer.value = linear(keys, shape.hidden), layer.output = linear(shape.hidden, queries);
    layer.up = linear(shape.inner, shape.hidden), layer.down = linear(shape.hidden, shape.inner);
    if (shape.gated) layer.gate = linear(shape.inner, shape.hidden);
    layer.attention = norm(shape.hidden), layer.after = norm(shape.hidden);
    if (shape.sandwich) layer.attended = norm(shape.hidden), layer.narrowed = norm(shape.hidden);
    if (shape.head_norms)
        layer.query_norm = draw_norm(dice, shape.head_size, true), layer.key_norm = draw_norm(dice, shape.head_size, true);
    layer.window = dice.coin() ? dice.between(1, 40) : 0;
    if (shape.positions.count) {
        const int64_t rows = shape.positions.count;
        layer.position_keys = {rows, queries, dice.normals(rows * queries, 0.5f), {}};
        layer.position_queries = {rows, queries, dice.normals(rows * queries, 0.5f), {}};
        layer.tables_of_low_rank = shape.low_rank && dice.coin();
    }
    return layer;
}

// Keeps what packed structures point at. Every piece is an allocation of its own, with nothing after its last byte.
class Packed {
  public:
    // Rows of `parts` are laid under each other where `places` says, columns where `columns` says.
    struct Part {
        const Linear *linear;
        std::vector<int64_t> places;
    };

    Matrix matrix(const std::vector<Part> &parts, int64_t rows, const std::vector<int64_t> &columns, int64_t inner,
                  bool biased = true) {
        Matrix packed{nullptr, nullptr, round_up(inner, WEIGHT_STEP), round_up(rows, PANEL)};
        std::vector<float> weight(packed.columns * packed.inner, 0), bias(packed.columns, 0);
        for (const Part &part : parts)
            for (int64_t row = 0; row < part.linear->out; row++) {
                for (int64_t column = 0; column < part.linear->in; column++)
                    weight[part.places[row] * packed.inner + columns[column]] = part.linear->at(row, column);
                if (biased) bias[part.places[row]] = part.linear->bias[row];
            }
        std::vector<::weight> panels(weight.size());
        sie_pack(weight.data(), packed.columns, packed.inner, panels.data());
        packed.panels = keep(panels), packed.bias = keep(bias);
        return packed;
    }

    // Positions as the columns of a table of each head; those of keys are in reverse.
    const ::weight *table(const Shape &shape, const Linear &rows, bool reversed) {
        if (!rows.out) return nullptr;
        const int64_t count = round_up(rows.out, PANEL), width = shape.width();
        std::vector<float> weight(shape.heads() * count * width, 0);
        for (int64_t head = 0; head < shape.heads(); head++)
            for (int64_t row = 0; row < rows.out; row++)
                for (int64_t i = 0; i < shape.head_size; i++)
                    weight[(head * count + (reversed ? count - 1 - row : row)) * width + i] =
                        rows.at(row, head * shape.head_size + i);
        std::vector<::weight> panels(weight.size());
        sie_pack(weight.data(), shape.heads() * count, width, panels.data());
        return keep(panels);
    }

    template <typename T> const T *keep(const std::vector<T> &values) {
        auto piece = std::make_shared<std::vector<T>>(values);
        pieces_.push_back(piece);
        return piece->data();
    }
    Norm norm(const Affine &drawn) {
        if (drawn.weight.empty()) return {};
        return {keep(drawn.weight), drawn.bias.empty() ? nullptr : keep(drawn.bias)};
    }

  private:
    std::vector<std::shared_ptr<void>> pieces_;
};

static std::vector<int64_t> in_order(int64_t count) {
    std::vector<int64_t> places(count);
    for (int64_t i = 0; i < count; i++) places[i] = i;
    return places;
}
static std::vector<int64_t> by_head(const Shape &shape, int64_t first, int64_t heads) {
    std::vector<int64_t> places;
    for (int64_t head = first; head < first + heads; head++)
        for (int64_t i = 0; i < shape.head_size; i++) places.push_back(head * shape.width() + i);
    return places;
}
static std::vector<int64_t> by_half_panel(int64_t count, int64_t half) { // the gate's rows beside those they multiply
    std::vector<int64_t> places;
    for (int64_t i = 0; i < count; i++) places.push_back(i / (PANEL / 2) * PANEL + half * (PANEL / 2) + i % (PANEL / 2));
    return places;
}

// One weight of a layer: which linear layers it joins, and where their rows and columns go.
struct Joined {
    std::vector<const Adapted *> parts;
    std::vector<std::vector<int64_t>> places;
    int64_t rows;
    std::vector<int64_t> columns;
    int64_t inner;

    Matrix pack(Packed &into) const {
        std::vector<Packed::Part> bases;
        for (size_t i = 0; i < parts.size(); i++) bases.push_back({&parts[i]->base, places[i]});
        return into.matrix(bases, rows, columns, inner);
    }
    LowRank pack_low_rank(Packed &into, int64_t &widest) const {
        std::vector<Packed::Part> lowers, uppers;
        std::vector<std::vector<int64_t>> ranks;
        Linear upper;
        int64_t rank = 0;
        for (size_t i = 0; i < parts.size(); i++)
            if (parts[i]->low.rank) {
                std::vector<int64_t> under;
                for (int64_t row = 0; row < parts[i]->low.rank; row++) under.push_back(rank++);
                lowers.push_back({&parts[i]->low.lower, under});
                ranks.push_back(under);
                uppers.push_back({&parts[i]->low.upper, places[i]});
            }
        if (!rank) return {};
        LowRank packed{into.matrix(lowers, rank, columns, inner, false), nullptr, round_up(rank, WEIGHT_STEP)};
        widest = std::max(widest, packed.lower.columns);
        std::vector<float> weight(round_up(rows, PANEL) * packed.rank, 0);
        for (size_t i = 0; i < uppers.size(); i++)
            for (int64_t row = 0; row < uppers[i].linear->out; row++)
                for (int64_t column = 0; column < uppers[i].linear->in; column++)
                    weight[uppers[i].places[row] * packed.rank + ranks[i][column]] = uppers[i].linear->at(row, column);
        std::vector<::weight> panels(weight.size());
        sie_pack(weight.data(), round_up(rows, PANEL), packed.rank, panels.data());
        packed.upper = into.keep(panels);
        return packed;
    }
};
