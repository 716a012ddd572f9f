"""Compile kernels at run time with NVRTC and keep the result on disk; no nvcc, and no GPU to compile."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from pathlib import Path
from typing import Any

from gpudoctor.errors import MissingExtraError
from gpudoctor.kernels.variant import Variant
from gpudoctor.resources import data_dir

INSTALL = "pip install 'gpudoctor[kernels]', or 'gpudoctor[kernels-cu12]' beside a PyTorch for CUDA 12"


def cuda_core() -> Any:
    """The module `cuda.core`, 0.7 or newer; MissingExtraError where it is absent."""
    try:
        import cuda.core as core
    except ImportError as error:
        raise MissingExtraError(f"CUDA kernels need cuda.core ({error}); {INSTALL}") from None
    return core


def cubin(variant: Variant, arch: str) -> bytes:
    """Machine code of `variant` for `arch` (such as sm_90): from the cache, else compiled and cached.

    Raises MissingExtraError if cuda.core or NVRTC is absent.
    """
    path = cache_dir() / f"{_key(variant, arch)}.cubin"
    with contextlib.suppress(OSError):
        return path.read_bytes()
    code = compile_cubin(variant, arch)
    with contextlib.suppress(OSError):  # a read-only home costs a compilation a process, no more
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_bytes(code)
        temporary.replace(path)
    return code


def compile_cubin(variant: Variant, arch: str) -> bytes:
    """Compile without looking at the cache."""
    core = cuda_core()
    options = core.ProgramOptions(arch=arch, std="c++17", include_path=str(data_dir("cuda_src")), define_macro=variant.macros())
    try:
        program = core.Program((data_dir("cuda_src") / "kernels.cu").read_text("utf-8"), "c++", options)
    except RuntimeError as error:
        raise MissingExtraError(f"NVRTC is not usable ({error}); {INSTALL}") from None
    return bytes(program.compile("cubin").code)


def cache_dir() -> Path:
    """`$GPUDOCTOR_CACHE`, else gpudoctor under the user's cache folder."""
    named = os.environ.get("GPUDOCTOR_CACHE")
    if named:
        return Path(named) / "kernels"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpudoctor" / "kernels"


def _key(variant: Variant, arch: str) -> str:
    return hashlib.sha256(repr((_sources(), variant.macros(), arch, _compiler())).encode()).hexdigest()[:32]


@functools.cache
def _sources() -> str:
    digest = hashlib.sha256()
    for path in sorted([*data_dir("cuda_src").glob("*.cuh"), data_dir("cuda_src") / "kernels.cu"]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


@functools.cache
def _compiler() -> str:
    from importlib import metadata

    versions = []
    for package in ("cuda-core", "cuda-bindings", "nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions.append(f"{package} {metadata.version(package)}")
    return ", ".join(versions)
