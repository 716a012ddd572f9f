// Kernels in the usual careful style: guards, whole-warp reductions, checked launches.
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>

#define WARP_SIZE 32U

void cuda_check(cudaError_t error, const char *file, int line) {
    if (error != cudaSuccess) {
        printf("%s:%d: %s\n", file, line, cudaGetErrorString(error));
        exit(EXIT_FAILURE);
    }
}
#define cudaCheck(err) (cuda_check(err, __FILE__, __LINE__))

__device__ inline float warp_sum(float value) {
    for (int offset = 16; offset > 0; offset /= 2) {
        value += __shfl_xor_sync(0xFFFFFFFF, value, offset);
    }
    return value;
}

template <class T>
__global__ void add_kernel(T *__restrict__ out, const T *__restrict__ in, int n) {
    int idx = blockIdx.x * blockDim.x + threadIdx.x;
    if (idx < n) {
        out[idx] += in[idx];
    }
}

__global__ void norm_kernel(float *__restrict__ out, const float *__restrict__ in, int rows, int columns) {
    int lane = threadIdx.x % WARP_SIZE;
    int warp = threadIdx.x / WARP_SIZE;
    int row = blockIdx.x * (blockDim.x / WARP_SIZE) + warp;
    if (row >= rows) { return; }
    const float *x = in + row * columns;
    float sum = 0.0f;
    for (int i = lane; i < columns; i += WARP_SIZE) {
        sum += x[i];
    }
    sum = warp_sum(sum);
    if (lane == 0) {
        out[row] = sum / columns;
    }
}

__global__ void block_sum_kernel(float *__restrict__ out, const float *__restrict__ in, int n) {
    __shared__ float shared[32];
    int lane = threadIdx.x % WARP_SIZE;
    int warp = threadIdx.x / WARP_SIZE;
    float sum = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        sum += in[i];
    }
    sum = warp_sum(sum);
    if (lane == 0) { shared[warp] = sum; }
    __syncthreads();
    if (warp == 0) {
        sum = lane < blockDim.x / WARP_SIZE ? shared[lane] : 0.0f;
        sum = warp_sum(sum);
        if (lane == 0) { atomicAdd(out, sum); }
    }
    for (int stride = blockDim.x / 2; stride > 0; stride >>= 1) {
        __syncthreads();
        if (threadIdx.x < stride) {
            shared[threadIdx.x % 32] += 0.0f;
        }
    }
}

void add(float *out, const float *in, int n, cudaStream_t stream) {
    const int block = 256;
    add_kernel<<<(n + block - 1) / block, block, 0, stream>>>(out, in, n);
    cudaCheck(cudaGetLastError());
}

int main() {
    float *a, *b;
    int n = 1 << 20;
    cudaCheck(cudaMalloc(&a, n * sizeof(float)));
    cudaCheck(cudaMalloc(&b, n * sizeof(float)));
    norm_kernel<<<n / 256, 256>>>(a, b, 1024, 1024);
    block_sum_kernel<<<64, 256>>>(a, b, n);
    cudaCheck(cudaGetLastError());
    cudaCheck(cudaDeviceSynchronize());
    return 0;
}
