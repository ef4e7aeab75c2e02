// Runs encoders drawn at random through the kernels: each row must equal the reference, and be bit for bit the one that
// its sequence gives alone. `fuzz ENCODERS TOKENS SEED`; compiled by tests/cpu/native/building.py.
#include "encoder.cpp"

#include <cstdio>
#include <cstdlib>

#include "reference.h"

// Of a row's length: what rounding adds up to over three layers.
constexpr double TOLERANCE = sizeof(weight) == 4 ? 1e-4 : 0.1;

struct Kernels { // an encoder as the kernels read it, and the memory it lies in
    Packed memory;
    std::vector<Layer> layers;
    std::vector<LayerLowRank> low_rank;
    Encoder encoder;
    int64_t lowered = 0;

    Kernels(const Shape &shape, const std::vector<DrawnLayer> &drawn, const Affine &entry) {
        for (const DrawnLayer &layer : drawn) add(shape, layer);
        encoder = {layers.data(), shape.layers, shape.hidden, shape.heads(), shape.key_heads, shape.head_size,
                   shape.width(), shape.activation, shape.gated, shape.causal, shape.rms, shape.pre_norm,
                   shape.enters ? memory.norm(entry) : Norm{}, distances(shape.positions), biases(shape),
                   shape.epsilon, shape.scale};
    }

  private:
    Distances distances(const Positions &positions) {
        if (!positions.count) return {};
        return {memory.keep(positions.of), positions.farthest(), positions.own, round_up(positions.count, PANEL)};
    }
    Biases biases(const Shape &shape) {
        if (!shape.biases.of.out) return {};
        std::vector<float> unscaled = shape.biases.of.weight;
        for (float &bias : unscaled) bias /= shape.scale;
        return {memory.keep(unscaled), shape.biases.farthest};
    }
    void add(const Shape &shape, const DrawnLayer &layer) {
        const int64_t heads = shape.heads(), keys = shape.key_heads, width = shape.width();
        const int64_t inner = round_up(shape.inner, shape.gated ? PANEL / 2 : PANEL);
        const std::vector<int64_t> hidden = in_order(shape.hidden);
        const Joined joined{{&layer.query, &layer.key, &layer.value},
                            {by_head(shape, 0, heads), by_head(shape, heads, keys), by_head(shape, heads + keys, keys)},
                            (heads + 2 * keys) * width, hidden, shape.hidden};
        const Joined output{{&layer.output}, {hidden}, shape.hidden, by_head(shape, 0, heads), heads * width};
        Joined up{{&layer.up}, {in_order(shape.inner)}, shape.inner, hidden, shape.hidden};
        if (shape.gated)
            up = {{&layer.up, &layer.gate}, {by_half_panel(shape.inner, 0), by_half_panel(shape.inner, 1)}, 2 * inner,
                  hidden, shape.hidden};
        const Joined down{{&layer.down}, {hidden}, shape.hidden, in_order(shape.inner), inner};
        const weight *position_keys = memory.table(shape, layer.position_keys, true);
        const weight *position_queries = memory.table(shape, layer.position_queries, false);
        const bool low = layer.tables_of_low_rank;
        layers.push_back({joined.pack(memory), output.pack(memory), up.pack(memory), down.pack(memory),
                          memory.norm(layer.attention), memory.norm(layer.after), memory.norm(layer.attended),
                          memory.norm(layer.narrowed), of_head(shape, layer.query_norm), of_head(shape, layer.key_norm),
                          layer.window, 0, low ? nullptr : position_keys, low ? nullptr : position_queries});
        low_rank.push_back({joined.pack_low_rank(memory, lowered), output.pack_low_rank(memory, lowered),
                            up.pack_low_rank(memory, lowered), down.pack_low_rank(memory, lowered),
                            low ? position_keys : nullptr, low ? position_queries : nullptr});
    }
    const float *of_head(const Shape &shape, const Affine &norm) {
        if (norm.weight.empty()) return nullptr;
        std::vector<float> padded = norm.weight;
        padded.resize(shape.width(), 0);
        return memory.keep(padded);
    }
};

