"""A small transformer that tells the next character."""

from typing import Final

import torch
from torch import nn

from drills.job.text import CONTEXT

WIDTH: Final = 96
LAYERS: Final = 2
HEADS: Final = 4
DROPOUT: Final = 0.1


class Block(nn.Module):  # type: ignore[misc]
    """Attention and a feed-forward part, each after a norm and beside a bypass."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.inward, self.outward = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.feed = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(DROPOUT))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: batch x CONTEXT x WIDTH, float32."""
        batch, length, _ = x.shape
        parts = self.inward(self.first(x)).view(batch, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        rate = DROPOUT if self.training else 0.0
        mixed = nn.functional.scaled_dot_product_attention(*parts, dropout_p=rate, is_causal=True)
        x = x + self.outward(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.feed(self.second(x))


class CharacterModel(nn.Module):  # type: ignore[misc]
    """Characters in, the loss of the characters that follow out."""

    def __init__(self, characters: int) -> None:
        super().__init__()
        self.letter, self.place = nn.Embedding(characters, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, characters)

    def forward(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Mean cross entropy; both int64, batch x CONTEXT."""
        x = self.letter(inputs) + self.place(torch.arange(inputs.shape[1]))
        logits = self.head(self.norm(self.blocks(x)))
        return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
