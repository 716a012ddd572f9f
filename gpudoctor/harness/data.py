"""Text made from a seed: sentences of a small grammar whose words agree, so that there is something to learn."""

from __future__ import annotations

import random

import torch

ALPHABET = "\n abcdefghijklmnopqrstuvwxyz.,"
VOCABULARY = len(ALPHABET)
_SUBJECTS = {"the cat": "s", "a dog": "s", "the birds": "", "two foxes": "", "my sister": "s", "old men": ""}
_VERBS = ["see", "like", "follow", "hear", "paint", "remember"]
_ENDS = ["the river", "every hill", "a quiet song", "the long road", "warm bread", "the first snow"]


def text(characters: int, seed: int) -> str:
    """At least `characters` of text, the same for the same seed."""
    chance = random.Random(seed)
    parts: list[str] = []
    length = 0
    while length < characters:
        subject, ending = chance.choice(list(_SUBJECTS.items()))
        sentence = f"{subject} {chance.choice(_VERBS)}{ending} {chance.choice(_ENDS)}{chance.choice(['.', ', and', '.'])}{chance.choice([' ', chr(10)])}"
        parts.append(sentence)
        length += len(sentence)
    return "".join(parts)


class Corpus:
    """Batches of next-character prediction; step and size name a batch, whoever asks for it."""

    def __init__(self, context: int, seed: int, characters: int = 60_000) -> None:
        places = {letter: n for n, letter in enumerate(ALPHABET)}
        self._tokens = torch.tensor([places[letter] for letter in text(characters, seed)])
        self._context, self._seed = context, seed

    def batch(self, step: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens and targets of global batch `step`: int64 [size, context] each, on the CPU."""
        generator = torch.Generator().manual_seed(self._seed * 1_000_003 + step)
        starts = torch.randint(len(self._tokens) - self._context - 1, (size,), generator=generator)
        windows = starts[:, None] + torch.arange(self._context + 1)
        sample = self._tokens[windows]
        return sample[:, :-1].contiguous(), sample[:, 1:].contiguous()
