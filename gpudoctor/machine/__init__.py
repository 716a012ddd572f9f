"""The machine: cards, links, driver, NCCL's environment, and what training would cost on it. Never imports torch."""
