"""Image classifiers: VGG-like (3.2M, most of it in two dense layers), ResNet-like (2.8M, many layers), an MLP (3.3M).

They normalise by groups and not by batch: batch statistics are buffers, which DDP would send besides the gradients.
"""

from itertools import pairwise

from torch import Tensor, nn

from laconic.lab.workloads.images import CLASSES, Images
from laconic.lab.workloads.workload import Workload


def vgg() -> nn.Module:
    layers: list[nn.Module] = []
    channels = 3
    for width in (32, 64, 128, 128):
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.GroupNorm(8, width), nn.ReLU(), nn.MaxPool2d(2)]
        channels = width
    flat = channels * 2 * 2
    head = [nn.Flatten(), nn.Linear(flat, 1536), nn.ReLU(), nn.Linear(1536, 1408), nn.ReLU(), nn.Linear(1408, CLASSES)]
    return nn.Sequential(*layers, *head)


class ResidualBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.GroupNorm(8, outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.GroupNorm(8, outputs),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.GroupNorm(8, outputs))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.relu(self.main(x) + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, widths: tuple[int, ...] = (16, 32, 64, 128, 256)) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, widths[0], 3, 2, 1, bias=False), nn.GroupNorm(8, widths[0]), nn.ReLU()]
        for inputs, outputs in pairwise(widths):
            layers += [ResidualBlock(inputs, outputs, 2), ResidualBlock(outputs, outputs, 1)]
        self.features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(widths[-1], CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.head(self.features(images))
        return scores


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(3072, 832), nn.ReLU(), nn.Linear(832, 832), nn.ReLU(), nn.Linear(832, CLASSES)
    )


VGG = Workload("vgg", "VGG-like CNN", vgg, Images, batch=32, learning_rate=0.02, quality="accuracy")
RESNET = Workload("resnet", "ResNet-like CNN, 4 stages", ResNet, Images, 32, 1e-3, "accuracy", optimizer="adam")
MLP = Workload("mlp", "3-layer perceptron", mlp, Images, batch=32, learning_rate=0.02, quality="accuracy")
