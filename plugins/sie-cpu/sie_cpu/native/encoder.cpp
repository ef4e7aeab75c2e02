// A transformer encoder over packed sequences, from embeddings to last hidden states, in one call.
//
// With enough sequences, each thread takes chunks of whole sequences through all layers alone: it waits for nobody, and
// activations stay in its cache. Otherwise the threads share each chunk, and divide the columns of every product. The
// caller owns all memory.
#include <algorithm>
#include <chrono>
#include <iterator>
#include <new>

#include "layer.h"
#include "pool.h"

namespace {

constexpr int64_t CHUNK = 96;         // tokens of a thread's chunk: whole tiles, and activations that fit its cache
constexpr int64_t LARGE_CHUNK = 192;  // the same in a large batch, where weights are read for more tokens at once
constexpr int64_t ROUNDS = 6;         // chunks per thread that make a batch large: enough to balance unequal ones
constexpr int64_t SHARED_CHUNK = 384; // tokens of a shared chunk
constexpr int64_t SHARES = 2;         // items of a shared stage per thread; others take over from a delayed one
constexpr double IMBALANCE = 1.2;     // most load of one thread, in fair shares; above, threads share chunks

std::vector<Chunk> chunks_of(const int64_t *offsets, int64_t sequences, int64_t target) {
    std::vector<Chunk> chunks;
    for (int64_t first = 0, next; first < sequences; first = next) {
        for (next = first + 1; next < sequences && offsets[next + 1] - offsets[first] <= target;) next++;
        chunks.push_back({first, next, offsets[first], offsets[next] - offsets[first]});
    }
    return chunks;
}

struct Plan {
    std::vector<Chunk> chunks;
    bool shared; // whether the threads share each chunk
    int64_t rows, longest;
};

// Whole chunks for each thread if that keeps all of them busy, shared ones otherwise.
Plan make_plan(const int64_t *offsets, int64_t sequences, int threads) {
    const int64_t tokens = offsets[sequences];
    const int64_t chunk = std::clamp(tokens / (threads * ROUNDS), CHUNK, LARGE_CHUNK);
    const int64_t rounds = std::max<int64_t>(1, (tokens + chunk * threads - 1) / (chunk * threads));
    Plan plan{chunks_of(offsets, sequences, (tokens + rounds * threads - 1) / (rounds * threads)), false, 0, 1};
    std::sort(plan.chunks.begin(), plan.chunks.end(), [](const Chunk &a, const Chunk &b) { return a.rows > b.rows; });
    std::vector<int64_t> loads(threads, 0);
    for (const Chunk &chunk : plan.chunks) *std::min_element(loads.begin(), loads.end()) += chunk.rows;
    if (*std::max_element(loads.begin(), loads.end()) * threads > IMBALANCE * tokens) {
        plan.shared = true;
        plan.chunks = chunks_of(offsets, sequences, SHARED_CHUNK);
    }
    for (const Chunk &chunk : plan.chunks) plan.rows = std::max(plan.rows, chunk.rows);
    for (int64_t i = 0; i < sequences; i++) plan.longest = std::max(plan.longest, offsets[i + 1] - offsets[i]);
    return plan;
}

// Adds up the nanoseconds of each kind of stage, over all threads; does nothing without counters.
class Stopwatch {
  public:
    explicit Stopwatch(int64_t *spent) : spent_(spent) {}
    template <typename Work> void time(int64_t kind, Work &&work) const {
        if (!spent_) return work();
        const auto started = std::chrono::steady_clock::now();
        work();
        const auto taken = std::chrono::steady_clock::now() - started;
        __atomic_fetch_add(spent_ + kind, std::chrono::nanoseconds(taken).count(), __ATOMIC_RELAXED);
    }

  private:
    int64_t *const spent_;
};

struct Workspace {
    std::vector<Buffers> buffers; // per thread, or one that all share
    std::vector<Scratch> scratch; // per thread
    Workspace(Arena &arena, const Batch &batch, const Plan &plan, int64_t lowered, int64_t threads) {
        for (int64_t place = 0; place < threads; place++) {
            if (place == 0 || !plan.shared) buffers.push_back(take_buffers(arena, batch.widths, plan.rows, lowered));
            scratch.push_back(take_scratch(arena, batch.encoder, plan.longest));
        }
    }
};

void run_all(const Batch &batch, const Plan &plan, const Workspace &workspace, int64_t threads,
             const Stopwatch &watch) {
    const Stages stages(batch);
    const int64_t chunks = (int64_t)plan.chunks.size();
    const auto run_stage = [&](const ChunkRun &run, int64_t stage, int64_t item, int64_t items) {
        watch.time(stages.kind(stage), [&] { run.run(stage, item, items); });
    };
    const auto run_of = [&](int64_t chunk, int place) {
        const Buffers &buffers = workspace.buffers[plan.shared ? 0 : place];
        return ChunkRun(batch, stages, buffers, workspace.scratch[place], plan.chunks[chunk]);
    };
    if (plan.shared) {
        const int64_t items = threads * SHARES;
        Pool::shared().run(std::make_shared<Job>(std::vector<int64_t>(chunks * stages.count(), items), (int)threads,
                                                 [&](int64_t phase, int64_t item, int place) {
                                                     run_stage(run_of(phase / stages.count(), place),
                                                               phase % stages.count(), item, items);
                                                 }));
    } else {
        Pool::shared().run(std::make_shared<Job>(std::vector<int64_t>(1, chunks), (int)threads,
                                                 [&](int64_t, int64_t chunk, int place) {
                                                     const ChunkRun run = run_of(chunk, place);
                                                     for (int64_t stage = 0; stage < stages.count(); stage++)
                                                         run_stage(run, stage, 0, 1);
                                                 }));
    }
}

} // namespace

