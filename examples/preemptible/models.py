"""The two networks: a small CNN for CIFAR-10, and ResNet-50 with the parameter names of torchvision's."""
import torch
from torch import nn
from torch.nn import functional


class SmallCnn(nn.Module):
    """Two convolutions, each followed by pooling, and three fully connected layers: pictures (n, 3, 32, 32) to scores (n, 10)."""

    def __init__(self, classes=10):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, classes)

    def forward(self, pictures):
        x = functional.max_pool2d(functional.relu(self.conv1(pictures)), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        x = functional.relu(self.fc1(torch.flatten(x, 1)))
        return self.fc3(functional.relu(self.fc2(x)))


def norm(channels):
    return nn.BatchNorm2d(channels)


class Bottleneck(nn.Module):
    """1x1, 3x3 (with the stride), 1x1 convolutions parallel to a shortcut; the output has four times as many channels."""

    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = 4 * width
        self.conv1, self.bn1 = nn.Conv2d(inputs, width, 1, bias=False), norm(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), norm(width)
        self.conv3, self.bn3 = nn.Conv2d(width, outputs, 1, bias=False), norm(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), norm(outputs))

    def forward(self, x):
        y = functional.relu(self.bn1(self.conv1(x)))
        y = functional.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return functional.relu(y + (self.downsample(x) if self.downsample else x))


class ResNet50(nn.Module):
    """Pictures (n, 3, side, side), side at least 32, to scores (n, classes). `width` scales every channel count."""

    def __init__(self, classes=1000, width=1.0):
        super().__init__()
        first = max(1, round(64 * width))
        self.conv1, self.bn1 = nn.Conv2d(3, first, 7, 2, 3, bias=False), norm(first)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.inputs = first
        self.layer1, self.layer2 = self.stage(first, 3, 1), self.stage(2 * first, 4, 2)
        self.layer3, self.layer4 = self.stage(4 * first, 6, 2), self.stage(8 * first, 3, 2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(32 * first, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def stage(self, width, count, stride):
        blocks = [Bottleneck(self.inputs, width, stride)]
        self.inputs = 4 * width
        blocks += [Bottleneck(self.inputs, width, 1) for _ in range(1, count)]
        return nn.Sequential(*blocks)

    def forward(self, pictures):
        x = self.maxpool(functional.relu(self.bn1(self.conv1(pictures))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


def fine_tuned(classes, weights, width=1.0):
    """ResNet-50 with a new last layer for `classes`; the other layers come from the file `weights` (a state_dict for 1,000 classes)."""
    model = ResNet50(1000, width)
    if weights:
        try:
            model.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
        except OSError:
            raise
        except Exception as error:  # torch raises many types for a damaged file
            reason = " ".join(str(error).split())[:300]
            raise ValueError(f"{weights}: not the weights of a ResNet-50 of this width for 1,000 classes: {reason}") from error
    model.fc = nn.Linear(model.fc.in_features, classes)
    return model