static std::vector<Row> rows_of(const std::vector<float> &values, int64_t first, int64_t last, int64_t width) {
    std::vector<Row> rows;
    for (int64_t i = first; i < last; i++)
        rows.emplace_back(values.begin() + i * width, values.begin() + (i + 1) * width);
    return rows;
}

struct Batch_ { // sequences, the states that enter or what they are made of, and the angles of their tokens
    std::vector<int64_t> offsets{0}, keys, ids, types, positions;
    std::vector<float> states, cosine, sine;
    DrawnEmbeddings drawn;
    Packed memory;
    Embeddings embeddings{};
    bool embeds, typed; // whether tokens have types, else all have the first

    Batch_(Dice &dice, const Shape &shape, int64_t tokens) {
        const int64_t longest = dice.between(1, tokens);
        do offsets.push_back(offsets.back() + std::min(dice.between(1, longest), tokens - offsets.back()));
        while (offsets.back() < tokens && offsets.size() < 60);
        for (size_t i = 1; i < offsets.size(); i++) keys.push_back(dice.between(-2, offsets[i] - offsets[i - 1] + 2));
        states = dice.normals(offsets.back() * shape.hidden, 1.0f);
        drawn = draw_embeddings(dice, shape.hidden), embeds = dice.coin(), typed = drawn.types.out && dice.coin();
        embeddings = {table(drawn.words), table(drawn.types), table(drawn.positions), memory.norm(drawn.norm),
                      shape.epsilon};
        for (int64_t i = 0; i < offsets.back(); i++) {
            ids.push_back(dice.between(0, drawn.words.out - 1));
            types.push_back(typed ? dice.between(0, drawn.types.out - 1) : 0);
            positions.push_back(drawn.positions.out ? dice.between(0, drawn.positions.out - 1) : 0);
        }
        for (int64_t i = 0; i < offsets.back() * shape.turned; i++) {
            const float angle = dice.normal();
            cosine.push_back(std::cos(angle)), sine.push_back(std::sin(angle));
        }
    }
    std::vector<Row> entering(int64_t first, int64_t last, const Shape &shape) const {
        if (!embeds) return rows_of(states, first, last, shape.hidden);
        std::vector<Row> rows;
        for (int64_t i = first; i < last; i++)
            rows.push_back(embedded_row(drawn, ids[i], types[i], positions[i], shape.epsilon));
        return rows;
    }

  private:
    Table table(const Linear &rows) { return rows.out ? Table{memory.keep(rows.weight), rows.out} : Table{}; }
};

static std::vector<float> encode(const Kernels &kernels, const Shape &shape, const Batch_ &batch, bool keyed,
                                 int64_t first, int64_t last, int64_t threads) {
    std::vector<int64_t> offsets;
    for (int64_t i = first; i <= last; i++) offsets.push_back(batch.offsets[i] - batch.offsets[first]);
    const int64_t start = batch.offsets[first];
    std::vector<float> states(batch.states.begin() + start * shape.hidden,
                              batch.states.begin() + batch.offsets[last] * shape.hidden);
    if (batch.embeds) std::fill(states.begin(), states.end(), NAN); // nothing of it may be read
    const Angles angles{batch.cosine.data() + start * shape.turned, batch.sine.data() + start * shape.turned,
                        shape.turned};
    std::vector<char> workspace;
    for (int64_t wanted = 0;; workspace.assign(wanted, (char)0xff)) { // no number: what is read unwritten shows
        wanted = sie_encode(&kernels.encoder, batch.embeds ? &batch.embeddings : nullptr, batch.ids.data() + start,
                            batch.typed ? batch.types.data() + start : nullptr, batch.positions.data() + start,
                            states.data(), offsets.data(), keyed ? batch.keys.data() + first : nullptr, last - first,
                            shape.turned ? &angles : nullptr, shape.low_rank ? kernels.low_rank.data() : nullptr,
                            kernels.lowered, threads, nullptr, workspace.data(), workspace.size());
        if (!wanted) return states;
    }
}

