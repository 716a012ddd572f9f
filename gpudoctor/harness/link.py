"""The PCIe link of a card as NVML reports it."""

from __future__ import annotations

from dataclasses import dataclass

from gpudoctor.machine.rates import pcie_rate


@dataclass(frozen=True, slots=True)
class Link:
    """Generation and width, now and at most."""

    generation: int
    width: int
    max_generation: int
    max_width: int

    @property
    def limit(self) -> float:
        """Bytes a second and direction that the link carries at its present width and its highest generation; cards lower the generation at rest."""
        return pcie_rate(self.max_generation, self.width)

    def __str__(self) -> str:
        return f"PCIe {self.max_generation}.0 x{self.width}" + (f" of x{self.max_width}" if self.width < self.max_width else "")


def link_of(bus_id: str) -> Link | None:
    """The link of the card at a PCI address (`0000:01:00.0`); None where NVML does not say."""
    try:
        import pynvml

        pynvml.nvmlInit()
        try:
            handle = pynvml.nvmlDeviceGetHandleByPciBusId(bus_id)
            return Link(pynvml.nvmlDeviceGetCurrPcieLinkGeneration(handle), pynvml.nvmlDeviceGetCurrPcieLinkWidth(handle),
                        pynvml.nvmlDeviceGetMaxPcieLinkGeneration(handle), pynvml.nvmlDeviceGetMaxPcieLinkWidth(handle))
        finally:
            pynvml.nvmlShutdown()
    except Exception:  # NVML's errors differ by release; a link that is not told is not known
        return None
