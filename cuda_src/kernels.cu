// What NVRTC compiles: one entry a translation, its variant given by macros.
//   ELEMENT F32|BF16|F16   INPUTS 1…8   WRITE 0|1   LEVEL 0 plain|1 statistics|2 histogram   BLOCK, UNROLL
//   RESIDENT blocks a multiprocessor shall hold (caps registers)
//   ENTRY 0 plain|1 vectorised|2 flat|3 many|4 finalise
#include "finalise.cuh"
#include "plain.cuh"
#include "walk.cuh"

#if ENTRY == 0

extern "C" __global__ void __launch_bounds__(BLOCK) gd_plain(const void* a, const void* b, void* out, i64 numel, float scale) {
    plain<ELEMENT>(a, b, out, numel, scale);
}

#elif ENTRY == 1

extern "C" __global__ void __launch_bounds__(BLOCK) gd_vectorised(const uint4* a, const uint4* b, uint4* out, i64 vectors, float scale) {
    vectorised<ELEMENT, UNROLL>(a, b, out, vectors, scale);
}

#elif ENTRY == 2 || ENTRY == 3

typedef Pass<ELEMENT, INPUTS, WRITE, Level(LEVEL), BLOCK, UNROLL> ThisPass;

// `factor` multiplies `scale` if it is not null: a loss scale's inverse that lives on the device.
__device__ __forceinline__ ThisPass make_pass(float scale, const float* factor, u32 key) {
    return {factor ? scale * *factor : scale, key};
}

#if ENTRY == 2
extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT)
gd_flat(const void* in0, const void* in1, const void* in2, const void* in3, const void* in4, const void* in5, const void* in6, const void* in7,
        void* out, i64 numel, int head, i64 tiles, int chunk, u32* counter, float scale, const float* factor, u32 key, double* scalars, u32* bins) {
    __shared__ typename ThisPass::Board board;
    const void* const all[8] = {in0, in1, in2, in3, in4, in5, in6, in7};
    Span<INPUTS> span;
#pragma unroll
    for (int n = 0; n < INPUTS; ++n) span.in[n] = all[n];
    span.out = out, span.numel = numel, span.head = head;
    walk_flat(make_pass(scale, factor, key), span, tiles, chunk, counter, board, Partials{scalars, bins});
}
#else
extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT)
gd_many(const i64* table, const i64* first_tile, int tensors, int chunk, float scale, const float* factor, u32 key, double* scalars, u32* bins) {
    __shared__ typename ThisPass::Board board;
    walk_many<ThisPass, INPUTS>(make_pass(scale, factor, key), table, first_tile, tensors, chunk, board, Partials{scalars, bins});
}
#endif

#elif ENTRY == 4

extern "C" __global__ void __launch_bounds__(kFinalThreads)
gd_finalise(double* partial_scalars, u32* partial_bins, const i64* first_tile, i64 blocks, int chunk, u32* counter, double* scalars, i64* bins) {
    finalise_tensor(Partials{partial_scalars, partial_bins}, first_tile, blocks, chunk, counter, scalars, bins);
}

#endif
