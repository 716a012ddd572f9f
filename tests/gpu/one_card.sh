#!/usr/bin/env bash
# Everything that one card can show, in one go, or the parts that are named; logs and recorded runs go to $OUT. Needs torch, msgspec, rich, click, nvidia-ml-py and cuda-core.
set -u
out=${OUT:-gpu-out}
mkdir -p "$out"
export PYTHONUNBUFFERED=1 OMP_NUM_THREADS=4
wanted=" $* "
part() { # name, seconds, command…
  local name=$1 limit=$2
  shift 2
  [ "$wanted" = "  " ] || [[ $wanted == *" $name "* ]] || return 0
  local began=$SECONDS
  timeout "$limit" "$@" >"$out/$name.txt" 2>&1
  echo "== $name: exit $? after $((SECONDS - began)) s"
  tail -n "${LINES_SHOWN:-12}" "$out/$name.txt"
}
python3 -c 'import sys, torch; print(sys.version.split()[0], torch.__version__, torch.cuda.get_device_name(0))'
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
part kernels_check 90 python3 tests/gpu/kernels_check.py
part kernels_bench 60 python3 tests/gpu/kernels_bench.py
part sanitize_check 60 python3 tests/gpu/sanitize_check.py
part sanitize_bench 80 python3 tests/gpu/sanitize_bench.py --rounds 4 --steps 6
part probes_overhead 100 python3 tests/gpu/probes_overhead.py
part env_check 90 python3 tests/gpu/env_check.py
part harness 130 python3 -m gpudoctor harness all --ranks 2
for fault in none missing-wait straggler; do
  part "record-$fault" 60 python3 tests/gpu/record.py "/tmp/runs/$fault" 2 tests/gpu/capture_ddp.py --fault "$fault" --steps 16 --width 1024 --layers 4
done
part record-sanitize 60 python3 tests/gpu/record.py /tmp/runs/sanitize 1 --sanitize tests/gpu/capture_ddp.py --fault missing-wait --steps 8 --width 1024 --layers 4
tar czf "$out/runs.tgz" -C /tmp runs
(cd "$out" && tar czf logs.tgz ./*.txt)
