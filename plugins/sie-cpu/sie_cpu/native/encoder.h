// The structures of an encoder, field by field those of sie_cpu/structures.py; kernels.py compares their sizes at load.
#pragma once

#include "product.h"

struct Norm {
    const float *weight; // null: no norm
    const float *bias;   // null for RMSNorm
};

struct Layer {
    Matrix joined, attention_output, up, down; // `joined`: queries, keys, values; `up`: gate beside it where gated
    Norm attention, output;                    // of the sums: what the feed-forward part takes, and the next layer;
                                               // before products only, null where the next layer is in another call
    Norm attended, narrowed;                   // of what a part gives, before it is added
    const float *query_norm, *key_norm;        // RMSNorm of a head's elements, zeros where it is padded; or null
    int64_t window;                            // how far a token sees, see Sight; 0: everything
    int64_t angles;                            // which of the rotary angles are its own
    const weight *position_keys;               // of disentangled attention, see Distances; or null
    const weight *position_queries;
};

struct LowRank {          // what is added to a weight: `upper` times `lower`; nothing where `rank` is 0
    Matrix lower;         // `[rank padded to PANEL, inner]`, no bias
    const weight *upper; // panels as the weight's own, `rank` inside
    int64_t rank;        // a multiple of WEIGHT_STEP
};

struct LayerLowRank {
    LowRank joined, attention_output, up, down;
    const weight *position_keys, *position_queries; // in place of the layer's own; or null
};

// Of disentangled attention (arXiv 2006.03654): which column of the tables of keys and queries of positions a distance
// has. The tables hold `count` columns for each head, in panels; those of keys are in reverse.
struct Distances {
    const int32_t *columns; // of the distances from -farthest to farthest: rising, and never beyond their ends
    int64_t farthest;       // distances beyond it have its column
    int64_t own;            // up to this distance each has a column of its own, next to its neighbours'
    int64_t count;          // a multiple of PANEL; 0: attention is not disentangled
};

struct Table { // of embeddings, `[count, hidden]`
    const float *rows; // null: none
    int64_t count;
};

// What makes states of tokens: a row of each table, added up in this order, and the norm of the sum where it has one.
struct Embeddings {
    Table words, types, positions;
    Norm norm; // LayerNorm
    float epsilon;
};

struct Encoder {
    const Layer *layers;
    int64_t layer_count, hidden;
    int64_t heads, key_heads;      // `heads` is a multiple of `key_heads`
    int64_t head_size, head_width; // a head's elements, and those padded to LANES
    int64_t activation, gated, causal;
    int64_t rms;      // whether norms are RMSNorm (arXiv 1910.07467), LayerNorm otherwise
    int64_t pre_norm; // normalised states enter products only; otherwise they are what is added to
    Norm entry;       // of what enters the first layer
    Distances distances;
    float norm_epsilon, scale;
};

struct Tokens { // their rows in the tables of embeddings; null where there is no such table, or all have row 0
    const int64_t *ids, *types, *positions;
};

struct Angles { // of rotary positions, `[tokens, width]` each
    const float *cosine, *sine;
    int64_t width;
};
