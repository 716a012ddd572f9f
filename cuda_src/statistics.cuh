// Statistics of what is stored: norm^2, sum, +-1 sketch, largest magnitude, zeros, non-finite, log2 histogram.
//
// A thread keeps the scalars in registers. The histogram counts sign and raw fp32 exponent (512 counters) in shared memory:
// that index is one shift, exponent 255 counts the non-finite for nothing, and a warp's increments of one counter are merged
// by the hardware (ATOMS.POPC.INC), so the usual crowd in a few bins costs no serialisation and copies a warp gain nothing.
// A block writes its totals to a slot of its own and `finalise.cuh` adds slots in a fixed order: no float atomics.
#pragma once

#include "element.cuh"

constexpr int kCounters = 512;  // sign and raw fp32 exponent
constexpr int kBins = 64;       // what leaves the kernel
constexpr int kLowest = 87;     // raw exponent of bin 0: 2^-40 and everything below; bin 63 is 2^23 and above
constexpr int kScalars = 6;     // norm2, sum, sketch, absmax, zeros, nonfinite
constexpr float kSmallestNormal = 1.17549435e-38f;

// What a launch computes. Each level includes those below it.
enum Level { kPlain = 0, kStatistics = 1, kHistogram = 2 };

// Signs of the sketch, a function of the element's global index and the key alone. Eight neighbours form a group; inside it
// signs alternate, the group's own is a random bit. So sum and sketch share their additions: with E and O the sums of even
// and odd elements, a group adds E + O to one and +-(E - O) to the other. A word holds 32 groups that lie 128 groups apart,
// which is how one thread meets them: one hash serves a tile.
constexpr int kGroup = 8;

__device__ __forceinline__ u32 sign_word(i64 group, u32 key) {
    u32 x = (static_cast<u32>(group >> 12) << 7 | (static_cast<u32>(group) & 127u)) ^ key;
    x ^= x >> 16;  // Murmur3's finaliser
    x *= 0x85ebca6bu;
    x ^= x >> 13;
    x *= 0xc2b2ae35u;
    return x ^ x >> 16;
}

// The sign bit, in place, that `word` holds for `group`.
__device__ __forceinline__ u32 sign_of(i64 group, u32 word) { return word << (31u - (static_cast<u32>(group >> 7) & 31u)) & 0x80000000u; }

__device__ __forceinline__ float flipped(float x, u32 sign) { return __uint_as_float(__float_as_uint(x) ^ sign); }

struct Tally {
    float norm2 = 0, sum = 0, sketch = 0, absmax = 0;
    u32 zeros = 0, nonfinite = 0;

    // Add a tile's tally: two short sums instead of one long one keep fp32 accurate to about 1e-6.
    __device__ __forceinline__ void add(const Tally& t) {
        norm2 += t.norm2, sum += t.sum, sketch += t.sketch, absmax = fmaxf(absmax, t.absmax);
        zeros += t.zeros, nonfinite += t.nonfinite;
    }
};

template <int kLevel>
__device__ __forceinline__ void count(float x, Tally& t, u32* counters) {
    const u32 bits = __float_as_uint(x);
    t.norm2 = fmaf(x, x, t.norm2);
    t.absmax = fmaxf(t.absmax, fabsf(x));
    if constexpr (kLevel == kHistogram) atomicAdd(&counters[bits >> 23], 1u);
    else t.nonfinite += (bits & 0x7fffffffu) >= 0x7f800000u;
}

// One element; `sign` is its group's, `odd` says that it is an odd one.
template <int kLevel>
__device__ __forceinline__ void absorb_one(float x, u32 sign, bool odd, Tally& t, u32* counters) {
    count<kLevel>(x, t, counters);
    t.sum += x;
    t.sketch += flipped(x, sign ^ (odd ? 0x80000000u : 0u));
    t.zeros += x == 0.0f;
}

