"""The cache beside captures: quick, never stale, never in the way, not to be planted by strangers."""

from __future__ import annotations

import gzip
import os
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from gpudoctor.timeline import cache, digest
from gpudoctor.timeline.ingest import Ingested, IngestOptions, ingest, several

DATA = Path(__file__).parents[1] / "data" / "captures"


@pytest.fixture
def capture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(cache, "WORTH_CACHING", 0)
    path = tmp_path / "captures" / "r.sqlite"
    path.parent.mkdir()
    path.write_bytes(gzip.decompress((DATA / "nsys_3.20.3_clean_overlap.sqlite.gz").read_bytes()))
    return path


def read(path: Path, use: bool = True) -> Ingested:
    return ingest([path], IngestOptions(cache=use, debug=True))


def entries(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.duckdb"))


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The first path of every reading that really took place."""
    seen: list[Path] = []
    real = several._read

    def watched(paths: list[Path], *rest: object) -> Ingested:
        seen.append(paths[0])
        return real(paths, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(several, "_read", watched)
    return seen


def test_the_second_reading_is_the_first(capture: Path, readings: list[Path]) -> None:
    first, second = read(capture), read(capture)
    assert len(readings) == 1
    assert (first.kinds, first.notes, first.problems, first.store.captured) == (second.kinds, second.notes, second.problems, second.store.captured)
    for table in sorted(first.store.captured):
        assert first.store.query(f'SELECT * FROM "{table}" ORDER BY ALL') == second.store.query(f'SELECT * FROM "{table}" ORDER BY ALL')
    assert len(entries(capture.parent / cache.CACHE_FOLDER)) == 1
    assert (capture.parent / cache.CACHE_FOLDER / ".gitignore").read_text() == "*\n"


def test_a_change_that_keeps_size_and_mtime_is_seen(capture: Path, readings: list[Path]) -> None:
    read(capture)
    about = capture.stat()
    with duckdb.connect() as _, capture.open("r+b") as file:
        file.seek(about.st_size - 100)
        byte = file.read(1)
        file.seek(about.st_size - 100)
        file.write(bytes([byte[0] ^ 1]))
    os.utime(capture, ns=(about.st_atime_ns, about.st_mtime_ns))
    read(capture)
    assert len(readings) == 2


def test_an_unchanged_old_file_is_not_hashed_again(capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[Path] = []
    real = digest._sha256
    monkeypatch.setattr(digest, "_sha256", lambda file: hashed.append(file) or real(file))
    monkeypatch.setattr(cache, "_RACY_NS", 50_000_000)
    time.sleep(0.1)
    for _ in range(3):
        read(capture)
    assert len(hashed) == 1
    capture.touch()
    read(capture)
    assert len(hashed) == 2, "touched: hashed again, and found equal"
    assert len(entries(capture.parent / cache.CACHE_FOLDER)) == 1


def test_a_hash_begun_before_the_file_changed_does_not_count(capture: Path) -> None:
    before = digest.stamp(capture)
    digest.begin([capture])
    early = digest._begun[capture].result()[1]
    with capture.open("ab") as file:
        file.write(b"x")
    now = digest.sha256(capture, digest.stamp(capture))
    assert now == digest._sha256(capture) != early
    digest.begin([capture])
    assert digest.sha256(capture, digest.stamp(capture)) == now
    with pytest.raises(OSError, match="No such file"):
        digest.sha256(capture.with_name("absent"), before)


def test_a_change_right_after_the_reading_is_seen(capture: Path, readings: list[Path]) -> None:
    for _ in range(3):
        with capture.open("ab") as file:
            file.write(b"x")
        read(capture)
    assert len(readings) == 3


def test_new_code_makes_old_entries_void(capture: Path, readings: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    read(capture)
    monkeypatch.setattr(cache, "_code", lambda: "other")
    read(capture)
    assert len(readings) == 2


def test_an_entry_of_another_user_is_not_believed(capture: Path, readings: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read(capture)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another"))
    read(capture)
    assert len(readings) == 2
    assert (tmp_path / "home" / "gpudoctor" / "key").stat().st_mode & 0o077 == 0


def test_a_damaged_entry_is_replaced(capture: Path, readings: list[Path]) -> None:
    read(capture).store.close()
    (entry,) = entries(capture.parent / cache.CACHE_FOLDER)
    entry.write_bytes(entry.read_bytes()[:5000])
    assert read(capture).store.count("gpu_op") == 276
    assert len(readings) == 2


def test_no_secret_of_the_report_is_in_an_entry(capture: Path) -> None:
    secret = "s3cr3t" * 2000
    with closing(sqlite3.connect(capture)) as db:
        db.execute("INSERT INTO StringIds VALUES (99999999, ?)", (f"HF_TOKEN={secret}",))
        db.execute("INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:ENVIRONMENT_VARIABLE', ?)", (f"HF_TOKEN={secret}",))
        db.commit()
    read(capture).store.close()
    for file in (capture.parent / cache.CACHE_FOLDER).iterdir():
        assert b"s3cr3t" not in file.read_bytes()


def test_no_cache_leaves_nothing(capture: Path) -> None:
    read(capture, use=False)
    assert not (capture.parent / cache.CACHE_FOLDER).exists()


def test_a_folder_that_is_not_for_writing_is_left_alone(capture: Path, readings: list[Path], tmp_path: Path) -> None:
    capture.parent.chmod(0o555)
    try:
        read(capture)
        read(capture)
    finally:
        capture.parent.chmod(0o755)
    assert not (capture.parent / cache.CACHE_FOLDER).exists()
    assert len(readings) == 1
    assert len(entries(tmp_path / "home" / "gpudoctor")) == 1


def test_nowhere_to_write_is_no_error(capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    assert read(capture).store.count("gpu_op") == 276


def test_a_failed_reading_leaves_no_entry(capture: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        ingest([capture], IngestOptions(debug=True, progress=lambda done, total: 1 // 0))  # type: ignore[arg-type, return-value]
    assert not [p for p in (capture.parent / cache.CACHE_FOLDER).iterdir() if p.suffix in (".duckdb", ".partial", ".wal")]


def test_only_the_last_entries_are_kept(capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "KEPT", 2)
    for number in range(4):
        read(shutil.copy(capture, capture.with_name(f"r{number}.sqlite")))
    assert len(entries(capture.parent / cache.CACHE_FOLDER)) == 2


def test_a_kept_store_refuses_to_be_changed(capture: Path) -> None:
    for store in (read(capture).store, read(capture).store):
        with pytest.raises(duckdb.Error):
            store.add_rows("gpu_op", [{"rank": 0, "start": 1, "end": 2}])
