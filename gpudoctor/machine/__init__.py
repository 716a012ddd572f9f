"""Cards, links, drivers and NCCL's environment."""
