// The memory of one call: activations of a chunk and each thread's scratch, cut from one block that the caller owns.
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#include "attention/head.h"
#include "encoder.h"

struct Buffers { // activations of one chunk; the scratch is each thread's own
    float *states, *sums;
    element *inputs, *joined, *attended, *inner, *lowered; // lowered: a product's input times LoRA's first factor
};

struct Widths { // row strides of the buffers; all layers are alike
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
#if defined(__SANITIZE_ADDRESS__) // who leaves a piece is caught as if it were an allocation of its own
        if (block_) ASAN_POISON_MEMORY_REGION(piece + count, block_ + used_ + 64 - (char *)(piece + count));
        used_ += 64;
#endif
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
    const int64_t row = encoder.distances.count ? DistanceScores::row_size(encoder.distances) : 0;
    scratch.biases = arena.take<float>(encoder.biases.numbers ? longest + padded : 0);
    scratch.of_queries = arena.take<float>(ROWS * row);
    scratch.of_keys = arena.take<float>(longest * row);
    const Widths widths(encoder);
    const int64_t widest = std::max({widths.hidden, widths.attended, widths.inner});
    scratch.widened = arena.take<element>(WIDENED<weight> ? PANEL * widest : 0);
    return scratch;
}
