// The two ways into the pass: one flat buffer, or a table of tensors.
//
// DRAM is fastest when all multiprocessors work on one stretch of memory that moves on in order. Blocks that loop over
// tiles of their own drift apart, which costs an H200 a twelfth of its bandwidth; so a flat buffer's tiles are handed out in
// order, by a counter, to blocks that stay. That leaves the order of additions to chance. The deterministic walks give
// block b the `chunk` tiles from b * chunk on, and the same buffers give the same bits on every card.
#pragma once

#include "aggregate.cuh"

// One buffer. `counter`, zero at launch, hands out tiles in order; without one a block takes `chunk` tiles of its own.
template <class P, int kInputs>
__device__ __forceinline__ void walk_flat(const P& pass, const Span<kInputs>& span, i64 tiles, int chunk, u32* counter, typename P::Board& board, Partials out) {
    __shared__ u32 following[2];
    Tally tally;
    board.clear();
    i64 tile = counter ? i64(blockIdx.x) : i64(blockIdx.x) * chunk;
    const i64 end = counter ? tiles : min(tiles, tile + chunk);
    for (int turn = 0; tile < end; turn ^= 1) {
        u32 mine = 0;
        if (counter && threadIdx.x == 0) mine = gridDim.x + atomicAdd(counter, 1u);  // on its way while the tile is
        pass.tile(span, tile, tally, board);
        ++tile;
        if (!counter) continue;
        if (threadIdx.x == 0) following[turn] = mine;
        __syncthreads();
        tile = following[turn];
    }
    board.flush(tally, out, blockIdx.x);
}

// Many tensors, deterministic. Their tiles form one line; a block leaves its totals whenever a tensor ends, those of tensor t
// in slot b + t: along the line b and t only grow, so no two pairs share a slot.
// A row of `table` is in[0…kInputs-1], out, numel, head as int64; `first_tile[t]` is where tensor t begins on the line and
// `first_tile[tensors]` is the line's end.
template <class P, int kInputs>
__device__ __forceinline__ void walk_many(const P& pass, const i64* table, const i64* first_tile, int tensors, int chunk, typename P::Board& board, Partials out) {
    constexpr int kRow = kInputs + 3;
    i64 tile = i64(blockIdx.x) * chunk;
    const i64 stop = min(first_tile[tensors], tile + chunk);
    int t = 0, above = tensors - 1;  // the last tensor that begins at or before `tile`; empty ones are passed over
    while (t < above) {
        const int middle = (t + above + 1) / 2;
        if (first_tile[middle] <= tile) t = middle;
        else above = middle - 1;
    }
    for (; tile < stop; ++t) {
        const i64 begin = first_tile[t], end = min(stop, first_tile[t + 1]);
        if (end <= tile) continue;
        Span<kInputs> span;
        const i64* row = table + i64(t) * kRow;
#pragma unroll
        for (int n = 0; n < kInputs; ++n) span.in[n] = reinterpret_cast<const void*>(row[n]);
        span.out = reinterpret_cast<void*>(row[kInputs]), span.numel = row[kInputs + 1], span.head = static_cast<int>(row[kInputs + 2]);
        Tally tally;
        board.clear();
        for (; tile < end; ++tile) pass.tile(span, tile - begin, tally, board);
        board.flush(tally, out, blockIdx.x + t);
    }
}