// The largest error of a row, relative to its length.
static double compare(const float *found, const std::vector<Row> &expected) {
    double worst = 0;
    for (const Row &row : expected) {
        double difference = 0, length = 1e-12;
        for (double value : row) difference += (*found - value) * (*found - value), length += value * value, found++;
        const double error = std::sqrt(difference / length);
        if (!(error <= worst)) worst = error; // NaN stays
    }
    return worst;
}

static void fail(uint64_t seed, const char *what, double error) {
    std::printf("encoder %llu: %s (%g)\n", (unsigned long long)seed, what, error);
    std::exit(1);
}

static void describe(const Shape &shape, const Batch_ &batch, bool keyed, int64_t threads) {
    std::printf("hidden %lld, heads %lld/%lld of %lld, inner %lld, layers %lld, activation %lld, turned %lld, gated %d, "
                "causal %d, rms %d, pre-norm %d, own norms %d, head norms %d, norm at entry %d, low rank %d, "
                "positions %lld, biases to %lld; %lld sequences, %lld tokens, keyed %d, embedded %d, %lld threads\n",
                (long long)shape.hidden, (long long)shape.heads(), (long long)shape.key_heads,
                (long long)shape.head_size, (long long)shape.inner, (long long)shape.layers,
                (long long)shape.activation, (long long)shape.turned, shape.gated, shape.causal, shape.rms,
                shape.pre_norm, shape.sandwich, shape.head_norms, shape.enters, shape.low_rank,
                (long long)shape.positions.count, (long long)shape.biases.farthest, (long long)batch.keys.size(),
                (long long)batch.offsets.back(), keyed, batch.embeds, (long long)threads);
}

static double run_one(uint64_t seed, int64_t most_tokens) {
    Dice dice(seed);
    const Shape shape = Shape::draw(dice);
    std::vector<DrawnLayer> layers;
    for (int64_t i = 0; i < shape.layers; i++) layers.push_back(draw_layer(dice, shape));
    const Affine entry = draw_norm(dice, shape.hidden, shape.rms);
    const Kernels kernels(shape, layers, entry);
    const Batch_ batch(dice, shape, dice.between(1, most_tokens));
    const bool keyed = dice.coin();
    const int64_t sequences = batch.keys.size(), threads = dice.between(1, 5);
    const std::vector<float> states = encode(kernels, shape, batch, keyed, 0, sequences, threads);
    double worst = 0;
    for (int64_t i = 0; i < sequences; i++) {
        const int64_t start = batch.offsets[i], stop = batch.offsets[i + 1];
        const std::vector<float> alone = encode(kernels, shape, batch, keyed, i, i + 1, 1);
        if (std::memcmp(alone.data(), states.data() + start * shape.hidden, alone.size() * sizeof(float)))
            fail(seed, "a sequence alone gives other states", i);
        const auto expected = Reference{shape, layers, entry}.run(
            batch.entering(start, stop, shape), keyed ? batch.keys[i] : stop - start,
            rows_of(batch.cosine, start, stop, shape.turned), rows_of(batch.sine, start, stop, shape.turned));
        const double error = compare(alone.data(), expected);
        if (!(error <= TOLERANCE)) {
            describe(shape, batch, keyed, threads);
            fail(seed, "its states are not the reference's", error);
        }
        worst = std::max(worst, error);
    }
    return worst;
}

int main(int count, char **arguments) {
    if (count != 4) return std::printf("fuzz ENCODERS TOKENS SEED\n"), 2;
    const int64_t encoders = std::atoll(arguments[1]), tokens = std::atoll(arguments[2]), seed = std::atoll(arguments[3]);
    double worst = 0;
    for (int64_t i = 0; i < encoders; i++) worst = std::max(worst, run_one(seed + i, tokens));
    std::printf("%lld encoders, largest relative error of a row %.1e\n", (long long)encoders, worst);
}
