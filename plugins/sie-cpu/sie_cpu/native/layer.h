// The stages of an encoder layer over one chunk of packed sequences, each divisible into independent items.
//
// It knows neither threads nor the order of chunks.
#pragma once

#include <algorithm>
#include <cmath>

#include "attention.h"

struct Layer {
    Matrix joined, attention_output, up, down; // `joined`: queries, keys, values; `up`: gate beside it where gated
    const float *attention_norm_weight, *attention_norm_bias, *output_norm_weight, *output_norm_bias;
    int64_t window; // how far a token sees, see attend(); 0: everything
    int64_t angles; // which of the rotary angles are its own
};

struct LowRank {          // what is added to a weight: `upper` times `lower`; nothing where `rank` is 0
    Matrix lower;         // `[rank padded to PANEL, inner]`, no bias
    const element *upper; // panels as the weight's own, `rank` inside
    int64_t rank;         // a multiple of STEP
};

struct LayerLowRank {
    LowRank joined, attention_output, up, down;
};

struct Encoder {
    const Layer *layers;
    int64_t layer_count, hidden, heads, head_width; // head_width: a head's elements, padded to LANES
    int64_t activation, gated;
    int64_t pre_norm; // normalised states enter products only; the norms of a layer are those that follow its parts
    float norm_epsilon, scale;
};

struct Angles { // of rotary positions, `[tokens, width]` each
    const float *cosine, *sine;
    int64_t width;
};

struct Chunk {
    int64_t first, last; // sequences
    int64_t start, rows; // tokens
};

struct Range { // the part of a stage that one item of work covers
    int64_t begin, end;
    static Range part(int64_t count, int64_t item, int64_t items) {
        return {count * item / items, count * (item + 1) / items};
    }
};

struct Buffers { // activations of one chunk; the scratch is each thread's own
    float *states, *sums;
    element *inputs, *joined, *attended, *inner, *lowered; // lowered: what low rank makes of the input of a product
};

struct Widths { // row strides of the buffers
    int64_t hidden, joined, attended, inner;
    explicit Widths(const Encoder &encoder)
        : hidden(round_up(encoder.hidden, PANEL)), joined(encoder.layers[0].joined.columns),
          attended(encoder.layers[0].attention_output.inner), inner(encoder.layers[0].down.inner) {}
};

class Arena { // hands out aligned pieces of one block; with no block it only counts
  public:
    explicit Arena(char *block) : block_(block) {}
    template <typename T> T *take(int64_t count) {
        T *piece = block_ ? reinterpret_cast<T *>(block_ + used_) : nullptr;
        used_ += round_up(count * (int64_t)sizeof(T), 64);
        return piece;
    }
    int64_t used() const { return used_; }

  private:
    char *block_;
    int64_t used_ = 0;
};

static inline Buffers take_buffers(Arena &arena, const Widths &widths, int64_t rows, int64_t lowered) {
    return {arena.take<float>(rows * widths.hidden),     arena.take<float>(rows * widths.hidden),
            arena.take<element>(rows * widths.hidden),   arena.take<element>(rows * widths.joined),
            arena.take<element>(rows * widths.attended), arena.take<element>(rows * widths.inner),
            arena.take<element>(rows * lowered)};
}

static inline Scratch take_scratch(Arena &arena, const Encoder &encoder, int64_t longest) {
    const int64_t padded = round_up(longest, LANES);
    Scratch scratch;
    scratch.keys = arena.take<element>(padded * encoder.head_width);
    scratch.values = arena.take<element>(padded * encoder.head_width);
    scratch.weights = arena.take<element>(ROWS * padded);
    scratch.scores = arena.take<float>(ROWS * padded);
    return scratch;
}

