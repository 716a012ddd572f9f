"""Every kernel compiles for every architecture, with NVRTC alone and without a GPU."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("cuda.core", reason="needs cuda.core and NVRTC: pip install 'gpudoctor[kernels]'")

from gpudoctor.errors import MissingExtraError
from gpudoctor.kernels import compile as compiling
from gpudoctor.kernels.variant import ARCHITECTURES, Entry, Variant, shipped
from gpudoctor.resources import data_dir


def compiled(variant: Variant, arch: str) -> bytes:
    try:
        return compiling.compile_cubin(variant, arch)
    except MissingExtraError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("entry", Entry)
def test_each_entry_compiles(entry: Entry, arch: str) -> None:
    code = compiled(Variant(entry, "BF16"), arch)
    assert code.startswith(b"\x7fELF")
    assert f"gd_{entry.name}".encode() in code


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_shipped_variant_compiles(arch: str) -> None:
    for variant in shipped():
        assert compiled(variant, arch).startswith(b"\x7fELF"), variant


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc, of CUDA 12.8 or newer")
@pytest.mark.parametrize("arch", [ARCHITECTURES[0], ARCHITECTURES[-1]])
def test_the_bench_compiles(arch: str, tmp_path: Path) -> None:
    done = subprocess.run(["nvcc", "-std=c++17", f"-arch={arch}", "-c", str(data_dir("cuda_src") / "bench.cu"), "-o", str(tmp_path / "bench.o")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_cache_is_by_source_and_architecture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUDOCTOR_CACHE", str(tmp_path))
    calls = []
    monkeypatch.setattr(compiling, "compile_cubin", lambda variant, arch: calls.append(arch) or b"code")
    variant = Variant(Entry.flat)
    for arch in ("sm_90", "sm_90", "sm_120"):
        assert compiling.cubin(variant, arch) == b"code"
    assert calls == ["sm_90", "sm_120"]
    monkeypatch.setattr(compiling, "_sources", lambda: "another source")
    compiling.cubin(variant, "sm_90")
    assert calls == ["sm_90", "sm_120", "sm_90"]
    assert len(list((tmp_path / "kernels").glob("*.cubin"))) == 3


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("GPUDOCTOR_CACHE", str(blocked))
    monkeypatch.setattr(compiling, "compile_cubin", lambda variant, arch: b"code")
    assert compiling.cubin(Variant(Entry.flat), "sm_90") == b"code"