#pragma GCC visibility push(default)
extern "C" {

// Raised with every change of a signature or of a field's meaning: a library of another version is refused.
int64_t sie_interface() { return 10; }

// The bytes of the structures that cross this interface, ordered as STRUCTURES in structures.py; 0 beyond the last.
int64_t sie_size_of(int64_t structure) {
    constexpr int64_t sizes[] = {sizeof(Matrix),    sizeof(Norm),         sizeof(Layer),
                                 sizeof(Angles),    sizeof(LowRank),      sizeof(LayerLowRank),
                                 sizeof(Distances), sizeof(Biases),       sizeof(Encoder),
                                 sizeof(Table),     sizeof(Embeddings)};
    return structure < (int64_t)std::size(sizes) ? sizes[structure] : 0;
}

int64_t sie_lanes() { return LANES; }
int64_t sie_panel() { return PANEL; }
int64_t sie_step() { return WEIGHT_STEP; }
int64_t sie_stage_kinds() { return KINDS; }
int64_t sie_weight_bytes() { return sizeof(weight); }

// Lays a float32 weight `[columns, inner]` out in panels; both sizes already padded.
void sie_pack(const float *numbers, int64_t columns, int64_t inner, void *panels) {
    weight *to = (weight *)panels;
    for (int64_t panel = 0; panel < columns; panel += PANEL)
        for (int64_t k = 0; k < inner; k += WEIGHT_STEP)
            for (int64_t column = 0; column < PANEL; column++)
                for (int64_t step = 0; step < WEIGHT_STEP; step++)
                    *to++ = to_weight(numbers[(panel + column) * inner + k + step]);
}

// Runs all layers over `states`, float32 `[tokens, hidden]`, in place. With `embeddings`, the input is computed from
// `ids`, `types` and `positions` instead, as in Tokens. The first `keys` tokens of each sequence are keys, all if null.
// `angles` are indexed by the layers, or null. `low_rank`, if given, has one entry per layer, and `lowered` is its
// widest rank, padded to PANEL, or 0. `spent`, if given, holds sie_stage_kinds() counters of nanoseconds, and one more
// for the whole call.
//
// Returns 0; or, without having done anything, the bytes of a sufficient workspace, -1 if memory is short, or -2 if an
// embedding table has no row for a token.
int64_t sie_encode(const void *handle, const void *embeddings, const int64_t *ids, const int64_t *types,
                   const int64_t *positions, float *states, const int64_t *offsets, const int64_t *keys,
                   int64_t sequences, const void *angles, const void *low_rank, int64_t lowered, int64_t threads,
                   int64_t *spent, void *workspace, int64_t workspace_bytes) try {
    const Encoder &encoder = *(const Encoder *)handle;
    const Batch batch{encoder,
                      Widths(encoder),
                      states,
                      (const Embeddings *)embeddings,
                      {ids, types, positions},
                      offsets,
                      keys,
                      (const Angles *)angles,
                      (const LayerLowRank *)low_rank};
    if (batch.embeddings && !embedded(*batch.embeddings, batch.tokens, offsets[sequences])) return -2;
    const Plan plan = make_plan(offsets, sequences, (int)threads);
    Arena counted(nullptr);
    Workspace(counted, batch, plan, lowered, threads);
    const int64_t wanted = counted.used() + 64;
    if (wanted > workspace_bytes) return wanted;
    Arena arena((char *)(((uintptr_t)workspace + 63) / 64 * 64));
    const Workspace pieces(arena, batch, plan, lowered, threads);
    const Stopwatch watch(spent);
    watch.time(KINDS, [&] { run_all(batch, plan, pieces, threads, watch); });
    return 0;
} catch (const std::bad_alloc &) {
    return -1;
}
}
#pragma GCC visibility pop
