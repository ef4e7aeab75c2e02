// The stages of an encoder layer over one chunk of packed sequences, each divisible into independent items.
#pragma once

#include <algorithm>

#include "attention/head.h"
#include "buffers.h"
#include "rows.h"

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

// Shared by all chunks of a batch.
struct Batch {
    const Encoder &encoder;
    const Widths widths;
    float *const states;                // of all tokens: the output, and without embeddings the input
    const Embeddings *const embeddings; // compute the input from `tokens`, or null
    const Tokens tokens;
    const int64_t *const offsets;       // start of each sequence
    const int64_t *const keys;          // number of key tokens of each sequence; null: all
    const Angles *const angles;         // null if positions are not rotary
    const LayerLowRank *const low_rank; // for each layer, or null
};

// The parts of a layer in their order; LORA_DOWN_* multiply by LoRA's first factor for the product that follows.
enum Part {
    LORA_DOWN_QKV,
    QKV,
    ROTATE,
    ATTEND,
    LORA_DOWN_OUTPUT,
    OUTPUT,
    ATTENTION_NORM,
    LORA_DOWN_UP,
    UP,
    LORA_DOWN_DOWN,
    DOWN,
    OUTPUT_NORM,
    PARTS
};
constexpr int64_t KIND[PARTS] = {1, 1, 2, 3, 4, 4, 5, 6, 6, 7, 7, 8}; // the stopwatch counter of each part
constexpr int64_t KINDS = 9;                                          // including embedding and storing, counter 0

