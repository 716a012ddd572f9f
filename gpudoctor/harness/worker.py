"""One rank: `python -m gpudoctor.harness.worker SPEC.json` runs the experiments of the specification one after another."""

from __future__ import annotations

import gc
import json
import sys
import time
from importlib import import_module
from pathlib import Path


def main(spec_path: str) -> None:
    spec = json.loads(Path(spec_path).read_text("utf-8"))
    import torch

    from gpudoctor.harness.context import close_context, open_context

    context = open_context(spec["steps"], spec["seed"], spec["options"])
    for name in spec["experiments"]:
        begin = time.perf_counter()
        result = import_module(f"gpudoctor.harness.experiments.{name}").run(context)
        if context.rank == 0:
            result.setting = {**context.setting(), **result.setting}
            result.limits = list(dict.fromkeys([*result.limits, *context.limits()])) if result.state != "cannot" else result.limits
            result.seconds = time.perf_counter() - begin
            result.write(Path(spec["folder"]) / f"{name}.json")
        gc.collect()
        if context.cuda:
            torch.cuda.empty_cache()
        context.gather(None)  # all ranks end one experiment before any begins the next
    close_context(context)


if __name__ == "__main__":
    main(sys.argv[1])
