"""Record a run without judging it, for machines that lack the libraries of the report; `gpudoctor analyze FOLDER` judges it elsewhere.

    python tests/gpu/record.py OUT RANKS [--sanitize] script.py [ARGS…]
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from gpudoctor.launch.plan import Plan, carry_out


def main() -> int:
    out, ranks, *words = sys.argv[1:]
    sanitize = words[0] == "--sanitize"
    plan = Plan(command_line=tuple(words[sanitize:]), torchrun={"nproc_per_node": ranks}, out=Path(out), capture="kineto", capture_steps=6, sanitize=sanitize)
    _, session = carry_out(plan)
    return session.exit_code


if __name__ == "__main__":
    sys.exit(main())
