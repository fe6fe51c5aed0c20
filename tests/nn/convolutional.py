"""Models of images, each written once for simfloat.nn and torch.nn: `nn` is either of them."""


def residual_net(nn, channels=(4, 6), classes=3):
    """A small classifier with residual blocks, batch normalization and global average pooling."""

    class Block(nn.Module):
        def __init__(self, inputs, outputs, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
            self.bn1 = nn.BatchNorm2d(outputs)
            self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
            self.bn2 = nn.BatchNorm2d(outputs)
            self.shortcut = nn.Sequential()
            if stride != 1 or inputs != outputs:
                self.shortcut = nn.Sequential(
                    nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
                )

        def forward(self, x):
            y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
            return (y + self.shortcut(x)).relu()

    first, second = channels
    return nn.Sequential(
        nn.Conv2d(3, first, 3, padding=1), nn.BatchNorm2d(first), nn.ReLU(), Block(first, first, 1),
        nn.MaxPool2d(3, 2, 1), Block(first, second, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(second, classes),
    )  # fmt: skip


def generator(nn, noise=5, channels=4):
    """The generator of a DCGAN (Radford et al., ICLR 2016) for images of 8 x 8."""
    return nn.Sequential(
        nn.ConvTranspose2d(noise, 2 * channels, 2, 1, 0, bias=False), nn.BatchNorm2d(2 * channels), nn.ReLU(),
        nn.ConvTranspose2d(2 * channels, channels, 4, 2, 1, bias=False), nn.BatchNorm2d(channels), nn.ReLU(),
        nn.ConvTranspose2d(channels, 3, 4, 2, 1, bias=False), nn.Tanh(),
    )  # fmt: skip


def discriminator(nn, channels=4):
    """The discriminator of a DCGAN for images of 8 x 8: one logit for each."""
    return nn.Sequential(
        nn.Conv2d(3, channels, 4, 2, 1, bias=False), nn.LeakyReLU(0.2),
        nn.Conv2d(channels, 2 * channels, 4, 2, 1, bias=False), nn.BatchNorm2d(2 * channels), nn.LeakyReLU(0.2),
        nn.Conv2d(2 * channels, 1, 2, 1, 0, bias=False), nn.Flatten(0),
    )  # fmt: skip


def detector(nn, classes=3, boxes=2):
    """A single-shot detector (Liu et al., ECCV 2016): classes and offsets of boxes from two maps of features."""

    class Detector(nn.Module):
        def __init__(self):
            super().__init__()
            self.base = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
            self.extra = nn.Sequential(nn.Conv2d(4, 5, 3, 2, padding=1), nn.ReLU())
            self.class_heads = nn.Sequential(*(nn.Conv2d(n, boxes * classes, 3, padding=1) for n in (4, 5)))
            self.offset_heads = nn.Sequential(*(nn.Conv2d(n, boxes * 4, 3, padding=1) for n in (4, 5)))

        def forward(self, x, *, joined):
            maps = [self.base(x)]
            maps.append(self.extra(maps[0]))
            scores, offsets = (
                joined([rows(head(features), last) for head, features in zip(heads, maps, strict=True)])
                for heads, last in ((self.class_heads, classes), (self.offset_heads, 4))
            )
            return scores, offsets

    def rows(x, last):
        moved = x.transpose(0, 2, 3, 1) if hasattr(x, "numbers") else x.permute(0, 2, 3, 1)
        return moved.reshape(x.shape[0], -1, last)

    return Detector()
