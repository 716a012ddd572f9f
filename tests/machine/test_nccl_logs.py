"""NCCL logs: the rule that fires, the lines it names, and no traceback for broken ones."""

import gzip
import random
import tomllib
from pathlib import Path

import pytest

from gpudoctor.errors import InputError
from gpudoctor.model import Evidence, Finding, Location
from gpudoctor.rulebook.detect import detect_in_tables
from gpudoctor.rulebook.group import findings_from
from gpudoctor.rulebook.load import load_rules
from gpudoctor.timeline.derive import derive
from gpudoctor.timeline.ingest.nccl_log import matches, read
from gpudoctor.timeline.store import Store

LOGS = sorted((Path(__file__).parents[1] / "data" / "nccl_logs").iterdir())
BOOK = load_rules()


def store_of(*logs: Path, ranks: list[int | None] | None = None) -> Store:
    store = Store()
    for i, log in enumerate(logs):
        read(log, ranks[i] if ranks else None, store)
    derive(store)
    return store


def findings(*logs: Path, ranks: list[int | None] | None = None) -> list[Finding]:
    seen = detect_in_tables(BOOK, store_of(*logs, ranks=ranks), ["log"])
    return findings_from(seen.evidence)


def written(tmp_path: Path, text: str, name: str = "nccl.log") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


@pytest.mark.parametrize("folder", LOGS, ids=lambda f: f.name)
def test_recorded_logs(folder: Path) -> None:
    expected = tomllib.loads((folder / "expected.toml").read_text())
    found = findings(folder / "nccl.log")
    if expected["rule"] == "none":
        assert found == []
        return
    assert [f.name for f in found] == [expected["rule"]]
    severity = {"info": "note"}.get(expected["severity"], expected["severity"])
    assert found[0].severity.name == severity
    assert found[0].location is not None
    assert found[0].location.line == min(expected["lines"])
    assert sorted(e.values["log_line"] for e in found[0].evidence) == expected["lines"]


HEAD = "boxa:90:95 [0] "
PHRASES = {
    "posix_fallocate": ("nccl-shm-too-small", HEAD + "include/shm.h:28 NCCL WARN Call to posix_fallocate failed : No space left on device"),
    "dated extend": ("nccl-shm-too-small", "[2026-04-22 21:34:20] " + HEAD + "misc/shmutils.cc:88 NCCL WARN Error: failed to extend /dev/shm/nccl-WU88OE to 9637892 bytes, error: No space left on device (28)"),
    "loader bus error": ("nccl-shm-too-small", "RuntimeError: DataLoader worker (pid 77) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory."),
    "no host in the line": ("nccl-shm-too-small", "[3] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-H1dBqY to 9637892 bytes"),
    "no kernel": ("nccl-too-old-for-gpu", HEAD + "enqueue.cc:101 NCCL WARN Cuda failure 209 'no kernel image is available for execution on the device'"),
    "ipc handle": ("p2p-broken", "(pid=909608) z-pc:909608:910337 [0] transport/p2p.cc:238 NCCL WARN failed to open CUDA IPC handle : 217 peer access is not supported between these two devices"),
    "nvlink down": ("p2p-disabled-with-nvlink", HEAD + "graph/paths.cc:330 NCCL WARN P2P is disabled between NVLINK connected GPUs 1 and 0. This should not be the case given their connectivity, and is probably due to a hardware issue."),
    "p2p refused": ("nccl-p2p-unavailable", HEAD + "NCCL INFO P2P is disabled between connected GPUs 1 and 0. You can repress this message with NCCL_IGNORE_DISABLED_P2P=1."),
    "old shm words": ("nccl-p2p-unavailable", HEAD + "NCCL INFO Channel 00 : 0[100000] -> 1[200000] via direct shared memory"),
    "sockets inside a host": ("nccl-net-inside-host", HEAD + "NCCL INFO Channel 00/0 : 0[0] -> 1[1] [send] via NET/Socket/0\nboxa:91:96 [1] NCCL INFO Channel 00/0 : 1[1] -> 0[0] [send] via NET/Socket/0"),
    "barrier": ("barrier-device-unknown", "[rank0]:[W207 22:21:42.712978449 ProcessGroupNCCL.cpp:4115] [PG ID 0 PG GUID 0 Rank 0]  using GPU 0 to perform barrier as devices used by this process are currently unknown."),
    "slow start": ("pg-timeout-too-short", "[rank1]:[E626 06:24:44.903881913 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=1800000) ran for 1800042 milliseconds before timing out."),
    "stuck": ("hang", "\n".join(f"[E ProcessGroupNCCL.cpp:737] [Rank {r}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=469508, OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1802212 milliseconds before timing out." for r in range(2))),
    "mismatch": ("collective-mismatch", "[rank1]: RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running collective: CollectiveFingerPrint(SequenceNumber=3104, OpType=ALLREDUCE), but Rank 0 is running collective: CollectiveFingerPrint(SequenceNumber=3104, OpType=BROADCAST)."),
    "gloo interface": ("nccl-ifname-missing", "RuntimeError: [enforce fail at gloo/transport/tcp/device.cc:84] ifa != nullptr. Unable to find interface for: ib_fake9"),
    "torch lacks the card": ("torch-lacks-gpu-arch", "UserWarning: NVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible with the current PyTorch installation."),
    "iommu": ("iommu-acs-p2p", "Sep 21 09:59:59 runtime kernel: nvidia 0000:07:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0003 address=0x80000040 flags=0x0020]"),
    "idle sockets": ("nccl-setting-no-effect", HEAD + "NCCL INFO NCCL_NSOCKS_PERTHREAD set by environment to 4.\n" + HEAD + "NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC"),
    "nvlink unused": ("p2p-disabled-with-nvlink", HEAD + "NCCL INFO NCCL_P2P_DISABLE set by environment to 1\n" + HEAD + "NCCL INFO + NVL[48.0] - GPU/1000\n" + HEAD + "NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct"),
}


