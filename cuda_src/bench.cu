// Stand-alone: check every version against double precision, then time it beside a device-to-device copy.
//   nvcc -O3 -std=c++17 -arch=sm_90 bench.cu -o bench && ./bench            # 2^28 elements
//   compute-sanitizer --tool memcheck ./bench --check                        # checks alone, on small sizes
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "finalise.cuh"
#include "plain.cuh"
#include "walk.cuh"

#define CHECK(call) checked((call), __LINE__)

void checked(cudaError_t error, int line) {
    if (error == cudaSuccess) return;
    std::fprintf(stderr, "bench.cu:%d: %s\n", line, cudaGetErrorString(error));
    std::exit(2);
}

constexpr int kBlock = 512, kUnroll = 2, kResident = 2, kChunk = 8;
template <class E, int kLevel>
using Two = Pass<E, 2, true, kLevel, kBlock, kUnroll>;

template <class E>
__global__ void plain_kernel(const void* a, const void* b, void* out, i64 numel, float scale) { plain<E>(a, b, out, numel, scale); }

template <class E>
__global__ void __launch_bounds__(kBlock, kResident) vectorised_kernel(const uint4* a, const uint4* b, uint4* out, i64 vectors, float scale) {
    vectorised<E, kUnroll>(a, b, out, vectors, scale);
}

template <class E, int kLevel>
__global__ void __launch_bounds__(kBlock, kResident) flat_kernel(Span<2> span, i64 tiles, int chunk, u32* counter, float scale, u32 key, Partials out) {
    __shared__ typename Two<E, kLevel>::Board board;
    walk_flat(Two<E, kLevel>{scale, key}, span, tiles, chunk, counter, board, out);
}

template <class E>
__global__ void __launch_bounds__(kBlock, kResident) many_kernel(const i64* table, const i64* first_tile, int tensors, int chunk, float scale, u32 key, Partials out) {
    __shared__ typename Two<E, kHistogram>::Board board;
    walk_many<Two<E, kHistogram>, 2>(Two<E, kHistogram>{scale, key}, table, first_tile, tensors, chunk, board, out);
}

__global__ void finalise_kernel(Partials in, const i64* first_tile, i64 blocks, int chunk, double* scalars, i64* bins) {
    finalise_tensor(in, first_tile, blocks, chunk, nullptr, scalars, bins);
}

struct Answer {
    double scalars[kScalars] = {};
    i64 bins[kBins] = {};
};

// Double precision, on the CPU, of what was stored.
Answer reference(const std::vector<float>& x, u32 key) {
    Answer r;
    for (size_t i = 0; i < x.size(); ++i) {
        u32 bits;
        std::memcpy(&bits, &x[i], 4);
        const size_t group = i >> 3;
        u32 h = (u32(group >> 12) << 7 | (u32(group) & 127u)) ^ key;
        h ^= h >> 16, h *= 0x85ebca6bu, h ^= h >> 13, h *= 0xc2b2ae35u, h ^= h >> 16;
        const double v = x[i];
        r.scalars[0] += v * v, r.scalars[1] += v, r.scalars[2] += (h >> (group >> 7 & 31) ^ i) & 1 ? -v : v;
        if (std::fabs(v) > r.scalars[3]) r.scalars[3] = std::fabs(v);
        r.scalars[4] += v == 0, r.scalars[5] += !std::isfinite(v);
        if (v != 0 && std::isfinite(v)) ++r.bins[std::clamp(int(bits >> 23 & 255u) - kLowest, 0, kBins - 1)];
    }
    return r;
}

struct Device {
    int sms;
    double* scalars;
    i64* bins;
    Partials partials;
    u32* counter;

    Device() {
        cudaDeviceProp p;
        CHECK(cudaGetDeviceProperties(&p, 0));
        sms = p.multiProcessorCount;
        CHECK(cudaMalloc(&scalars, 1024 * kScalars * 8));
        CHECK(cudaMalloc(&bins, 1024 * kBins * 8));
        CHECK(cudaMalloc(&partials.scalars, 65536 * kScalars * 8));
        CHECK(cudaMalloc(&partials.bins, 65536 * kBins * 4));
        CHECK(cudaMalloc(&counter, 4));
        std::printf("%s, %d multiprocessors\n", p.name, sms);
    }
};