// Neighbours of one group that begin at an even element. Zeros are looked for only where something is that small.
template <int kLevel, int kLanes>
__device__ __forceinline__ void absorb(const float (&x)[kLanes], u32 sign, Tally& t, u32* counters) {
    float even = x[0], odd = x[1], low = fminf(fabsf(x[0]), fabsf(x[1]));
#pragma unroll
    for (int k = 2; k < kLanes; k += 2) even += x[k], odd += x[k + 1], low = fminf(low, fminf(fabsf(x[k]), fabsf(x[k + 1])));
    t.sum += even + odd;
    t.sketch += flipped(even - odd, sign);
#pragma unroll
    for (int k = 0; k < kLanes; ++k) count<kLevel>(x[k], t, counters);
    if (low < kSmallestNormal) {
#pragma unroll
        for (int k = 0; k < kLanes; ++k) t.zeros += x[k] == 0.0f;
    }
}

template <class V>
__device__ __forceinline__ V warp_sum(V x) {
    for (int offset = 16; offset; offset >>= 1) x += __shfl_xor_sync(0xffffffffu, x, offset);
    return x;
}

__device__ __forceinline__ float warp_max(float x) {
    for (int offset = 16; offset; offset >>= 1) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, offset));
    return x;
}

// Where blocks leave their totals: `scalars` is double[slots][6], `bins` is u32[slots][64].
struct Partials {
    double* scalars;
    u32* bins;
};

// A block's totals in shared memory.
template <int kBlock, int kLevel>
struct Scoreboard {
    static constexpr int kWarps = kBlock / 32;

    double scalars[kWarps][kScalars];
    u32 counters[kLevel == kHistogram ? kCounters : 1];
    u32 ends[2];  // what bin 0 and bin 63 gather

    __device__ __forceinline__ void clear() {
        if constexpr (kLevel == kHistogram) {
            for (int i = threadIdx.x; i < kCounters; i += kBlock) counters[i] = 0;
            if (threadIdx.x < 2) ends[threadIdx.x] = 0;
            __syncthreads();
        }
    }

    // Write the block's totals to `slot`. Every thread of the block calls it; clear() must follow before more is counted.
    __device__ __forceinline__ void flush(const Tally& t, Partials out, i64 slot) {
        if constexpr (kLevel == kPlain) return;
        const float norm2 = warp_sum(t.norm2), sum = warp_sum(t.sum), sketch = warp_sum(t.sketch), absmax = warp_max(t.absmax);
        const u32 zeros = warp_sum(t.zeros), nonfinite = kLevel == kHistogram ? 0 : warp_sum(t.nonfinite);
        if (threadIdx.x % 32 == 0) {
            double* row = scalars[threadIdx.x / 32];
            row[0] = norm2, row[1] = sum, row[2] = sketch, row[3] = absmax, row[4] = zeros, row[5] = nonfinite;
        }
        __syncthreads();
        if constexpr (kLevel == kHistogram) {
            gather_ends();
            __syncthreads();
        }
        if (threadIdx.x < kScalars) {
            const int which = threadIdx.x;
            double total = 0;
#pragma unroll
            for (int w = 0; w < kWarps; ++w) total = which == 3 ? fmax(total, scalars[w][which]) : total + scalars[w][which];
            if (kLevel == kHistogram && which == 5) total = both(255);
            out.scalars[slot * kScalars + which] = total;
        }
        if constexpr (kLevel == kHistogram) {
            for (int bin = threadIdx.x; bin < kBins; bin += kBlock)
                out.bins[slot * kBins + bin] = bin == 0 ? ends[0] : bin == kBins - 1 ? ends[1] : both(kLowest + bin);
        }
        __syncthreads();
    }

  private:
    __device__ __forceinline__ u32 both(int exponent) const { return counters[exponent] + counters[256 + exponent]; }

    // The end bins gather what lies beyond them; zeros share exponent 0 with the denormals and are taken out.
    __device__ __forceinline__ void gather_ends() {
        for (int e = threadIdx.x; e < 256; e += kBlock) {
            const u32 count = e == 255 ? 0 : both(e), below = warp_sum(e <= kLowest ? count : 0), above = warp_sum(e >= kLowest + kBins - 1 ? count : 0);
            if (e % 32 == 0 && below) atomicAdd(&ends[0], below);
            if (e % 32 == 0 && above) atomicAdd(&ends[1], above);
        }
        if (threadIdx.x < kWarps) atomicSub(&ends[0], static_cast<u32>(scalars[threadIdx.x][4]));
    }
};
