"""Tables of the machine: cards, links, variables and log lines."""

from gpudoctor.tables.column import RANK, Column, Table, floats, ints, texts

TABLES = (
    Table(
        "gpu",
        "Cards.",
        (*texts("host: host"), *ints("device: index by NVML"), *texts("name: product name; uuid: UUID; bus_id: PCI bus id; arch: compute capability, e.g. 12.0; driver: driver version"),
         *ints("memory: total [B]; sm_count: multiprocessors; pcie_gen: current generation; pcie_width: current lanes; pcie_gen_max: card and slot can do; pcie_width_max: card and slot can do; numa: NUMA node, -1 unknown")),
    ),
    Table(
        "link",
        "Pairs of cards.",
        (*texts("host: host"), *ints("device: card; peer: card"), *texts("kind: NVLINK, PIX, PXB, PHB, NODE, SYS; p2p: ok, unsupported, disabled, broken, untested"), *floats("bandwidth: measured, one direction [B/s]; latency: measured [s]")),
    ),
    Table("transport", "How NCCL connects two ranks, from its log.", (RANK, *ints("peer: rank; channel: channel"), *texts("kind: P2P, SHM, NET, NVLS, COLLNET; detail: words behind it; path: log"), Column("line", "int", "line of the log"))),
    Table("env_var", "Variables of a rank, from an allow-list.", (RANK, *texts("name: variable; value: value"))),
    Table("log_line", "Lines of logs that a rule may quote.", (RANK, *texts("path: log; kind: nccl, torch, python, kernel; level: INFO, WARN, ERROR, TRACE; text: the line; host: host"), Column("line", "int", "line of the log, from 1"))),
)
