// Versions without statistics, kept to be compared with: what the pass costs, and what vectors gain.
#pragma once

#include "element.cuh"

// Version 1, plain: one element a thread, as a first kernel is written. The bounds check holds nothing but the work, so
// no thread waits for one that has left. It cannot keep enough bytes in flight on its own: 4 bytes a load.
template <class E>
__device__ __forceinline__ void plain(const void* a, const void* b, void* out, i64 numel, float scale) {
    const i64 i = i64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < numel) E::store(out, i, (E::load(a, i) + E::load(b, i)) * scale);
}

// Version 2, vectorised: 16 bytes a load, several of them in flight.
// Takes aligned buffers of whole vectors only; the pass in aggregate.cuh takes any.
template <class E, int kUnroll>
__device__ __forceinline__ void vectorised(const uint4* a, const uint4* b, uint4* out, i64 vectors, float scale) {
    const i64 stride = i64(gridDim.x) * blockDim.x * kUnroll;
    for (i64 base = i64(blockIdx.x) * blockDim.x * kUnroll + threadIdx.x; base < vectors; base += stride) {
        uint4 x[kUnroll], y[kUnroll];
#pragma unroll
        for (int j = 0; j < kUnroll; ++j) {
            const i64 v = base + j * blockDim.x;
            if (v < vectors) x[j] = __ldcs(a + v), y[j] = __ldcs(b + v);
        }
#pragma unroll
        for (int j = 0; j < kUnroll; ++j) {
            const i64 v = base + j * blockDim.x;
            if (v >= vectors) continue;
            float p[E::kLanes], q[E::kLanes];
            E::unpack(x[j], p), E::unpack(y[j], q);
#pragma unroll
            for (int k = 0; k < E::kLanes; ++k) p[k] = (p[k] + q[k]) * scale;
            __stcs(out + v, E::pack(p));
        }
    }
}
