"""CUDA sources: the article's kernel is flagged, careful kernels are quiet, strings in Python are read."""

from __future__ import annotations

from pathlib import Path

from gpudoctor.source import parse_sources
from gpudoctor.source.cuda import functions, launches
from tests.source.fieldcases import findings

CLEAN = Path(__file__).parents[1] / "data" / "cuda" / "clean.cu"
ARTICLE = """
__global__ void aggregate(float* grad_a, float* grad_b, int n) {
    int idx = blockIdx.x * blockDim.x + threadIdx.x;
    if (idx < n) {
        grad_a[idx] += grad_b[idx];
        __syncwarp();
    }
}
"""


def _found(files: dict[str, str]) -> list[tuple[str, int]]:
    return [(f.name, f.location.line) for f in findings(parse_sources(files)) if f.location]


def test_the_articles_kernel() -> None:
    assert _found({"k.cu": ARTICLE}) == [("syncwarp-divergent", 6)]
    python = f"from torch.utils.cpp_extension import load_inline\nsource = r'''{ARTICLE}'''\nload_inline('x', cuda_sources=source)\n"
    assert _found({"k.py": python}) == [("syncwarp-divergent", 7)]


def test_careful_kernels_are_quiet() -> None:
    assert _found({"clean.cu": CLEAN.read_text("utf-8")}) == []


def test_the_parser_sees_spaces_and_settings() -> None:
    module = parse_sources({"clean.cu": CLEAN.read_text("utf-8")})[0]
    assert {f.name: f.space for f in functions(module)}["warp_sum"] == "device"
    assert {f.space for f in functions(module) if f.name.endswith("_kernel")} == {"global"}
    assert [len(launch.settings) for launch in launches(module)] == [4, 2, 2]


def test_garbage_does_not_raise() -> None:
    assert _found({"x.cu": "__global__ void f( { <<< >>> } __syncwarp(); \x00 \udcff"[:40]}) == []
