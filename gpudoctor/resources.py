"""Where the shipped rules and CUDA sources lie, in a wheel or in a checkout."""

from pathlib import Path

_PACKAGE = Path(__file__).parent


def data_dir(name: str) -> Path:
    """Return the folder `rules` or `cuda_src`: inside the wheel, else beside the package in a checkout."""
    shipped = _PACKAGE / "_data" / name
    return shipped if shipped.is_dir() else _PACKAGE.parent / name
