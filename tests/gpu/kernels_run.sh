#!/usr/bin/env bash
# Everything that needs a GPU about the kernels, in two minutes; the output belongs in cuda_src/gpu_run.txt.
set -uo pipefail
cd "$(dirname "$0")/../.."
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
bench=$(mktemp -d)/bench
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
python3 -c "import sys, torch, cuda.core, importlib.metadata as m; print('Python', sys.version.split()[0], 'torch', torch.__version__, 'cuda.core', cuda.core.__version__, 'NVRTC', m.version('nvidia-cuda-nvrtc'))"
nvcc -O3 -std=c++17 -arch=native cuda_src/bench.cu -o "$bench" || exit 1
status=0
step() { echo "\$ $*"; "$@" || status=1; }
step "$bench"
for tool in memcheck racecheck synccheck; do step compute-sanitizer --tool $tool --error-exitcode 9 "$bench" --check; done
step python3 tests/gpu/kernels_bench.py
step python3 tests/gpu/kernels_check.py
exit $status
