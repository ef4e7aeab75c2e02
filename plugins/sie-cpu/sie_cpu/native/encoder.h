// The structures of an encoder, field by field as in sie_cpu/structures.py; kernels.py compares their sizes at load.
#pragma once

#include "product.h"

struct Norm {
    const float *weight; // null: no norm
    const float *bias;   // null for RMSNorm
};

struct Layer {
    Matrix joined, attention_output, up, down; // `joined`: queries, keys, values; `up`: with the gate, if any
    Norm attention, output;                    // of the residual sums: input of the feed-forward part, and of the next
                                               // layer; with pre_norm, null if the next layer is in another call
    Norm post_attention, post_mlp;             // of a part's output, before the residual sum
    const float *query_norm, *key_norm;        // RMSNorm of a head's elements, zero-padded; or null
    int64_t window;                            // attention window, see Visibility; 0: unlimited
    int64_t angles;                            // index of the layer's rotary angles
    const weight *position_keys;               // for disentangled attention, see Distances; or null
    const weight *position_queries;
};

struct LowRank {          // a LoRA delta of a weight: `upper` times `lower`; none if `rank` is 0
    Matrix lower;         // `[rank padded to PANEL, inner]`, no bias
    const weight *upper; // panels as the weight's own, `rank` inside
    int64_t rank;        // a multiple of WEIGHT_STEP
};

struct LayerLowRank {
    LowRank joined, attention_output, up, down;
    const weight *position_keys, *position_queries; // in place of the layer's own; or null
};

// Disentangled attention (arXiv 2006.03654): maps a distance to its column in the tables of position keys and queries.
// The tables hold `count` columns for each head, in panels; the columns of keys are in reverse.
struct Distances {
    const int32_t *columns; // for distances from -farthest to farthest; ascending
    int64_t farthest;       // larger distances share its column
    int64_t own;            // distances up to this one have separate, adjacent columns
    int64_t count;          // a multiple of PANEL; 0: no disentangled attention
};

// A number for each head and distance, added to the attention scores (arXiv 1910.10683, section 2.1).
struct Biases {
    const float *numbers; // `[heads][2 * farthest + 1]`, divided by the scale of the scores; null: none
    int64_t farthest;     // the distance of a key from its query is from -farthest to farthest; larger ones share these
};

struct Table { // an embedding table, `[count, hidden]`
    const float *rows; // null: none
    int64_t count;
};

// Computes the first states: a row of each table, added up in this order, then the norm of the sum, if any.
struct Embeddings {
    Table words, types, positions;
    Norm norm; // LayerNorm
    float epsilon;
};

struct Encoder {
    const Layer *layers;
    int64_t layer_count, hidden;
    int64_t heads, key_heads;      // `heads` is a multiple of `key_heads`
    int64_t head_size, head_width; // elements of a head, and the same padded to LANES
    int64_t activation, gated, causal;
    int64_t rms;      // whether norms are RMSNorm (arXiv 1910.07467), LayerNorm otherwise
    int64_t pre_norm; // whether norms apply only to the inputs of products, not to the residual
    Norm entry;       // of the first layer's input
    Distances distances;
    Biases biases;
    float norm_epsilon, scale;
};

struct Tokens { // row indices in the embedding tables; null if there is no such table, or all are 0
    const int64_t *ids, *types, *positions;
};

struct Angles { // rotary angles, `[tokens, width]` each
    const float *cosine, *sine;
    int64_t width;
};
