"""Numbers as people read them: durations, bytes, shares; and message templates that use them."""

from __future__ import annotations

import string
from collections.abc import Mapping
from typing import Any

_TIMES = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1, "ns"))
_SIZES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))


def duration(ns: float) -> str:
    """`12_200_000` → `12.2 ms`."""
    return _scaled(ns, _TIMES)


def size(count: float) -> str:
    """Bytes: `8_388_608` → `8 MiB`."""
    return _scaled(count, _SIZES)


def rate(bytes_per_second: float) -> str:
    """Decimal, as links are sold: `2.5e10` → `25 GB/s`."""
    return _scaled(bytes_per_second, ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1, "B/s")))


def share(fraction: float) -> str:
    """`0.934` → `93 %`."""
    percent = 100 * fraction
    return f"{percent:.0f} %" if abs(percent) >= 10 or percent == int(percent) else f"{percent:.1f} %"


def number(value: float) -> str:
    """Integers with thousands separators, others with four significant digits."""
    return f"{int(value):,}" if value == int(value) and abs(value) < 1e15 else f"{value:.4g}"


def _scaled(value: float, units: tuple[tuple[float, str], ...]) -> str:
    for factor, unit in units:
        if abs(value) >= factor:
            scaled = value / factor
            return f"{scaled:.0f} {unit}" if scaled >= 100 or scaled == int(scaled) else f"{scaled:.3g} {unit}"
    return f"{value:.3g} {units[-1][1]}"


_FORMATS = {"ns": duration, "B": size, "B/s": rate, "%": share, "n": number}


class _Template(string.Formatter):
    def get_value(self, key: int | str, args: Any, kwargs: Mapping[str, Any]) -> Any:
        value = kwargs.get(str(key))
        return "?" if value is None else value

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> tuple[Any, str]:
        return self.get_value(field_name, args, kwargs), field_name

    def format_field(self, value: Any, format_spec: str) -> str:
        if isinstance(value, (int, float)) and not isinstance(value, bool) and format_spec in _FORMATS and value == value and abs(value) != float("inf"):
            return _FORMATS[format_spec](value)
        return format(value, format_spec) if format_spec not in _FORMATS else str(value)


def render(template: str, values: Mapping[str, Any]) -> str:
    """Fill `{name}` and `{name:unit}` (ns, B, B/s, %, n); an unknown or null name becomes `?`. Attributes are not followed."""
    return _Template().vformat(template, (), values)