int head_of(const void* a, const void* b, const void* c, i64 numel, int bytes) {
    const size_t x = size_t(a) % 16, y = size_t(b) % 16, z = size_t(c) % 16;
    return x == y && y == z ? int(std::min<i64>(numel, (16 - x) % 16 / bytes)) : -1;
}

template <class E>
i64 tiles_of(i64 numel, int head) {
    const i64 vectors = head < 0 ? (numel + E::kLanes - 1) / E::kLanes : (numel - head) / E::kLanes;
    return numel ? std::max<i64>(1, (vectors + kBlock * kUnroll - 1) / (kBlock * kUnroll)) : 0;
}

template <class E, int kLevel>
void flat(const Device& d, bool in_order, const void* a, const void* b, void* out, i64 numel, float scale, u32 key) {
    const int head = head_of(a, b, out, numel, E::kBytes);
    const i64 tiles = tiles_of<E>(numel, head);
    const int chunk = tiles > 4096 ? kChunk : 1, blocks = int(in_order ? std::min<i64>(tiles, d.sms * kResident) : (tiles + chunk - 1) / chunk);
    if (in_order) CHECK(cudaMemsetAsync(d.counter, 0, 4));
    flat_kernel<E, kLevel><<<blocks, kBlock>>>(Span<2>{{a, b}, out, numel, head}, tiles, chunk, in_order ? d.counter : nullptr, scale, key, d.partials);
    CHECK(cudaGetLastError());
    if (kLevel > kPlain) finalise_kernel<<<dim3(1, kLevel == kHistogram ? kFinalParts : 1), kFinalThreads>>>(d.partials, nullptr, blocks, chunk, d.scalars, d.bins);
    CHECK(cudaGetLastError());
}

int failures = 0, checks = 0;

void expect(bool good, const char* what, i64 numel) {
    ++checks;
    if (!good) ++failures, std::printf("FAILED %s, %lld elements\n", what, numel);
}

void compare(const Answer& got, const Answer& want, i64 numel, const char* what) {
    expect(std::fabs(got.scalars[0] - want.scalars[0]) <= 4e-6 * want.scalars[0], what, numel);
    const double room = 4e-6 * std::sqrt(want.scalars[0] * double(numel)) + 1e-30;  // |sum| <= sqrt(n * norm2)
    expect(std::fabs(got.scalars[1] - want.scalars[1]) <= room && std::fabs(got.scalars[2] - want.scalars[2]) <= room, what, numel);
    for (int k = 3; k < kScalars; ++k) expect(got.scalars[k] == want.scalars[k], what, numel);
    expect(!std::memcmp(got.bins, want.bins, sizeof want.bins), what, numel);
}

