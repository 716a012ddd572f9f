// The one pass: out = scale * (in[0] + … + in[n-1]), with the statistics of `out` on the way.
//
// Work is counted in tiles of kBlock * kUnroll vectors of 16 bytes, all of them loaded before the first is used.
#pragma once

#include "statistics.cuh"

// One gradient in `kInputs` copies. `head` elements come before the first 16-byte boundary that all pointers share;
// -1 says that there is none, and elements are taken one by one.
template <int kInputs>
struct Span {
    const void* in[kInputs];
    void* out;
    i64 numel;
    int head;
};

template <class E, int kInputs, bool kWrite, int kLevel, int kBlock, int kUnroll>
struct Pass {
    static constexpr int kLanes = E::kLanes;
    static constexpr i64 kVectors = i64(kBlock) * kUnroll;
    // Whether all vectors that one thread meets in a tile find their signs in one word.
    static constexpr bool kOneWord = kBlock * kLanes / kGroup % 128 == 0 && 4096 % (kVectors * kLanes / kGroup) == 0;
    typedef Scoreboard<kBlock, kLevel> Board;
    typedef Span<kInputs> Input;

    float scale;
    u32 key;

    __device__ __forceinline__ void tile(const Input& s, i64 index, Tally& total, Board& board) const {
        Tally t;
        if (s.head < 0) singles(s, index, t, board.counters);
        else if (s.head == 0) vectors<true>(s, index, t, board.counters);
        else vectors<false>(s, index, t, board.counters);
        total.add(t);
    }

  private:
    __device__ __forceinline__ void singles(const Input& s, i64 index, Tally& t, u32* counters) const {
        const i64 begin = index * kVectors * kLanes, end = min(s.numel, begin + kVectors * kLanes);
        for (i64 i = begin + threadIdx.x; i < end; i += kBlock) single(s, i, t, counters);
    }

    template <bool kAligned>
    __device__ __forceinline__ void vectors(const Input& s, i64 index, Tally& t, u32* counters) const {
        const i64 head = kAligned ? 0 : s.head, whole = (s.numel - head) / kLanes, first = index * kVectors, last = first + kVectors;
        const u32 word = kAligned && kLevel > kPlain ? sign_word((first + threadIdx.x) * kLanes / kGroup, key) : 0;
        if (kAligned && last <= whole) {
            uint4 raw[kUnroll][kInputs];
#pragma unroll
            for (int j = 0; j < kUnroll; ++j) load(s, (first + j * kBlock + threadIdx.x) * kLanes, raw[j]);
#pragma unroll
            for (int j = 0; j < kUnroll; ++j) vector<true>(s, (first + j * kBlock + threadIdx.x) * kLanes, raw[j], word, t, counters);
        } else {
            const i64 stop = min(whole, last);
            for (i64 v = first + threadIdx.x; v < stop; v += kBlock) {
                uint4 raw[kInputs];
                load(s, head + v * kLanes, raw);
                vector<kAligned>(s, head + v * kLanes, raw, word, t, counters);
            }
            if (!kAligned && index == 0 && threadIdx.x < head) single(s, threadIdx.x, t, counters);
        }
        if (last < whole) return;
        const i64 tail = head + whole * kLanes + threadIdx.x;
        if (threadIdx.x < kLanes && tail < s.numel) single(s, tail, t, counters);
    }

    __device__ __forceinline__ void load(const Input& s, i64 i, uint4 (&raw)[kInputs]) const {
#pragma unroll
        for (int n = 0; n < kInputs; ++n) raw[n] = *reinterpret_cast<const uint4*>(static_cast<const char*>(s.in[n]) + i * E::kBytes);
    }

    // Elements i … i + kLanes - 1, already loaded.
    template <bool kAligned>
    __device__ __forceinline__ void vector(const Input& s, i64 i, const uint4 (&raw)[kInputs], u32 word, Tally& t, u32* counters) const {
        float x[kLanes];
        E::unpack(raw[0], x);
#pragma unroll
        for (int n = 1; n < kInputs; ++n) {
            float y[kLanes];
            E::unpack(raw[n], y);
#pragma unroll
            for (int k = 0; k < kLanes; ++k) x[k] += y[k];
        }
#pragma unroll
        for (int k = 0; k < kLanes; ++k) x[k] *= scale;
        const uint4 packed = E::pack(x);
        if constexpr (kWrite) *reinterpret_cast<uint4*>(static_cast<char*>(s.out) + i * E::kBytes) = packed;
        if constexpr (kLevel == kPlain) return;
        E::unpack(packed, x);
        const i64 group = i / kGroup;
        if constexpr (kAligned) {
            absorb<kLevel>(x, sign_of(group, kOneWord ? word : sign_word(group, key)), t, counters);
        } else {
            const i64 next = (i + kLanes - 1) / kGroup;
            const u32 here = sign_of(group, sign_word(group, key)), there = sign_of(next, sign_word(next, key));
#pragma unroll
            for (int k = 0; k < kLanes; ++k) absorb_one<kLevel>(x[k], (i + k) / kGroup == group ? here : there, (i + k) % 2, t, counters);
        }
    }

    __device__ __forceinline__ void single(const Input& s, i64 i, Tally& t, u32* counters) const {
        float x = E::load(s.in[0], i);
#pragma unroll
        for (int n = 1; n < kInputs; ++n) x += E::load(s.in[n], i);
        x *= scale;
        if constexpr (kWrite) E::store(s.out, i, x);
        if constexpr (kLevel > kPlain) absorb_one<kLevel>(E::rounded(x), sign_of(i / kGroup, sign_word(i / kGroup, key)), i % 2, t, counters);
    }
};