@pytest.mark.parametrize("key", PHRASES)
def test_phrases_of_public_logs(key: str, tmp_path: Path) -> None:
    rule, text = PHRASES[key]
    path = written(tmp_path, text + "\n")
    assert matches(text.encode(), path)
    found = findings(path)
    assert [f.name for f in found] == [rule]
    assert found[0].location is not None
    assert found[0].location.path == str(path)


CLEAN = """\
boxa:90:90 [0] NCCL INFO cudaDriverVersion 12080
boxa:90:90 [0] NCCL INFO NCCL version 2.27.3+cuda12.8
boxa:90:95 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.
boxa:90:95 [0] NCCL INFO Failed to open libibverbs.so[.1]
boxa:90:95 [0] NCCL INFO NVLS multicast support is not available on dev 0 (NVLS_NCHANNELS 0)
boxa:90:95 [0] NCCL INFO P2P Chunksize set to 131072
boxa:90:95 [0] NCCL INFO Channel 00/02 : 0 1
boxa:90:95 [0] NCCL INFO Trees [0] 1/-1/-1->0->-1 [1] 1/-1/-1->0->-1
boxa:90:95 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC
boxa:91:96 [1] NCCL INFO Channel 00/0 : 1[1] -> 0[0] via P2P/IPC
boxa:90:95 [0] NCCL INFO 2 coll channels, 2 collnet channels, 0 nvls channels, 2 p2p channels, 2 p2p channels per peer
boxa:90:95 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1000 commId 0x2 - Init COMPLETE
epoch 0 loss 0.31 timeout 5
"""


def test_a_healthy_log_gives_nothing(tmp_path: Path) -> None:
    path = written(tmp_path, CLEAN)
    assert findings(path) == []
    store = store_of(path)
    assert store.query("SELECT rank, peer, kind, detail FROM transport ORDER BY rank") == [
        {"rank": 0, "peer": 1, "kind": "P2P", "detail": "P2P/IPC"}, {"rank": 1, "peer": 0, "kind": "P2P", "detail": "P2P/IPC"},
    ]
    assert store.query("SELECT DISTINCT rank FROM log_line WHERE text LIKE 'ncclComm%'") == [{"rank": 0}]


def test_two_ranks_logs_give_one_finding(tmp_path: Path) -> None:
    watchdog = "[rank{r}]:[E626 06:24:44.9 ProcessGroupNCCL.cpp:616] [Rank {r}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={s}, OpType=ALLREDUCE, NumelIn=9, NumelOut=9, Timeout(ms)=600000) ran for 600020 milliseconds before timing out.\n"
    logs = [written(tmp_path, "step 1\n" + watchdog.format(r=r, s=900 - 2 * r), f"rank{r}.txt") for r in range(2)]
    found = findings(*logs, ranks=[0, 1])
    assert [f.name for f in found] == ["hang"]
    assert found[0].ranks == [0, 1]
    assert "rank 1 is behind" in found[0].message


def test_packed_logs_are_read(tmp_path: Path) -> None:
    path = tmp_path / "nccl.log.gz"
    path.write_bytes(gzip.compress((LOGS[0] / "nccl.log").read_bytes()))
    assert matches(path.read_bytes()[:4096], path)
    assert [f.name for f in findings(path)] == ["nccl-duplicate-gpu"]


def test_a_missing_log_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read(tmp_path / "absent.log", None, Store())


def mutate(data: bytes, rng: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(rng.randint(1, 12)):
        where = rng.randrange(len(out) + 1)
        match rng.randrange(5):
            case 0:
                out[where:where] = rng.randbytes(rng.randint(1, 40))
            case 1:
                del out[where : where + rng.randint(1, 200)]
            case 2:
                out[where:where] = str(rng.randrange(10**30)).encode()
            case 3:
                out += out[: rng.randint(0, len(out))]
            case _:
                out[where:where] = rng.choice([b"\0", b"\n", b"[" * 300, b"NCCL INFO ", b" via ", b"Channel 99999999999 : 1 -> 2 via "])
    return bytes(out)


def test_mutated_logs_never_raise(tmp_path: Path) -> None:
    rng = random.Random(8)
    sources = [(f / "nccl.log").read_bytes() for f in LOGS] + [text.encode() for _, text in PHRASES.values()]
    for round_ in range(10):
        paths = []
        for number in range(20):
            paths.append(tmp_path / f"mutated-{round_}-{number}.log")
            data = mutate(rng.choice(sources), rng)
            paths[-1].write_bytes(data)
            matches(data[:4096], paths[-1])
        findings(*paths, ranks=[rng.choice([None, 0]) for _ in paths])


def test_a_log_joins_the_source_s_finding(tmp_path: Path) -> None:
    rule = BOOK.find("nccl-ifname-missing")
    in_source = Evidence(location=Location("train.py", 3), values={"variable": "NCCL_SOCKET_IFNAME", "value": "ib_fake9"})
    seen = detect_in_tables(BOOK, store_of(next(f for f in LOGS if f.name.startswith("L2")) / "nccl.log"), ["log"])
    found = findings_from([(rule, in_source), *seen.evidence])
    assert [(f.name, f.location) for f in found] == [("nccl-ifname-missing", Location("train.py", 3))]
    assert {e.values.get("log_line") for e in found[0].evidence} == {None, 1, 2}
