"""Well-kept training code in the usual styles: nothing at warning or above."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudoctor.model import Severity
from gpudoctor.source import parse_sources
from tests.source.fieldcases import findings

FOLDER = Path(__file__).parents[1] / "data" / "clean"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda p: p.stem)
def test_nothing_loud(path: Path) -> None:
    found = findings(parse_sources({path.name: path.read_text("utf-8")}))
    assert [(f.name, f.location, f.message) for f in found if f.severity >= Severity.perf] == []


def test_the_scripts_are_followed() -> None:
    """The quiet is not blindness: a fault planted into each is found."""
    planted = {
        "flat_script": ("micro == accumulation - 1", "micro == 0", "no-sync-wrong-microbatch"),
        "spawned_worker": ("            train_sampler.set_epoch(epoch)", "            pass", "missing-set-epoch"),
        "trainer_class": ("            self.scaler.unscale_(self.optimizer)", "            pass", "clip-before-unscale"),
        "accelerated": ("        accelerator.wait_for_everyone()\n        if accelerator.is_main_process:", "        if accelerator.is_main_process:\n            accelerator.wait_for_everyone()",
                        "collective-under-rank-guard"),
        "lit": ("            if not busy:", "            if i % 4 == 0:", "no-sync-wrong-microbatch"),
        "two_player": ("            loss_d.backward()", "            opt_d.zero_grad()\n            loss_d.backward()\n            history.append(loss_d)", "loss-accumulated-with-graph"),
    }
    for stem, (old, new, slug) in planted.items():
        text = (FOLDER / f"{stem}.py").read_text("utf-8")
        assert old in text
        names = {f.name for f in findings(parse_sources({"x.py": text.replace(old, new)}))}
        assert slug in names, (stem, names)
