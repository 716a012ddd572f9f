// Second pass: add each tensor's partial totals in a fixed order. Block (t, 0) adds tensor t's scalars, blocks (t, 1…8) eight
// bins each, which are one 32-byte sector of a slot.
#pragma once

#include "statistics.cuh"

constexpr int kFinalThreads = 256;
constexpr int kBinsEach = 8;
constexpr int kFinalParts = 1 + kBins / kBinsEach;  // 1 where no histogram was taken

// `first_tile` as in walk_many, or null for one flat buffer, whose counter is made ready for the next launch. `scalars` is double[tensors][6], `bins` int64[tensors][64].
__device__ __forceinline__ void finalise_tensor(Partials in, const i64* first_tile, i64 blocks, int chunk, u32* counter, double* scalars, i64* bins) {
    const int t = blockIdx.x;
    if (counter && t == 0 && blockIdx.y == 0 && threadIdx.x == 0) *counter = 0;
    i64 begin = 0, end = blocks;  // slots of this tensor
    if (first_tile) {
        const i64 first = first_tile[t], last = first_tile[t + 1];
        begin = first / chunk + t, end = last > first ? (last - 1) / chunk + t + 1 : begin;
    }
    if (blockIdx.y == 0) {
        const int which = threadIdx.x / 32, lane = threadIdx.x % 32;
        if (which >= kScalars) return;
        double x = 0;
#pragma unroll 4
        for (i64 slot = begin + lane; slot < end; slot += 32) {
            const double y = in.scalars[slot * kScalars + which];
            x = which == 3 ? fmax(x, y) : x + y;
        }
        for (int offset = 16; offset; offset >>= 1) {
            const double y = __shfl_xor_sync(0xffffffffu, x, offset);
            x = which == 3 ? fmax(x, y) : x + y;
        }
        if (lane == 0) scalars[i64(t) * kScalars + which] = x;
        return;
    }
    constexpr int kStrides = kFinalThreads / kBinsEach;
    __shared__ i64 parts[kStrides][kBinsEach];
    const int column = threadIdx.x % kBinsEach, stride = threadIdx.x / kBinsEach, bin = (blockIdx.y - 1) * kBinsEach + column;
    i64 count = 0;
#pragma unroll 4
    for (i64 slot = begin + stride; slot < end; slot += kStrides) count += in.bins[slot * kBins + bin];
    parts[stride][column] = count;
    __syncthreads();
    if (stride) return;
    for (int p = 1; p < kStrides; ++p) count += parts[p][column];
    bins[i64(t) * kBins + bin] = count;
}