Answer fetch(const Device& d, int tensor) {
    Answer r;
    CHECK(cudaMemcpy(r.scalars, d.scalars + tensor * kScalars, sizeof r.scalars, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(r.bins, d.bins + tensor * kBins, sizeof r.bins, cudaMemcpyDeviceToHost));
    return r;
}

std::vector<float> random_floats(size_t n, unsigned seed) {
    std::mt19937 bits(seed);
    std::normal_distribution<float> normal;
    std::vector<float> x(n);
    for (float& v : x) v = bits() % 16 ? std::ldexp(normal(bits), -int(bits() % 60)) : 0.0f;
    return x;
}

// All versions on one size; pointers are moved off alignment by `shift` elements, the second one by `skew` more.
void check_flat(const Device& d, i64 numel, int shift, int skew) {
    const size_t room = size_t(numel + shift + skew) * 4 + 64;
    char *a, *b, *c;
    CHECK(cudaMalloc(&a, room)), CHECK(cudaMalloc(&b, room)), CHECK(cudaMalloc(&c, room));
    float *pa = reinterpret_cast<float*>(a) + shift, *pb = reinterpret_cast<float*>(b) + shift + skew, *pc = reinterpret_cast<float*>(c) + shift;
    const auto x = random_floats(numel, 1 + unsigned(numel)), y = random_floats(numel, 2 + unsigned(numel));
    CHECK(cudaMemcpy(pa, x.data(), numel * 4, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(pb, y.data(), numel * 4, cudaMemcpyHostToDevice));
    std::vector<float> want(numel), got(numel);
    for (i64 i = 0; i < numel; ++i) want[i] = (x[i] + y[i]) * 0.5f;
    const auto stored = [&](const char* what) {
        CHECK(cudaMemcpy(got.data(), pc, numel * 4, cudaMemcpyDeviceToHost));
        expect(!std::memcmp(got.data(), want.data(), numel * 4), what, numel);
        CHECK(cudaMemset(c, 0xff, room));
    };
    CHECK(cudaMemset(c, 0xff, room));
    plain_kernel<F32><<<int((numel + 255) / 256), 256>>>(pa, pb, pc, numel, 0.5f);
    CHECK(cudaGetLastError());
    stored("plain");
    if (shift == 0 && skew == 0 && numel % 4 == 0) {
        vectorised_kernel<F32><<<unsigned(tiles_of<F32>(numel, 0)), kBlock>>>(reinterpret_cast<uint4*>(pa), reinterpret_cast<uint4*>(pb), reinterpret_cast<uint4*>(pc), numel / 4, 0.5f);
        CHECK(cudaGetLastError());
        stored("vectorised");
    }
    for (const bool in_order : {true, false}) {
        flat<F32, kPlain>(d, in_order, pa, pb, pc, numel, 0.5f, 7);
        stored("flat, plain");
        flat<F32, kStatistics>(d, in_order, pa, pb, pc, numel, 0.5f, 7);
        stored("flat, statistics");
        flat<F32, kHistogram>(d, in_order, pa, pb, pc, numel, 0.5f, 7);
        stored("flat, histogram");
        compare(fetch(d, 0), reference(want, 7), numel, "flat, histogram");
    }
    CHECK(cudaFree(a)), CHECK(cudaFree(b)), CHECK(cudaFree(c));
}

void check_many(const Device& d) {
    const std::vector<i64> sizes = {768, 0, 1, 5000, 3, 70001, 0, 4096, 33, 20000};
    std::vector<i64> table, first = {0};
    std::vector<std::vector<float>> wants;
    std::vector<float*> mine;
    for (size_t t = 0; t < sizes.size(); ++t) {
        const i64 n = sizes[t];
        float *a, *b;
        CHECK(cudaMalloc(&a, n * 4 + 64)), CHECK(cudaMalloc(&b, n * 4 + 64));
        mine.push_back(a), mine.push_back(b);
        const int shift = int(t % 3);
        const auto x = random_floats(n, 100 + unsigned(t)), y = random_floats(n, 200 + unsigned(t));
        CHECK(cudaMemcpy(a + shift, x.data(), n * 4, cudaMemcpyHostToDevice));
        CHECK(cudaMemcpy(b + shift, y.data(), n * 4, cudaMemcpyHostToDevice));
        std::vector<float> want(n);
        for (i64 i = 0; i < n; ++i) want[i] = x[i] + y[i];
        wants.push_back(want);
        const int head = head_of(a + shift, b + shift, a + shift, n, 4);
        for (const i64 v : {i64(a + shift), i64(b + shift), i64(a + shift), n, i64(head)}) table.push_back(v);
        first.push_back(first.back() + tiles_of<F32>(n, head));
    }
    i64 *device_table, *device_first;
    CHECK(cudaMalloc(&device_table, table.size() * 8)), CHECK(cudaMalloc(&device_first, first.size() * 8));
    CHECK(cudaMemcpy(device_table, table.data(), table.size() * 8, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(device_first, first.data(), first.size() * 8, cudaMemcpyHostToDevice));
    const int tensors = int(sizes.size()), chunk = 3, blocks = int((first.back() + chunk - 1) / chunk);  // so that blocks span tensors
    many_kernel<F32><<<blocks, kBlock>>>(device_table, device_first, tensors, chunk, 1.0f, 7, d.partials);
    CHECK(cudaGetLastError());
    finalise_kernel<<<dim3(tensors, kFinalParts), kFinalThreads>>>(d.partials, device_first, blocks, chunk, d.scalars, d.bins);
    CHECK(cudaGetLastError());
    for (int t = 0; t < tensors; ++t) {
        compare(fetch(d, t), reference(wants[t], 7), sizes[t], "many");
        std::vector<float> got(sizes[t]);
        CHECK(cudaMemcpy(got.data(), mine[2 * t] + t % 3, sizes[t] * 4, cudaMemcpyDeviceToHost));
        expect(!std::memcmp(got.data(), wants[t].data(), sizes[t] * 4), "many, in place", sizes[t]);
    }
    for (float* p : mine) CHECK(cudaFree(p));
    CHECK(cudaFree(device_table)), CHECK(cudaFree(device_first));
}

template <class F>
double median_ms(F&& launch) {
    cudaEvent_t begin, end;
    CHECK(cudaEventCreate(&begin)), CHECK(cudaEventCreate(&end));
    std::vector<float> times;
    for (int i = 0; i < 25; ++i) {
        CHECK(cudaEventRecord(begin));
        launch();
        CHECK(cudaEventRecord(end));
        CHECK(cudaEventSynchronize(end));
        float ms;
        CHECK(cudaEventElapsedTime(&ms, begin, end));
        if (i >= 5) times.push_back(ms);
    }
    std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
    return times[times.size() / 2];
}

template <class E>
void time_all(const Device& d, i64 numel, const char* name) {
    const i64 bytes = numel * E::kBytes;  // each buffer is many times the L2, so no run finds the last one's data
    char *a, *b, *c;
    CHECK(cudaMalloc(&a, bytes)), CHECK(cudaMalloc(&b, bytes)), CHECK(cudaMalloc(&c, bytes));
    std::vector<float> x = random_floats(1 << 20, 5);
    std::vector<char> raw(x.size() * E::kBytes);
    for (size_t i = 0; i < x.size(); ++i) std::memcpy(&raw[i * E::kBytes], reinterpret_cast<char*>(&x[i]) + 4 - E::kBytes, E::kBytes);
    for (i64 at = 0; at < bytes; at += i64(raw.size())) {
        const i64 part = std::min<i64>(i64(raw.size()), bytes - at);
        CHECK(cudaMemcpy(a + at, raw.data(), part, cudaMemcpyHostToDevice)), CHECK(cudaMemcpy(b + at, raw.data(), part, cudaMemcpyHostToDevice));
    }
    const double copy = 2 * bytes / median_ms([&] { CHECK(cudaMemcpyAsync(c, a, bytes, cudaMemcpyDeviceToDevice)); }) * 1e-9;
    const auto line = [&](const char* version, double ms) {
        std::printf("%-5s %-26s %8.4f ms %7.3f TB/s %6.3f of a copy's\n", name, version, ms, 3 * bytes / ms * 1e-9, 3 * bytes / ms * 1e-9 / copy);
    };
    std::printf("%-5s copy %36.3f TB/s\n", name, copy);
    line("plain", median_ms([&] { plain_kernel<E><<<unsigned((numel + 255) / 256), 256>>>(a, b, c, numel, 0.5f); }));
    line("vectorised", median_ms([&] { vectorised_kernel<E><<<unsigned(numel / E::kLanes / kBlock / kUnroll), kBlock>>>((uint4*)a, (uint4*)b, (uint4*)c, numel / E::kLanes, 0.5f); }));
    for (const bool in_order : {true, false}) {
        const std::string way = in_order ? "in order, " : "deterministic, ";
        line((way + "plain").c_str(), median_ms([&] { flat<E, kPlain>(d, in_order, a, b, c, numel, 0.5f, 7); }));
        line((way + "statistics").c_str(), median_ms([&] { flat<E, kStatistics>(d, in_order, a, b, c, numel, 0.5f, 7); }));
        line((way + "histogram").c_str(), median_ms([&] { flat<E, kHistogram>(d, in_order, a, b, c, numel, 0.5f, 7); }));
    }
    CHECK(cudaFree(a)), CHECK(cudaFree(b)), CHECK(cudaFree(c));
}

int main(int argc, char** argv) {
    const bool only_check = argc > 1 && !std::strcmp(argv[1], "--check");
    const Device d;
    for (const i64 numel : {1, 3, 4, 31, 1000, 4096, 16384, 16385, 100003, 1 << 20})
        for (const int shift : {0, 1, 3})
            for (const int skew : {0, 2}) check_flat(d, numel, shift, skew);
    check_many(d);
    CHECK(cudaDeviceSynchronize());
    std::printf("%d checks, %d failed\n", checks, failures);
    if (failures || only_check) return failures != 0;
    time_all<F32>(d, i64(1) << 28, "fp32");
    time_all<BF16>(d, i64(1) << 28, "bf16");
    time_all<F16>(d, i64(1) << 28, "fp16");
    CHECK(cudaDeviceSynchronize());
    return 0;
}
