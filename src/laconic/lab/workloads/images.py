"""Pictures to tell apart: a made set by default, or CIFAR-10 from a .npz file. 3 x 32 x 32, ten classes."""

import math
import zipfile
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from laconic.errors import InvalidConfig

CLASSES = 10
_ARRAYS = ("train_images", "train_labels", "test_images", "test_labels")


class Images:
    """Images normalised to mean 0 and deviation 1; training ones are flipped and shifted at random."""

    def __init__(self, path: str | None) -> None:
        train, self._train_labels, test, self._test_labels = _load(path) if path else _made()
        mean, deviation = train.mean((0, 2, 3), keepdim=True), train.std((0, 2, 3), keepdim=True)
        self._train, self._test = (train - mean) / deviation, (test - mean) / deviation
        self._augment = path is not None

    def batches(self, size: int, rank: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        draw = torch.Generator().manual_seed(seed * 1009 + rank)
        while True:
            chosen = torch.randint(len(self._train), (size,), generator=draw)
            images = self._train[chosen]
            if self._augment:
                flip, dx, dy = torch.randint(-2, 3, (3,), generator=draw).tolist()
                images = images.roll((dy, dx), (2, 3))
                images = images.flip(3) if flip > 0 else images
            yield images, self._train_labels[chosen]

    def held_out(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        for start in range(0, min(len(self._test), 512), size):
            yield self._test[start : start + size], self._test_labels[start : start + size]


def _load(path: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    try:
        with np.load(path, allow_pickle=False) as file:
            images, labels, test_images, test_labels = (file[name] for name in _ARRAYS)
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        remedy = f"give a .npz file with the arrays {', '.join(_ARRAYS)} ({error})"
        raise InvalidConfig("data", path, remedy) from None
    return _pixels(images), torch.from_numpy(labels).long(), _pixels(test_images), torch.from_numpy(test_labels).long()


def _pixels(images: "np.ndarray[tuple[int, ...], np.dtype[np.uint8]]") -> Tensor:
    return torch.from_numpy(images).permute(0, 3, 1, 2).float().div_(255)


@lru_cache(maxsize=1)
def _made(train: int = 4000, test: int = 512) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Ten smooth patterns, each seen at a random place and strength, mirrored or not, over waves and noise."""
    draw = torch.Generator().manual_seed(11)
    count = train + test
    coarse = torch.randn(CLASSES, 3, 6, 6, generator=draw)
    patterns = torch.nn.functional.interpolate(coarse, size=(48, 48), mode="bicubic")
    labels = torch.randint(CLASSES, (count,), generator=draw)
    images = torch.randn(count, 3, 32, 32, generator=draw)
    place = torch.linspace(-math.pi, math.pi, 32)
    for index, label in enumerate(labels.tolist()):
        top, left, mirrored = torch.randint(5, 11, (3,), generator=draw).tolist()
        strength, kx, ky, phase = torch.rand(4, generator=draw).tolist()
        pattern = patterns[label, :, top : top + 32, left : left + 32]
        waves = torch.sin(place * (1 + 4 * kx) + place[:, None] * (1 + 4 * ky) + 6.3 * phase)
        images[index] += (0.25 + 0.5 * strength) * (pattern.flip(2) if mirrored > 7 else pattern) + waves
    return images[:train], labels[:train], images[train:], labels[train:]
