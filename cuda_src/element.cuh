// Elements of a gradient: 16-byte vectors of fp32, bf16 or fp16, computed in fp32. No CUDA header is needed,
// so NVRTC's wheel alone compiles this.
#pragma once

typedef unsigned int u32;
typedef long long i64;

struct F32 {
    static constexpr int kLanes = 4;
    static constexpr int kBytes = 4;

    static __device__ __forceinline__ void unpack(uint4 v, float (&x)[4]) {
        x[0] = __uint_as_float(v.x), x[1] = __uint_as_float(v.y), x[2] = __uint_as_float(v.z), x[3] = __uint_as_float(v.w);
    }
    static __device__ __forceinline__ uint4 pack(const float (&x)[4]) {
        return make_uint4(__float_as_uint(x[0]), __float_as_uint(x[1]), __float_as_uint(x[2]), __float_as_uint(x[3]));
    }
    static __device__ __forceinline__ float load(const void* p, i64 i) { return static_cast<const float*>(p)[i]; }
    static __device__ __forceinline__ void store(void* p, i64 i, float x) { static_cast<float*>(p)[i] = x; }
    static __device__ __forceinline__ float rounded(float x) { return x; }
};

// Two 16-bit elements in one register; `Pair` says how they become floats and back (round to nearest even).
template <class Pair>
struct Half {
    static constexpr int kLanes = 8;
    static constexpr int kBytes = 2;

    static __device__ __forceinline__ void unpack(uint4 v, float (&x)[8]) {
        Pair::split(v.x, x[0], x[1]), Pair::split(v.y, x[2], x[3]), Pair::split(v.z, x[4], x[5]), Pair::split(v.w, x[6], x[7]);
    }
    static __device__ __forceinline__ uint4 pack(const float (&x)[8]) {
        return make_uint4(Pair::join(x[0], x[1]), Pair::join(x[2], x[3]), Pair::join(x[4], x[5]), Pair::join(x[6], x[7]));
    }
    static __device__ __forceinline__ float load(const void* p, i64 i) {
        float x, unused;
        Pair::split(static_cast<const unsigned short*>(p)[i], x, unused);
        return x;
    }
    static __device__ __forceinline__ void store(void* p, i64 i, float x) {
        static_cast<unsigned short*>(p)[i] = static_cast<unsigned short>(Pair::join(x, 0.0f));
    }
    static __device__ __forceinline__ float rounded(float x) {
        float y, unused;
        Pair::split(Pair::join(x, 0.0f), y, unused);
        return y;
    }
};

struct BrainPair {
    static __device__ __forceinline__ void split(u32 w, float& low, float& high) {
        low = __uint_as_float(w << 16), high = __uint_as_float(w & 0xffff0000u);
    }
    static __device__ __forceinline__ u32 join(float low, float high) {
#if __CUDA_ARCH__ >= 800
        u32 w;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(high), "f"(low));
        return w;
#else
        return nearest(low) | nearest(high) << 16;
    }
    static __device__ __forceinline__ u32 nearest(float x) {  // Turing has no bf16 instructions
        const u32 bits = __float_as_uint(x);
        return (bits & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
#endif
    }
};

struct HalfPair {
    static __device__ __forceinline__ void split(u32 w, float& low, float& high) {
        asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h;}" : "=f"(low), "=f"(high) : "r"(w));
    }
    static __device__ __forceinline__ u32 join(float low, float high) {
        u32 w;
#if __CUDA_ARCH__ >= 800
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(high), "f"(low));
#else
        asm("{.reg .b16 l, h; cvt.rn.f16.f32 l, %1; cvt.rn.f16.f32 h, %2; mov.b32 %0, {l, h};}" : "=r"(w) : "f"(low), "f"(high));
#endif
        return w;
    }
};

typedef Half<BrainPair> BF16;
typedef Half<HalfPair> F16;