// The stages of a batch: embed, the required parts of each layer, store. Stages run one after another; the items of one
// stage may run in any order, in parallel.
class Stages {
  public:
    explicit Stages(const Batch &batch) : layers_(batch.encoder.layer_count) {
        const Layer &layer = batch.encoder.layers[0];
        const bool rotates = batch.angles || layer.query_norm || layer.key_norm;
        for (int part = 0; part < PARTS; part++) {
            const bool is_lora_down = part == LORA_DOWN_QKV || part == LORA_DOWN_OUTPUT || part == LORA_DOWN_UP ||
                                      part == LORA_DOWN_DOWN;
            if ((batch.low_rank || !is_lora_down) && (rotates || part != ROTATE)) parts_[a_layer_++] = (Part)part;
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

// Runs one chunk through the layers. An item covers a part of a stage: panels of a product, heads, or rows.
class ChunkRun {
  public:
    ChunkRun(const Batch &batch, const Stages &stages, const Buffers &buffers, const Scratch &scratch,
             const Chunk &chunk)
        : batch_(batch), stages_(stages), encoder_(batch.encoder), widths_(batch.widths), buffers_(buffers),
          scratch_(scratch), chunk_(chunk) {}

    void run(int64_t stage, int64_t item, int64_t items) const {
        const Range rows = Range::part(chunk_.rows, item, items);
        if (stages_.enters(stage)) return embed_rows(rows);
        if (stages_.leaves(stage)) return store_rows(rows);
        static const LayerLowRank none{};
        const Layer &layer = encoder_.layers[stages_.layer(stage)];
        const LayerLowRank &low = batch_.low_rank ? batch_.low_rank[stages_.layer(stage)] : none;
        const auto panels = [&](const Matrix &matrix) { return Range::part(matrix.columns / PANEL, item, items); };
        switch (stages_.part(stage)) {
        case LORA_DOWN_QKV: return lora_down(low.joined, buffers_.inputs, widths_.hidden, rows);
        case QKV: return qkv(layer.joined, low.joined, panels(layer.joined));
        case ROTATE: return rotate_heads(layer, rows);
        case ATTEND: return attend_heads(layer, low, Range::part(encoder_.heads, item, items));
        case LORA_DOWN_OUTPUT: return lora_down(low.attention_output, buffers_.attended, widths_.attended, rows);
        case OUTPUT:
            return project(layer.attention_output, low.attention_output, layer.post_attention, buffers_.attended,
                           widths_.attended, panels(layer.attention_output));
        case ATTENTION_NORM: return norm(layer.post_attention, layer.attention, !encoder_.pre_norm, rows);
        case LORA_DOWN_UP: return lora_down(low.up, buffers_.inputs, widths_.hidden, rows);
        case UP: return widen_by_activation(layer.up, low.up, panels(layer.up));
        case LORA_DOWN_DOWN: return lora_down(low.down, buffers_.inner, widths_.inner, rows);
        case DOWN:
            return project(layer.down, low.down, layer.post_mlp, buffers_.inner, widths_.inner, panels(layer.down));
        default:
            const bool last = &layer == encoder_.layers + encoder_.layer_count - 1;
            return norm(layer.post_mlp, layer.output, !encoder_.pre_norm || last, rows);
        }
    }

  private:
    void embed_rows(const Range &rows) const {
        for (int64_t row = rows.begin; row < rows.end; row++) {
            const int64_t token = chunk_.start + row;
            float *to = buffers_.states + row * widths_.hidden;
            element *input = buffers_.inputs + row * widths_.hidden;
            if (batch_.embeddings) embed(*batch_.embeddings, batch_.tokens, token, encoder_.hidden, to);
            else std::memcpy(to, batch_.states + token * encoder_.hidden, encoder_.hidden * sizeof(float));
            for (int64_t i = 0; i < encoder_.hidden; i++) input[i] = to_element(to[i]);
            for (int64_t i = encoder_.hidden; i < widths_.hidden; i++) to[i] = 0, input[i] = 0;
            if (encoder_.entry.weight) normalise(encoder_, encoder_.entry, to, nullptr, input);
        }
    }

    void store_rows(const Range &rows) const {
        for (int64_t row = rows.begin; row < rows.end; row++)
            std::memcpy(batch_.states + (chunk_.start + row) * encoder_.hidden, buffers_.states + row * widths_.hidden,
                        encoder_.hidden * sizeof(float));
    }

    // Multiplies rows by the first LoRA factor.
    void lora_down(const LowRank &low, const element *from, int64_t stride, const Range &rows) const {
        if (!low.rank) return;
        const int64_t columns = low.lower.columns;
        for (int64_t panel = 0; panel < columns / PANEL; panel++)
            panel_product(from + rows.begin * stride, stride, rows.end - rows.begin, low.lower, panel, {}, scratch_.widened,
                          [&](int64_t row, vec(&sums)[VECTORS]) {
                              element *to = buffers_.lowered + (rows.begin + row) * columns + panel * PANEL;
                              for (int v = 0; v < VECTORS; v++) store(to + v * LANES, sums[v]);
                          });
    }

    // The second LoRA factor, applied to the rows of `lora_down`.
    Correction correction(const LowRank &low) const {
        if (!low.rank) return {};
        return {buffers_.lowered, low.lower.columns, low.upper, low.rank};
    }

    void qkv(const Matrix &matrix, const LowRank &low, const Range &panels) const {
        for (int64_t panel = panels.begin; panel < panels.end; panel++)
            panel_product(buffers_.inputs, widths_.hidden, chunk_.rows, matrix, panel, correction(low), scratch_.widened,
                          [&](int64_t row, vec(&sums)[VECTORS]) {
                              element *to = buffers_.joined + row * widths_.joined + panel * PANEL;
                              for (int v = 0; v < VECTORS; v++) store(to + v * LANES, sums[v]);
                          });
    }

    void rotate_heads(const Layer &layer, const Range &rows) const {
        static const Angles still{};
        const Angles &angles = batch_.angles ? batch_.angles[layer.angles] : still;
        for (int64_t row = rows.begin; row < rows.end; row++) {
            const int64_t place = (chunk_.start + row) * angles.width;
            element *first = buffers_.joined + row * widths_.joined;
            for (int64_t i = 0; i < encoder_.heads + encoder_.key_heads; i++) {
                const Head head(first + i * encoder_.head_width, i < encoder_.heads ? layer.query_norm : layer.key_norm,
                                encoder_.head_size, encoder_.head_width, encoder_.norm_epsilon);
                rotate_head(head, encoder_.head_size, angles.cosine + place, angles.sine + place, angles.width);
            }
        }
    }

    void attend_heads(const Layer &layer, const LayerLowRank &low, const Range &heads) const {
        const Distances &distances = encoder_.distances;
        const weight *position_keys = low.position_keys ? low.position_keys : layer.position_keys;
        const weight *position_queries = low.position_queries ? low.position_queries : layer.position_queries;
        const int64_t width = encoder_.head_width, group = encoder_.heads / encoder_.key_heads;
        for (int64_t sequence = chunk_.first; sequence < chunk_.last; sequence++) {
            const int64_t start = batch_.offsets[sequence] - chunk_.start;
            const int64_t length = batch_.offsets[sequence + 1] - batch_.offsets[sequence];
            const int64_t keys = batch_.keys ? std::clamp<int64_t>(batch_.keys[sequence], 0, length) : length;
            const Visibility visibility(layer.window, encoder_.causal, length);
            const element *first = buffers_.joined + start * widths_.joined;
            int64_t laid_out = -1; // heads of a group share their keys
            for (int64_t head = heads.begin; head < heads.end; head++) {
                const element *query = first + head * width, *key = first + (encoder_.heads + head / group) * width;
                element *output = buffers_.attended + start * widths_.attended + head * width;
                if (head / group != laid_out) {
                    laid_out = head / group;
                    lay_out(key, key + encoder_.key_heads * width, widths_.joined, keys, width, scratch_);
                }
                const float *biases = nullptr;
                if (encoder_.biases.numbers)
                    biases = lay_out_biases(encoder_.biases, head, length, keys, scratch_.biases);
                const auto attend_by = [&](const DistanceScores *scores) {
                    attend(query, widths_.joined, length, keys, width, visibility, encoder_.scale, scores, biases,
                           scratch_, output, widths_.attended);
                };
                if (!distances.count) {
                    attend_by(nullptr);
                    continue;
                }
                const int64_t table = head * distances.count * width;
                const DistanceScores scores(distances, position_keys + table, position_queries + table, length, keys,
                                            width, scratch_.of_queries, scratch_.of_keys);
                scores.score_keys(key, widths_.joined);
                attend_by(&scores);
            }
        }
    }

    // Writes a product plus the residual to the sums, or with pre_norm to the states. A product with a norm of its own
    // is written without the residual.
    void project(const Matrix &matrix, const LowRank &low, const Norm &own, const element *from, int64_t stride,
                 const Range &panels) const {
        float *to = encoder_.pre_norm && !own.weight ? buffers_.states : buffers_.sums;
        for (int64_t panel = panels.begin; panel < panels.end; panel++)
            panel_product(from, stride, chunk_.rows, matrix, panel, correction(low), scratch_.widened,
                          [&](int64_t row, vec(&sums)[VECTORS]) {
                              const int64_t place = row * widths_.hidden + panel * PANEL;
                              for (int v = 0; v < VECTORS; v++) {
                                  const int64_t at = place + v * LANES;
                                  store(to + at, own.weight ? sums[v] : sums[v] + load(buffers_.states + at));
                              }
                          });
    }

    // Adds a part's output, normalised if it has a norm of its own, and normalises the sum for the next product; with
    // `stays`, the normalised sum also becomes the residual.
    void norm(const Norm &own, const Norm &next, bool stays, const Range &rows) const {
        for (int64_t row = rows.begin; row < rows.end; row++) {
            const int64_t place = row * widths_.hidden;
            float *states = buffers_.states + place, *sums = buffers_.sums + place;
            if (own.weight) add_normalised(encoder_, own, sums, states);
            if (next.weight) // otherwise another call continues with the sum
                normalise(encoder_, next, encoder_.pre_norm ? states : sums, stays ? states : nullptr,
                          buffers_.inputs + place);
        }
    }

    template <int activation> void widen(const Matrix &matrix, const LowRank &low, const Range &panels) const {
        for (int64_t panel = panels.begin; panel < panels.end; panel++)
            panel_product(buffers_.inputs, widths_.hidden, chunk_.rows, matrix, panel, correction(low), scratch_.widened,
                          [&](int64_t row, vec(&sums)[VECTORS]) {
                              element *to = buffers_.inner + row * widths_.inner;
                              if (encoder_.gated) { // half of a panel's columns are the gate's
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
    const Scratch scratch_;
    const Chunk chunk_;
};