// LayerNorm of a row of `from` into `to`, and as elements into `input`; zeros up to `stride`.
static inline void normalise(const float *from, int64_t hidden, int64_t stride, const float *weight, const float *bias,
                             float epsilon, float *to, element *input) {
    const int64_t whole = hidden / LANES * LANES;
    vec total = vec{};
    for (int64_t i = 0; i < whole; i += LANES) total += load(from + i);
    float mean = sum_of(total);
    for (int64_t i = whole; i < hidden; i++) mean += from[i];
    mean /= hidden;
    vec squares = vec{};
    for (int64_t i = 0; i < whole; i += LANES) {
        const vec centred = load(from + i) - mean;
        squares += centred * centred;
    }
    float variance = sum_of(squares);
    for (int64_t i = whole; i < hidden; i++) variance += (from[i] - mean) * (from[i] - mean);
    const float factor = 1.0f / std::sqrt(variance / hidden + epsilon);
    for (int64_t i = 0; i < whole; i += LANES) {
        const vec value = (load(from + i) - mean) * factor * load(weight + i) + load(bias + i);
        store(to + i, value);
        store(input + i, value);
    }
    for (int64_t i = whole; i < hidden; i++) {
        to[i] = (from[i] - mean) * factor * weight[i] + bias[i];
        input[i] = to_element(to[i]);
    }
    for (int64_t i = hidden; i < stride; i++) to[i] = 0, input[i] = 0;
}

// Rotates queries and keys of a row, halves paired (arXiv 2104.09864).
static inline void rotate(element *row, int64_t heads, int64_t head_width, const float *cosine, const float *sine,
                          int64_t width) {
    const int64_t half = width / 2;
    for (int64_t head = 0; head < heads; head++) {
        element *first = row + head * head_width, *second = first + half;
        for (int64_t i = 0; i < half; i++) {
            const float a = to_float(first[i]), b = to_float(second[i]);
            first[i] = to_element(a * cosine[i] - b * sine[i]);
            second[i] = to_element(b * cosine[half + i] + a * sine[half + i]);
        }
    }
}

// What every chunk of a batch has in common.
struct Batch {
    const Encoder &encoder;
    const Widths widths;
    float *const states;
    const int64_t *const offsets;       // where each sequence starts
    const int64_t *const keys;          // how many tokens of each are seen; null: all
    const Angles *const angles;         // null where positions are not rotary
    const LayerLowRank *const low_rank; // of each layer, or null
};

// The parts of a layer in their order; those that lower compute what low rank adds to the product that follows.
enum Part {
    LOWER_JOINED,
    JOIN,
    TURN,
    ATTEND,
    LOWER_OUTPUT,
    OUTPUT,
    ATTENTION_NORM,
    LOWER_UP,
    UP,
    LOWER_DOWN,
    DOWN,
    OUTPUT_NORM,
    PARTS
};
constexpr int64_t KIND[PARTS] = {1, 1, 2, 3, 4, 4, 5, 6, 6, 7, 7, 8}; // what a part's time counts as
constexpr int64_t KINDS = 9;                                          // with entering and leaving, which is 0

// The stages of a batch: to enter, the parts of each layer that it needs, to leave. They have to follow each other;
// the items of one stage may run in any order, at once.
class Stages {
  public:
    explicit Stages(const Batch &batch) : layers_(batch.encoder.layer_count) {
        for (int part = 0; part < PARTS; part++) {
            const bool lowers = part == LOWER_JOINED || part == LOWER_OUTPUT || part == LOWER_UP || part == LOWER_DOWN;
            if ((batch.low_rank || !lowers) && (batch.angles || part != TURN)) parts_[a_layer_++] = (Part)part;
        }
    }
    int64_t count() const { return 2 + layers_ * a_layer_; }
    bool enters(int64_t stage) const { return stage == 0; }
    bool leaves(int64_t stage) const { return stage == count() - 1; }
    int64_t layer(int64_t stage) const { return (stage - 1) / a_layer_; }
    Part part(int64_t stage) const { return parts_[(stage - 1) % a_layer_]; }
    int64_t kind(int64_t stage) const { return enters(stage) || leaves(stage) ? 0 : KIND[part(stage)]; }

  private:
    const int64_t layers_;
    Part parts_[PARTS];
    int64_t a_layer_ = 0;
};

// One chunk on its way through the layers. Every stage takes the part of it that an item covers: panels of a product,
// heads, or rows.
class ChunkRun {
  public:
    ChunkRun(const Batch &batch, const Stages &stages, const Buffers &buffers, const Chunk &chunk)
        : batch_(batch), stages_(stages), encoder_(batch.encoder), widths_(batch.widths), buffers_(buffers),
          chunk_(chunk) {}

