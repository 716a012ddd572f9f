"""`gpudoctor rules new`: the files of a rule that passes its own cases, ready to be changed."""

from __future__ import annotations

import re
from pathlib import Path

from gpudoctor.errors import RuleError

_TOML = '''id = "{id}"
slug = "{slug}"
severity = "warning"
confidence = "likely"
summary = "A copy of more than a stated size is found."
message = "{{count}} copies of {{bytes:B}} on {{ranks}}"
why = """Say what goes wrong and what it costs."""
fix = """Say which lines to change, and to what."""

[example]
bad = """
x = batch.to(device)
"""
good = """
x = batch.pin_memory().to(device, non_blocking=True)
"""

[params.min_bytes]
value = 1048576
unit = "B"
doc = "Smaller copies are not worth a finding."

[[detectors]]
kind = "trace"
file = "sql"
needs = ["gpu_op"]

[[cases]]
name = "a large copy"
fires = true
tables.gpu_op = """
rank device stream kind   copy_kind bytes   start end
0    0      7      memcpy h2d       8388608 0     1000
"""

[[cases]]
name = "a small copy"
fires = false
tables.gpu_op = """
rank device stream kind   copy_kind bytes start end
0    0      7      memcpy h2d       4     0     10
"""
'''

_SQL = """SELECT rank, device, stream, count(*) AS count, max(bytes) AS bytes, sum("end" - start) AS cost_ns
FROM gpu_op
WHERE kind = 'memcpy' AND bytes >= $min_bytes
GROUP BY rank, device, stream
ORDER BY rank, device, stream
"""


def new_rule(folder: Path, rule_id: str, slug: str) -> tuple[Path, Path]:
    """Write `GDnnn_slug.toml` and `.sql` into `folder` and return both; an existing file is never overwritten."""
    if not re.fullmatch(r"GD\d{3}", rule_id) or not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", slug):
        raise RuleError(f"{rule_id} {slug}: give an id like GD150 and a slug like my-rule")
    stem = folder / f"{rule_id}_{slug.replace('-', '_')}"
    files = stem.with_suffix(".toml"), stem.with_suffix(".sql")
    if taken := next((f for f in files if f.exists()), None):
        raise RuleError(f"{taken} is there already; choose another id or slug")
    folder.mkdir(parents=True, exist_ok=True)
    files[0].write_text(_TOML.format(id=rule_id, slug=slug), "utf-8")
    files[1].write_text(_SQL, "utf-8")
    return files
