"""Tables of the machine: cards, links, variables and log lines."""

from gpudoctor.tables.column import RANK, Column, Table, flags, floats, ints, texts

TABLES = (
    Table(
        "gpu",
        "Cards.",
        (*texts("host: host"), *ints("device: index by NVML"), *texts("name: product name; uuid: UUID; bus_id: PCI bus id; arch: compute capability, e.g. 12.0; driver: driver version"),
         *ints("memory: total [B]; sm_count: multiprocessors; pcie_gen: current generation; pcie_width: current lanes; pcie_gen_max: card and slot can do; pcie_width_max: card and slot can do; numa: NUMA node, -1 unknown"),
         *ints("pcie_gen_load: generation while copying; pcie_width_load: lanes while copying; pcie_gen_card: the card alone can do; pcie_width_card: the card alone can do; nvlinks: active NVLinks"),
         *floats("h2d: measured, host to card, pinned [B/s]; d2h: measured, card to host, pinned [B/s]; h2d_together: measured while every card copies [B/s]; pcie_rate: what its PCIe link moves one way, measured or as such links usually do [B/s]"),
         *flags("mig: partitioned by MIG; display: a display hangs on it")),
    ),
    Table(
        "link",
        "Pairs of cards.",
        (*texts("host: host"), *ints("device: card; peer: card"), *texts("kind: NVLINK, PIX, PXB, PHB, NODE, SYS; p2p: ok, unsupported, disabled, broken, untested; reason: the driver's words for a missing P2P"),
         *floats("bandwidth: measured, one direction [B/s]; latency: measured [s]"), *ints("nvlinks: links between the two; wrong_bytes: bytes that a peer copy got wrong [B]")),
    ),
    Table("transport", "How NCCL connects two ranks, from its log.", (RANK, *ints("peer: rank; channel: channel"), *texts("kind: P2P, SHM, NET, NVLS, COLLNET; detail: words behind it; path: log; host: host"), Column("line", "int", "line of the log"))),
    Table("env_var", "Variables of a rank, from an allow-list.", (RANK, *texts("name: variable; value: value; path: log or file that told, null for the environment itself"), Column("line", "int", "line there"))),
    Table("log_line", "Lines of logs that a rule may quote.", (RANK, *texts("path: log; kind: nccl, torch, python, kernel; level: INFO, WARN, ERROR, TRACE; text: the line; host: host"), Column("line", "int", "line of the log, from 1"))),
    Table(
        "machine_fact",
        "What else the machine told: one row a fact.",
        (*texts("host: host; name: shm_total, shm_free, iommu, acs_redirect, container, wsl, driver, nccl, interface, …; text: the answer in words"), Column("value", "float", "the answer as a number")),
    ),
)