    void run(int64_t stage, int64_t item, int64_t items, const Scratch &scratch) const {
        const Range rows = Range::part(chunk_.rows, item, items);
        if (stages_.enters(stage)) return enter(rows);
        if (stages_.leaves(stage)) return leave(rows);
        static const LayerLowRank none{};
        const Layer &layer = encoder_.layers[stages_.layer(stage)];
        const LayerLowRank &low = batch_.low_rank ? batch_.low_rank[stages_.layer(stage)] : none;
        const auto panels = [&](const Matrix &matrix) { return Range::part(matrix.columns / PANEL, item, items); };
        switch (stages_.part(stage)) {
        case LOWER_JOINED: return lower(low.joined, buffers_.inputs, widths_.hidden, rows);
        case JOIN: return join(layer.joined, low.joined, panels(layer.joined));
        case TURN: return turn(layer, rows);
        case ATTEND: return attend_heads(layer, Range::part(encoder_.heads, item, items), scratch);
        case LOWER_OUTPUT: return lower(low.attention_output, buffers_.attended, widths_.attended, rows);
        case OUTPUT:
            return project(layer.attention_output, low.attention_output, buffers_.attended, widths_.attended,
                           panels(layer.attention_output));
        case ATTENTION_NORM:
            return norm(layer.attention_norm_weight, layer.attention_norm_bias, encoder_.pre_norm, rows);
        case LOWER_UP: return lower(low.up, buffers_.inputs, widths_.hidden, rows);
        case UP: return widen_by_activation(layer.up, low.up, panels(layer.up));
        case LOWER_DOWN: return lower(low.down, buffers_.inner, widths_.inner, rows);
        case DOWN: return project(layer.down, low.down, buffers_.inner, widths_.inner, panels(layer.down));
        default:
            const bool last = &layer == encoder_.layers + encoder_.layer_count - 1;
            return norm(layer.output_norm_weight, layer.output_norm_bias, encoder_.pre_norm && !last, rows);
        }
    }

  private:
    void enter(const Range &rows) const {
        for (int64_t row = rows.begin; row < rows.end; row++) {
            const float *from = batch_.states + (chunk_.start + row) * encoder_.hidden;
            float *to = buffers_.states + row * widths_.hidden;
            element *input = buffers_.inputs + row * widths_.hidden;
            for (int64_t i = 0; i < encoder_.hidden; i++) to[i] = from[i], input[i] = to_element(from[i]);
            for (int64_t i = encoder_.hidden; i < widths_.hidden; i++) to[i] = 0, input[i] = 0;
        }
    }

    void leave(const Range &rows) const {
        for (int64_t row = rows.begin; row < rows.end; row++)
            std::memcpy(batch_.states + (chunk_.start + row) * encoder_.hidden, buffers_.states + row * widths_.hidden,
                        encoder_.hidden * sizeof(float));
    }

    // Rows through the first of two low-rank factors.
    void lower(const LowRank &low, const element *from, int64_t stride, const Range &rows) const {
        if (!low.rank) return;
        const int64_t columns = low.lower.columns;
        for (int64_t panel = 0; panel < columns / PANEL; panel++)
            panel_product(from + rows.begin * stride, stride, rows.end - rows.begin, low.lower, panel, {},
                          [&](int64_t row, vec(&sums)[VECTORS]) {
                              element *to = buffers_.lowered + (rows.begin + row) * columns + panel * PANEL;
                              for (int v = 0; v < VECTORS; v++) store(to + v * LANES, sums[v]);
                          });
    }

    // What the second adds to a product, of rows that are lowered.
    Correction correction(const LowRank &low) const {
        if (!low.rank) return {};
        return {buffers_.lowered, low.lower.columns, low.upper, low.rank};
    }

    void join(const Matrix &matrix, const LowRank &low, const Range &panels) const {
        for (int64_t panel = panels.begin; panel < panels.end; panel++)
            panel_product(buffers_.inputs, widths_.hidden, chunk_.rows, matrix, panel, correction(low),
                          [&](int64_t row, vec(&sums)[VECTORS]) {
                              element *to = buffers_.joined + row * widths_.joined + panel * PANEL;
                              for (int v = 0; v < VECTORS; v++) store(to + v * LANES, sums[v]);
                          });
    }

