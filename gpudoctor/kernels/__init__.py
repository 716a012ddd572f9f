"""Compile and call the kernels in cuda_src, with a CPU reference beside them."""
