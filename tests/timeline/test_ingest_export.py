"""nsys reports through `nsys export`, with a stand-in for nsys, and with the real one where there is one."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from gpudoctor.errors import InputError
from gpudoctor.nsight import find_nsys
from gpudoctor.timeline.ingest import Ingested, IngestOptions, ingest

DATA = Path(__file__).parents[1] / "data" / "captures"


def read(path: Path) -> Ingested:
    return ingest([path], IngestOptions(cache=False, debug=True))


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = tmp_path / "r.nsys-rep"
    path.write_bytes(b"\x08\x02\x00binary 2023.4.4.54-x 2025.3.1.90-y\x00")
    return path


def stand_in(folder: Path, script: str) -> Path:
    """An executable that answers `--version` as 2024.1.1 and runs `script` for an export to "$out"."""
    path = folder / "bin" / "nsys"
    path.parent.mkdir(exist_ok=True)
    path.write_text('#!/bin/sh\n[ "$1" = --version ] && { echo "NVIDIA Nsight Systems version 2024.1.1.59"; exit; }\n'
                    'for a in "$@"; do case "$a" in --output=*) out="${a#--output=}";; esac; done\n' + script)
    path.chmod(0o755)
    return path


def test_the_export_is_read_and_the_exporter_named(tmp_path: Path, report: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = tmp_path / "plain.sqlite"
    plain.write_bytes(gzip.decompress((DATA / "nsys_3.20.3_clean_overlap.sqlite.gz").read_bytes()))
    nsys = stand_in(tmp_path, f'cp "{plain}" "$out"\n')
    monkeypatch.setenv("NSYS", str(nsys))
    result = read(report)
    assert result.store.count("gpu_op") == 276
    assert result.store.query("SELECT path FROM capture") == [{"path": str(report)}]
    assert result.notes == [f"r.nsys-rep exported by {nsys}"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bin", "plain.sqlite", "r.nsys-rep"], "nothing is left beside the report"


def test_an_nsys_that_knows_no_json_exports_without(tmp_path: Path, report: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = tmp_path / "plain.sqlite"
    plain.write_bytes(gzip.decompress((DATA / "nsys_3.20.3_clean_overlap.sqlite.gz").read_bytes()))
    refuse = 'case "$*" in *--include-json*) echo "unrecognised option \'--include-json=true\'"; exit 1;; esac\n'
    monkeypatch.setenv("NSYS", str(stand_in(tmp_path, refuse + f'cp "{plain}" "$out"\n')))
    assert read(report).store.count("gpu_op") == 276


def test_secrets_of_this_shell_do_not_reach_nsys(tmp_path: Path, report: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = tmp_path / "seen"
    monkeypatch.setenv("NSYS", str(stand_in(tmp_path, f'env > "{seen}"; exit 1\n')))
    monkeypatch.setenv("HF_TOKEN", "s3cr3t")
    with pytest.raises(InputError):
        read(report)
    assert "s3cr3t" not in seen.read_text()


def test_a_report_newer_than_nsys_is_one_line(tmp_path: Path, report: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NSYS", str(stand_in(tmp_path, 'echo partial > "$out"; echo "File is from a newer version" >&2; exit 1\n')))
    with pytest.raises(InputError, match=r"made by nsys 2025\.3\.1\.90, newer than 2024\.1\.1\.59") as caught:
        read(report)
    assert "\n" not in str(caught.value)


def test_another_failure_quotes_nsys(tmp_path: Path, report: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report.write_bytes(b"\x00\x01 no version in here")
    monkeypatch.setenv("NSYS", str(stand_in(tmp_path, 'echo "Importation error: bad header"; exit 1\n')))
    with pytest.raises(InputError, match=r"cannot export it \(Importation error: bad header\)"):
        read(report)


def test_without_nsys_the_message_says_where_it_was_looked_for(report: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NSYS", "/nowhere/nsys")
    with pytest.raises(InputError, match="needs Nsight Systems"):
        read(report)


def test_what_nsys_left_without_its_importer_names_the_importer(tmp_path: Path) -> None:
    (tmp_path / "run.qdstrm").write_bytes(b"\x01\x02\x03")
    with pytest.raises(InputError, match=r"run.qdstrm: nsys could not make its report of it; `QdstrmImporter -i "):
        read(tmp_path / "run.qdstrm")


def test_a_script_is_no_capture(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch.distributed as dist\ndist.init_process_group('nccl')\n", "utf-8")
    with pytest.raises(InputError, match=r"train.py: is source; `gpudoctor lint "):
        read(tmp_path / "train.py")


def test_where_nsys_is_looked_for(tmp_path: Path) -> None:
    def make(place: str) -> Path:
        path = tmp_path / place / "nsys"
        path.parent.mkdir(parents=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
        return path

    usual, on_path = make("opt/nvidia/nsight-systems/2024.1/bin"), make("path")
    newer = make("opt/nvidia/nsight-systems/2025.3/bin")
    assert find_nsys({"PATH": "/nowhere"}, tmp_path) == newer
    assert find_nsys({"PATH": str(on_path.parent)}, tmp_path) == on_path
    assert find_nsys({"PATH": str(on_path.parent), "NSYS": str(usual)}, tmp_path) == usual
    assert find_nsys({"PATH": "/nowhere"}, tmp_path / "empty") is None


@pytest.mark.nsys
def test_the_real_nsys_exports_a_real_report() -> None:
    if find_nsys() is None or "GPUDOCTOR_NSYS_REP" not in os.environ:
        pytest.skip("needs Nsight Systems and a report of it in GPUDOCTOR_NSYS_REP")
    assert read(Path(os.environ["GPUDOCTOR_NSYS_REP"])).store.count("nvtx") > 0