    void turn(const Layer &layer, const Range &rows) const {
        const Angles &angles = batch_.angles[layer.angles];
        for (int64_t row = rows.begin; row < rows.end; row++) {
            const int64_t place = (chunk_.start + row) * angles.width;
            rotate(buffers_.joined + row * widths_.joined, 2 * encoder_.heads, encoder_.head_width,
                   angles.cosine + place, angles.sine + place, angles.width);
        }
    }

    void attend_heads(const Layer &layer, const Range &heads, const Scratch &scratch) const {
        const int64_t third = encoder_.heads * encoder_.head_width;
        for (int64_t sequence = chunk_.first; sequence < chunk_.last; sequence++) {
            const int64_t start = batch_.offsets[sequence] - chunk_.start;
            const int64_t length = batch_.offsets[sequence + 1] - batch_.offsets[sequence];
            const int64_t keys = batch_.keys ? std::clamp<int64_t>(batch_.keys[sequence], 0, length) : length;
            for (int64_t head = heads.begin; head < heads.end; head++) {
                const element *query = buffers_.joined + start * widths_.joined + head * encoder_.head_width;
                attend(query, query + third, query + 2 * third, widths_.joined, length, keys, encoder_.head_width,
                       layer.window, encoder_.scale, scratch,
                       buffers_.attended + start * widths_.attended + head * encoder_.head_width, widths_.attended);
            }
        }
    }

    // Adds a product to the states it came from.
    void project(const Matrix &matrix, const LowRank &low, const element *from, int64_t stride,
                 const Range &panels) const {
        for (int64_t panel = panels.begin; panel < panels.end; panel++)
            panel_product(
                from, stride, chunk_.rows, matrix, panel, correction(low), [&](int64_t row, vec(&sums)[VECTORS]) {
                    const int64_t place = row * widths_.hidden + panel * PANEL;
                    for (int v = 0; v < VECTORS; v++)
                        store(buffers_.sums + place + v * LANES, sums[v] + load(buffers_.states + place + v * LANES));
                });
    }

    // Normalises the sums into what enters the next product, and into the states unless those keep the sums.
    void norm(const float *weight, const float *bias, bool keep_sums, const Range &rows) const {
        for (int64_t row = rows.begin; row < rows.end; row++) {
            const int64_t place = row * widths_.hidden;
            normalise(buffers_.sums + place, encoder_.hidden, widths_.hidden, weight, bias, encoder_.norm_epsilon,
                      buffers_.states + place, buffers_.inputs + place);
            if (keep_sums) std::memcpy(buffers_.states + place, buffers_.sums + place, widths_.hidden * sizeof(float));
        }
    }

    template <int activation> void widen(const Matrix &matrix, const LowRank &low, const Range &panels) const {
        for (int64_t panel = panels.begin; panel < panels.end; panel++)
            panel_product(buffers_.inputs, widths_.hidden, chunk_.rows, matrix, panel, correction(low),
                          [&](int64_t row, vec(&sums)[VECTORS]) {
                              element *to = buffers_.inner + row * widths_.inner;
                              if (encoder_.gated) { // a panel holds as many columns of the gate beside its own
                                  constexpr int half = VECTORS / 2;
                                  for (int v = 0; v < half; v++)
                                      store(to + (panel * half + v) * LANES,
                                            sums[v] * activate<activation>(sums[half + v]));
                              } else {
                                  for (int v = 0; v < VECTORS; v++)
                                      store(to + panel * PANEL + v * LANES, activate<activation>(sums[v]));
                              }
                          });
    }

    void widen_by_activation(const Matrix &matrix, const LowRank &low, const Range &panels) const {
        switch (encoder_.activation) {
        case GELU: return widen<GELU>(matrix, low, panels);
        case GELU_TANH: return widen<GELU_TANH>(matrix, low, panels);
        case RELU: return widen<RELU>(matrix, low, panels);
        case SILU: return widen<SILU>(matrix, low, panels);
        default: return widen<NONE>(matrix, low, panels);
        }
    }

    const Batch &batch_;
    const Stages &stages_;
    const Encoder &encoder_;
    const Widths &widths_;
    const Buffers buffers_;
    const Chunk chunk_;
};
