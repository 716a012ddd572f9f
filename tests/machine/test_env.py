"""`gpudoctor env` on machines recorded by hand from documentation, and on the one the tests run on."""

import json
import random
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpudoctor.cli import cli
from gpudoctor.cli.env_report import environment_report
from gpudoctor.config import Config
from gpudoctor.errors import InputError
from gpudoctor.machine import nvml
from gpudoctor.machine.examine import examine
from gpudoctor.machine.live import LiveMachine
from gpudoctor.machine.seam import RECORDING, RecordedMachine, Recorder
from gpudoctor.machine.tree import tree_of
from gpudoctor.model import Report

DATA = Path(__file__).parent / "data"
VERDICTS = {
    "one_card": {},
    "two_geforce": {"nccl-p2p-unavailable": "note"},
    "nvlink_pair": {"p2p-disabled-with-nvlink": "warning"},
    "x4_slot": {"pcie-narrow-link": "perf", "nccl-p2p-unavailable": "note"},
    "idle_link": {},
    "mig": {"mig-limits": "note"},
    "no_driver": {"driver-unusable": "error"},
    "wsl": {},
    "container_small_shm": {"nccl-shm-too-small": "warning"},
    "unlike_cards": {"unlike-cards": "note", "nccl-p2p-unavailable": "note"},
    "p2p_that_lies": {"p2p-broken": "error", "iommu-acs-p2p": "warning"},
    "four_behind_switches": {"iommu-acs-p2p": "warning", "pcie-shared-uplink": "perf"},
}


def report_of(name: str) -> Report:
    return environment_report(examine(RecordedMachine.load(DATA / f"{name}.json")), Config())


def abstained(report: Report) -> set[str]:
    return {a.name for a in report.abstained}


def test_every_recording_has_a_verdict() -> None:
    assert {p.stem for p in DATA.glob("*.json")} == set(VERDICTS)


@pytest.mark.parametrize("name", VERDICTS)
def test_verdict(name: str) -> None:
    report = report_of(name)
    assert {f.name: f.severity.name for f in report.findings} == VERDICTS[name]
    assert len(report.findings) == len(VERDICTS[name])


def test_only_the_narrow_card_is_named() -> None:
    finding = next(f for f in report_of("x4_slot").findings if f.name == "pcie-narrow-link")
    assert finding.devices == [1]
    assert finding.values["now"] == "4.0 x4"
    assert "the slot gives x4" in finding.message


def test_an_idle_link_is_no_fault_and_no_praise() -> None:
    assert "pcie-narrow-link" in abstained(report_of("idle_link"))
    assert "pcie-narrow-link" not in abstained(report_of("one_card"))


def test_without_a_driver_the_rules_abstain() -> None:
    report = report_of("no_driver")
    assert {"pcie-narrow-link", "p2p-broken"} <= abstained(report)
    assert report.summary["machine"]["cards"] == []


def test_facts_of_the_machine() -> None:
    machine = report_of("four_behind_switches").summary["machine"]
    assert [c["bus_id"] for c in machine["cards"]] == [f"0000:0{i}:00.0" for i in range(1, 5)]
    assert machine["facts"]["acs_redirect"] == "on"
    assert {(k["device"], k["peer"]): k["kind"] for k in machine["links"]}[0, 1] == "PIX"
    bridge = report_of("nvlink_pair").summary["machine"]
    assert {(k["kind"], k["nvlinks"], k["p2p"]) for k in bridge["links"]} == {("NVLINK", 4, "ok")}
    assert report_of("wsl").summary["machine"]["facts"]["wsl"] == "WSL 2"
    assert report_of("container_small_shm").summary["machine"]["facts"]["container"] == "Docker"


def test_only_allowed_variables_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cret")
    examined = examine(LiveMachine(copy=False))
    assert examined.variables["NCCL_DEBUG"] == "INFO"
    assert "s3cret" not in json.dumps(examined.summary())


@pytest.mark.parametrize("name", VERDICTS)
def test_command_prints_tree_and_json(name: str) -> None:
    run = CliRunner()
    path = str(DATA / f"{name}.json")
    shown = run.invoke(cli, ["env", "--replay", path])
    assert shown.exception is None or isinstance(shown.exception, SystemExit)
    told = run.invoke(cli, ["env", "--replay", path, "--format", "json"])
    document = json.loads(told.stdout)
    assert document["subject"]["kind"] == "environment"
    assert {f["name"] for f in document["findings"]} == set(VERDICTS[name])
    assert told.exit_code == (1 if "error" in VERDICTS[name].values() else 0)
    for finding in VERDICTS[name]:
        assert finding in shown.stdout


def test_a_recording_answers_like_the_machine(tmp_path: Path) -> None:
    recorder = Recorder(LiveMachine(copy=False))
    first = examine(recorder)
    recorder.save(tmp_path / "machine.json")
    second = examine(RecordedMachine.load(tmp_path / "machine.json"))
    assert first.summary() == second.summary()


def test_a_file_that_is_no_recording_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[1]")
    with pytest.raises(InputError, match="not a recorded machine"):
        RecordedMachine.load(tmp_path / "x.json")


def test_nvml_that_fails_is_words(monkeypatch: pytest.MonkeyPatch) -> None:
    import pynvml

    def fail() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)

    monkeypatch.setattr(pynvml, "nvmlInit", fail)
    assert set(nvml.ask()) == {"error"}


def test_any_answer_may_be_missing() -> None:
    rng = random.Random(8)
    for path in sorted(DATA.glob("*.json")):
        answers = json.loads(path.read_text())
        for _ in range(15):
            examined = examine(RecordedMachine(thin(answers, rng) | {"schema": RECORDING}))
            tree_of(examined)
            examined.tables()


def thin(value: object, rng: random.Random, depth: int = 0) -> dict[str, object]:
    """Drop a third of the answers at every level; what identifies a card or a pair stays."""
    assert isinstance(value, dict)
    kept = {}
    for key, answer in value.items():
        if key in ("index", "device", "peer"):
            kept[key] = answer
        elif rng.random() < 0.7:
            if isinstance(answer, dict):
                answer = thin(answer, rng, depth + 1)
            elif isinstance(answer, list) and answer and isinstance(answer[0], dict):
                answer = [thin(a, rng, depth + 1) for a in answer]
            kept[key] = answer
        elif depth >= 2 and rng.random() < 0.5:
            kept[key] = None
    return kept
