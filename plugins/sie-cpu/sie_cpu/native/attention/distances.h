// Disentangled attention (arXiv 2006.03654): scores of a head's queries and keys with the distance of a pair of tokens,
// added to the scores of queries with keys.
//
// Positions are rows of two tables of a layer, of keys and of queries, and depend on the weights alone: their products
// with a head's states run on the kernel of product.h. The distance of a pair is its query's place less its key's.
#pragma once

#include <algorithm>

#include "../encoder.h"

// Elements `stride` apart.
static inline vec load_apart(const float *from, int64_t stride) {
    vec values;
    for (int lane = 0; lane < LANES; lane++) values[lane] = from[lane * stride];
    return values;
}

// The scores that one head gives to distances within one sequence.
class DistanceScores {
  public:
    // `position_keys` and `position_queries` are the head's own tables: `distances.count` columns in panels, `width`
    // inside, and the columns of keys in reverse. Of the sequence's `length` tokens the first `keys` are seen.
    DistanceScores(const Distances &distances, const weight *position_keys, const weight *position_queries,
                   int64_t length, int64_t keys, int64_t width, float *of_queries, float *of_keys)
        : distances_(distances), position_keys_(position_keys), position_queries_(position_queries), length_(length),
          keys_(keys), width_(width), middle_(column(0)), of_queries_(of_queries), of_keys_(of_keys),
          first_(column(1 - length) / PANEL * PANEL), last_(round_up(column(length - 1) + 1, PANEL)),
          // Rows a power of two apart would share few lines of the cache.
          stride_(last_ - first_ + LANES) {}

    // Floats for the scores of one key, or of one query.
    static int64_t row_size(const Distances &distances) { return distances.count + LANES; }

    // Computes the scores of each key with its distances. `key` points at the first token's elements.
    void score_keys(const element *key, int64_t stride) const {
        for_tiles(keys_, [&](auto height, int64_t start) {
            // The distances from the first query to the last key of the tile, and from the last to the first.
            const int64_t first = column(1 - start - height()) / PANEL * PANEL;
            const int64_t last = round_up(column(length_ - 1 - start) + 1, PANEL);
            multiply_panels<height()>(key + start * stride, stride, position_queries_, first, last,
                                      of_keys_ + start * stride_ + first - first_);
        });
    }

    // Adds the distance scores of queries and keys to the scores of a tile. Its rows are `padded` apart and begin at
    // key `low`; its first query is token `start`.
    template <int height>
    void add(const element *query, int64_t stride, int64_t start, int64_t low, int64_t high, float *scores,
             int64_t padded) const {
        const int64_t end = std::min(high, keys_);
        if (low >= end) return;
        // The columns of keys are in reverse: those of the farthest key before the tile come first.
        const int64_t first = (distances_.count - 1 - column(start + height - 1 - low)) / PANEL * PANEL;
        const int64_t last = round_up(distances_.count - column(start - end + 1), PANEL);
        multiply_panels<height>(query, stride, position_keys_, first, last, of_queries_);
        for (int row = 0; row < height; row++) {
            const int64_t place = start + row;
            const float *queries = of_queries_ + row * stride_ - first; // by column, as are those of keys
            const float *keys = of_keys_ - first_;
            float *to = scores + row * padded - low;
            const int64_t near = std::clamp(place - distances_.own, low, end);
            const int64_t far = std::clamp(place + distances_.own + 1, low, end);
            const auto add_one = [&](int64_t key) {
                const int64_t at = column(place - key);
                to[key] += queries[distances_.count - 1 - at] + keys[key * stride_ + at];
            };
            for (int64_t key = low; key < near; key++) add_one(key);
            int64_t key = near;
            for (; key + LANES <= far; key += LANES) {
                // Columns in a row: the next key is one distance nearer.
                const int64_t at = middle_ + place - key;
                store(to + key, load(to + key) + load(queries + distances_.count - 1 - at) +
                                    load_apart(keys + key * stride_ + at, stride_ - 1));
            }
            for (; key < end; key++) add_one(key);
        }
    }

  private:
    int64_t column(int64_t distance) const {
        const int64_t farthest = distances_.farthest;
        return distances_.columns[std::clamp(distance, -farthest, farthest) + farthest];
    }

    // Rows times the panels from column `first` to `last`, written `stride_` apart.
    template <int height>
    void multiply_panels(const element *from, int64_t stride, const weight *table, int64_t first, int64_t last,
                         float *to) const {
        for (int64_t column = first; column < last; column += PANEL) {
            vec sums[height][VECTORS];
            tile_product<height, VECTORS>(from, stride, table + column * width_, width_, {}, nullptr, sums);
            for (int row = 0; row < height; row++)
                for (int v = 0; v < VECTORS; v++) store(to + row * stride_ + column - first + v * LANES, sums[row][v]);
        }
    }

    const Distances &distances_;
    const weight *const position_keys_, *const position_queries_;
    const int64_t length_, keys_, width_, middle_;
    float *const of_queries_, *const of_keys_;
    const int64_t first_, last_, stride_;
};
