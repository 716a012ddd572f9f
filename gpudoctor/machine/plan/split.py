"""Cut a chain of parts into consecutive pieces whose heaviest, by its card's capacity, is as light as can be; share a batch."""

from __future__ import annotations

from collections.abc import Sequence


def balanced_split(weights: Sequence[float], capacities: Sequence[float]) -> list[int]:
    """Return how many consecutive parts each card takes, in order, so that max(weight ÷ capacity) is least.

    Exact: dynamic programming over cuts. A card may stay empty only if there are fewer parts than cards.
    """
    parts, cards = len(weights), len(capacities)
    sums = [0.0]
    for weight in weights:
        sums.append(sums[-1] + weight)
    least = 1 if parts >= cards else 0
    infinite = float("inf")
    best = [[infinite] * (parts + 1) for _ in range(cards + 1)]
    cut = [[0] * (parts + 1) for _ in range(cards + 1)]
    best[0][0] = 0.0
    for card in range(1, cards + 1):
        for end in range(parts + 1):
            for start in range(end - least + 1):
                load = max(best[card - 1][start], (sums[end] - sums[start]) / capacities[card - 1])
                if load < best[card][end]:
                    best[card][end], cut[card][end] = load, start
    counts, end = [0] * cards, parts
    for card in range(cards, 0, -1):
        counts[card - 1] = end - cut[card][end]
        end = cut[card][end]
    return counts


def share_batch(total: int, speeds: Sequence[float], limits: Sequence[int] | None = None) -> list[int]:
    """Split a global batch over unlike cards in proportion to their speed, no card above its limit.

    The last samples go where the card finishes first. Fewer than `total` are shared out if the limits allow no more.
    """
    limits = list(limits) if limits is not None else [total] * len(speeds)
    shares = [0] * len(speeds)
    scale = sum(speeds)
    for i, speed in enumerate(speeds):
        shares[i] = min(int(total * speed / scale), limits[i])
    while sum(shares) < total:
        open_cards = [i for i in range(len(speeds)) if shares[i] < limits[i]]
        if not open_cards:
            break
        shares[min(open_cards, key=lambda i: ((shares[i] + 1) / speeds[i], i))] += 1
    return shares
