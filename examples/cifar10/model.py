"""SimpleDLA: the small deep-layer-aggregation network for 32x32 pictures (Yu et al., arXiv:1707.06484).

`width` scales every channel count, so that the same network also fits a laptop: at 1.0 it has 15.1 million
parameters, at 0.125 about 0.24 million.
"""
import torch
from torch import nn
from torch.nn import functional as F

STEM = (16, 16, 32)
STAGES = (  # channels, depth of the tree, stride
    (64, 1, 1),
    (128, 2, 2),
    (256, 2, 2),
    (512, 1, 2),
)


def conv_norm(inputs, outputs, kernel=3, stride=1):
    """A convolution that keeps the picture's size (except for the stride), and its normalisation."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False),
        nn.BatchNorm2d(outputs),
    )


class Residual(nn.Module):
    """Two 3x3 convolutions parallel to a shortcut."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.first = conv_norm(inputs, outputs, stride=stride)
        self.second = conv_norm(outputs, outputs)
        same_shape = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same_shape else conv_norm(inputs, outputs, kernel=1, stride=stride)

    def forward(self, x):
        return F.relu(self.second(F.relu(self.first(x))) + self.shortcut(x))


class Tree(nn.Module):
    """Two branches in a row, both of which feed the root that aggregates them."""

    def __init__(self, inputs, outputs, depth, stride):
        super().__init__()
        if depth == 1:
            self.left = Residual(inputs, outputs, stride)
            self.right = Residual(outputs, outputs, 1)
        else:
            self.left = Tree(inputs, outputs, depth - 1, stride)
            self.right = Tree(outputs, outputs, depth - 1, 1)
        self.root = conv_norm(2 * outputs, outputs, kernel=1)

    def forward(self, x):
        left = self.left(x)
        right = self.right(left)
        return F.relu(self.root(torch.cat((left, right), dim=1)))


class SimpleDLA(nn.Module):
    def __init__(self, classes=10, width=1.0):
        super().__init__()

        def scaled(channels):
            return max(2, round(channels * width))

        layers, channels = [], 3
        for outputs in STEM:
            layers += [conv_norm(channels, scaled(outputs)), nn.ReLU()]
            channels = scaled(outputs)
        for outputs, depth, stride in STAGES:
            layers.append(Tree(channels, scaled(outputs), depth, stride))
            channels = scaled(outputs)
        self.features = nn.Sequential(*layers)
        self.classify = nn.Linear(channels, classes)

    def forward(self, x):
        # The last stage leaves 4x4 pixels per channel.
        return self.classify(self.features(x).mean(dim=(2, 3)))
