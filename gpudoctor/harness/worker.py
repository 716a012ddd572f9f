"""One rank of an experiment: `python -m gpudoctor.harness.worker SPEC.json`."""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module
from pathlib import Path


def main(spec_path: str) -> None:
    spec = json.loads(Path(spec_path).read_text("utf-8"))
    from torch import distributed

    from gpudoctor.harness.context import open_context

    context = open_context(spec["steps"], spec["seed"], spec["options"])
    begin = time.perf_counter()
    result = import_module(f"gpudoctor.harness.experiments.{spec['experiment']}").run(context)
    if context.rank == 0:
        result.setting = {**context.setting(), **result.setting}
        result.limits = list(dict.fromkeys([*result.limits, *context.limits()])) if result.state != "cannot" else result.limits
        result.seconds = time.perf_counter() - begin
        result.write(Path(spec["out"]))
    if context.world > 1:
        distributed.barrier()
        distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
