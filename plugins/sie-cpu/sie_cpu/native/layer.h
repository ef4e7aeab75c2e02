// The stages of an encoder layer over one chunk of packed sequences, each divisible into independent items.
//
// It knows neither threads nor the order of chunks.
#pragma once

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
    element *inputs, *joined, *attended, *inner;
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

static inline Buffers take_buffers(Arena &arena, const Widths &widths, int64_t rows) {
    return {arena.take<float>(rows * widths.hidden),     arena.take<float>(rows * widths.hidden),
            arena.take<element>(rows * widths.hidden),   arena.take<element>(rows * widths.joined),
            arena.take<element>(rows * widths.attended), arena.take<element>(rows * widths.inner)};
}

static inline Scratch take_scratch(Arena &arena, const Encoder &encoder, int64_t longest, int64_t lowered) {
    const int64_t padded = round_up(longest, LANES);
    Scratch scratch;
    scratch.keys = arena.take<element>(padded * encoder.head_width);
    scratch.values = arena.take<element>(padded * encoder.head_width);
    scratch.weights = arena.take<element>(ROWS * padded);
    scratch.scores = arena.take<float>(ROWS * padded);
    scratch.lowered = arena.take<element>(lowered);
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

// One chunk on its way through the layers. Every stage takes the part of it that an item covers: panels of a product,
// heads, or rows.
class ChunkRun {
  public:
    static constexpr int64_t LAYER_STAGES = 8, KINDS = 1 + LAYER_STAGES;

    ChunkRun(const Encoder &encoder, const Widths &widths, const Buffers &buffers, const Chunk &chunk, float *states,
             const int64_t *offsets, const Angles *angles, const LayerLowRank *low_rank)
        : encoder_(encoder), widths_(widths), buffers_(buffers), chunk_(chunk), states_(states), offsets_(offsets),
          angles_(angles), low_rank_(low_rank) {}

    // Stages 0 to stages() - 1 have to follow each other; the items of one stage may run in any order, at once.
    static int64_t stages(const Encoder &encoder) { return 2 + encoder.layer_count * LAYER_STAGES; }

    // What a stage does, below KINDS: 0 enters or leaves, the others are a layer's stages in their order.
    static int64_t kind(const Encoder &encoder, int64_t stage) {
        return stage == 0 || stage == stages(encoder) - 1 ? 0 : 1 + (stage - 1) % LAYER_STAGES;
    }

    void run(int64_t stage, int64_t item, int64_t items, const Scratch &scratch) const {
        const Range rows = Range::part(chunk_.rows, item, items);
        if (stage == 0) return enter(rows);
        if (stage == stages(encoder_) - 1) return leave(rows);
        static const LayerLowRank none{};
        const Layer &layer = encoder_.layers[(stage - 1) / LAYER_STAGES];
        const LayerLowRank &low = low_rank_ ? low_rank_[(stage - 1) / LAYER_STAGES] : none;
        const auto panels = [&](const Matrix &matrix) { return Range::part(matrix.columns / PANEL, item, items); };
        switch ((stage - 1) % LAYER_STAGES) {
        case 0: return join(layer.joined, low.joined, panels(layer.joined), scratch);
        case 1: return turn(layer, rows);
        case 2: return attend_heads(layer, Range::part(encoder_.heads, item, items), scratch);
        case 3:
            return project(layer.attention_output, low.attention_output, buffers_.attended, widths_.attended,
                           panels(layer.attention_output), scratch);
        case 4: return norm(layer.attention_norm_weight, layer.attention_norm_bias, encoder_.pre_norm, rows);
        case 5: return widen_by_activation(layer.up, low.up, panels(layer.up), scratch);
        case 6: return project(layer.down, low.down, buffers_.inner, widths_.inner, panels(layer.down), scratch);
        default:
            const bool last = &layer == encoder_.layers + encoder_.layer_count - 1;
            return norm(layer.output_norm_weight, layer.output_norm_bias, encoder_.pre_norm && !last, rows);
        }
    }

  private:
    void enter(const Range &rows) const {
        for (int64_t row = rows.begin; row < rows.end; row++) {
            const float *from = states_ + (chunk_.start + row) * encoder_.hidden;
            float *to = buffers_.states + row * widths_.hidden;
            element *input = buffers_.inputs + row * widths_.hidden;
            for (int64_t i = 0; i < encoder_.hidden; i++) to[i] = from[i], input[i] = to_element(from[i]);
            for (int64_t i = encoder_.hidden; i < widths_.hidden; i++) to[i] = 0, input[i] = 0;
        }
    }

    void leave(const Range &rows) const {
        for (int64_t row = rows.begin; row < rows.end; row++)
            std::memcpy(states_ + (chunk_.start + row) * encoder_.hidden, buffers_.states + row * widths_.hidden,
                        encoder_.hidden * sizeof(float));
    }

    // The chunk's rows through the first of two low-rank factors, into the thread's own memory.
    Correction lower(const LowRank &low, const element *from, int64_t stride, const Scratch &scratch) const {
        if (!low.rank) return {};
        const int64_t columns = low.lower.columns;
        for (int64_t panel = 0; panel < columns / PANEL; panel++)
            panel_product(from, stride, chunk_.rows, low.lower, panel, {}, [&](int64_t row, vec(&sums)[VECTORS]) {
                element *to = scratch.lowered + row * columns + panel * PANEL;
                for (int v = 0; v < VECTORS; v++) store(to + v * LANES, sums[v]);
            });
        return {scratch.lowered, columns, low.upper, low.rank};
    }

    void join(const Matrix &matrix, const LowRank &low, const Range &panels, const Scratch &scratch) const {
        const Correction correction = lower(low, buffers_.inputs, widths_.hidden, scratch);
        for (int64_t panel = panels.begin; panel < panels.end; panel++)
            panel_product(buffers_.inputs, widths_.hidden, chunk_.rows, matrix, panel, correction,
                          [&](int64_t row, vec(&sums)[VECTORS]) {
                              element *to = buffers_.joined + row * widths_.joined + panel * PANEL;
                              for (int v = 0; v < VECTORS; v++) store(to + v * LANES, sums[v]);
                          });
    }

    void turn(const Layer &layer, const Range &rows) const {
        if (!angles_) return;
        const Angles &angles = angles_[layer.angles];
        for (int64_t row = rows.begin; row < rows.end; row++) {
            const int64_t place = (chunk_.start + row) * angles.width;
            rotate(buffers_.joined + row * widths_.joined, 2 * encoder_.heads, encoder_.head_width,
                   angles.cosine + place, angles.sine + place, angles.width);
        }
    }

    void attend_heads(const Layer &layer, const Range &heads, const Scratch &scratch) const {
        const int64_t third = encoder_.heads * encoder_.head_width;
        for (int64_t sequence = chunk_.first; sequence < chunk_.last; sequence++) {
            const int64_t start = offsets_[sequence] - chunk_.start;
            const int64_t length = offsets_[sequence + 1] - offsets_[sequence];
            for (int64_t head = heads.begin; head < heads.end; head++) {
                const element *query = buffers_.joined + start * widths_.joined + head * encoder_.head_width;
                attend(query, query + third, query + 2 * third, widths_.joined, length, encoder_.head_width,
                       layer.window, encoder_.scale, scratch,
                       buffers_.attended + start * widths_.attended + head * encoder_.head_width, widths_.attended);
            }
        }
    }

    // Adds a product to the states it came from.
    void project(const Matrix &matrix, const LowRank &low, const element *from, int64_t stride, const Range &panels,
                 const Scratch &scratch) const {
        const Correction correction = lower(low, from, stride, scratch);
        for (int64_t panel = panels.begin; panel < panels.end; panel++)
            panel_product(from, stride, chunk_.rows, matrix, panel, correction, [&](int64_t row, vec(&sums)[VECTORS]) {
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

    template <int activation>
    void widen(const Matrix &matrix, const LowRank &low, const Range &panels, const Scratch &scratch) const {
        const Correction correction = lower(low, buffers_.inputs, widths_.hidden, scratch);
        for (int64_t panel = panels.begin; panel < panels.end; panel++)
            panel_product(buffers_.inputs, widths_.hidden, chunk_.rows, matrix, panel, correction,
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

    void widen_by_activation(const Matrix &matrix, const LowRank &low, const Range &panels,
                             const Scratch &scratch) const {
        switch (encoder_.activation) {
        case GELU: return widen<GELU>(matrix, low, panels, scratch);
        case GELU_TANH: return widen<GELU_TANH>(matrix, low, panels, scratch);
        case RELU: return widen<RELU>(matrix, low, panels, scratch);
        case SILU: return widen<SILU>(matrix, low, panels, scratch);
        default: return widen<NONE>(matrix, low, panels, scratch);
        }
    }

    const Encoder &encoder_;
    const Widths &widths_;
    const Buffers buffers_;
    const Chunk chunk_;
    float *const states_;
    const int64_t *const offsets_;
    const Angles *const angles_;         // null where positions are not rotary
    const LayerLowRank *const low_rank_; // of each layer, or null
};
