"""The models of the comparisons as PyTorch modules. Names of parameters are those of torchvision's
ResNets, of the usual wide ResNet module, and of timm's vision transformers: brim's checkpoints have
the same. torchvision's own ResNet is taken where it is installed."""
import torch
import torch.nn as nn
import torch.nn.functional as F

try:
    import torchvision
except Exception:  # not installed, or for another torch
    torchvision = None


def conv(i, o, kernel, stride=1):
    return nn.Conv2d(i, o, kernel, stride, kernel // 2, bias=False)


class Basic(nn.Module):
    expansion = 1

    def __init__(self, i, width, stride):
        super().__init__()
        self.conv1, self.bn1 = conv(i, width, 3, stride), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = conv(width, width, 3), nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or i != width:
            self.downsample = nn.Sequential(conv(i, width, 1, stride), nn.BatchNorm2d(width))

    def forward(self, x):
        around = x if self.downsample is None else self.downsample(x)
        y = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(y)) + around)


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, i, width, stride):
        super().__init__()
        o = width * 4
        self.conv1, self.bn1 = conv(i, width, 1), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = conv(width, width, 3, stride), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = conv(width, o, 1), nn.BatchNorm2d(o)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or i != o:
            self.downsample = nn.Sequential(conv(i, o, 1, stride), nn.BatchNorm2d(o))

    def forward(self, x):
        around = x if self.downsample is None else self.downsample(x)
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        return self.relu(self.bn3(self.conv3(y)) + around)


BLOCKS = {"resnet18": (Basic, (2, 2, 2, 2)), "resnet34": (Basic, (3, 4, 6, 3)), "resnet50": (Bottleneck, (3, 4, 6, 3))}


class ResNet(nn.Module):
    def __init__(self, name, classes, width=64):
        super().__init__()
        block, counts = BLOCKS[name]
        self.conv1, self.bn1 = nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width)
        self.relu, self.maxpool = nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        i = width
        for stage, count in enumerate(counts):
            w, blocks = width << stage, []
            for k in range(count):
                blocks.append(block(i, w, 2 if stage and k == 0 else 1))
                i = w * block.expansion
            setattr(self, "layer%d" % (stage + 1), nn.Sequential(*blocks))
        self.fc = nn.Linear(i, classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


def resnet(name, stem, classes, width=64):
    if torchvision is not None and width == 64:
        m = getattr(torchvision.models, name)(num_classes=classes)
    else:
        m = ResNet(name, classes, width)
    if stem == "cifar":
        m.conv1, m.maxpool = conv(3, width, 3), nn.Identity()
    return m


class WideBlock(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.bn1, self.conv1 = nn.BatchNorm2d(i), conv(i, o, 3, stride)
        self.bn2, self.conv2 = nn.BatchNorm2d(o), conv(o, o, 3)
        self.relu = nn.ReLU(inplace=True)
        self.convShortcut = conv(i, o, 1, stride) if i != o or stride != 1 else None

    def forward(self, x):
        y = self.relu(self.bn1(x))
        around = x if self.convShortcut is None else self.convShortcut(y)
        return around + self.conv2(self.relu(self.bn2(self.conv1(y))))


class WideGroup(nn.Module):
    def __init__(self, count, i, o, stride):
        super().__init__()
        self.layer = nn.Sequential(*[WideBlock(i if k == 0 else o, o, stride if k == 0 else 1) for k in range(count)])

    def forward(self, x):
        return self.layer(x)


class WideResNet(nn.Module):
    def __init__(self, depth, width, classes):
        super().__init__()
        n, w = (depth - 4) // 6, [16, 16 * width, 32 * width, 64 * width]
        self.conv1 = conv(3, 16, 3)
        self.block1, self.block2, self.block3 = (WideGroup(n, w[g], w[g + 1], 2 if g else 1) for g in range(3))
        self.bn1, self.relu, self.fc = nn.BatchNorm2d(w[3]), nn.ReLU(inplace=True), nn.Linear(w[3], classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):
        x = self.block3(self.block2(self.block1(self.conv1(x))))
        return self.fc(self.relu(self.bn1(x)).mean((2, 3)))


def attention(q, k, v):
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v)
    return ((q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5).softmax(-1) @ v  # before PyTorch 2


class Attention(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads, self.qkv, self.proj = heads, nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)

    def forward(self, x):
        n, l, c = x.shape
        q, k, v = self.qkv(x).view(n, l, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        return self.proj(attention(q, k, v).transpose(1, 2).reshape(n, l, c))


class FeedForward(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x)))


class Encoder(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(hidden), Attention(hidden, heads)
        self.norm2, self.mlp = nn.LayerNorm(hidden), FeedForward(hidden)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    """A transformer over patches of 30 of a signal (N, length, channels)."""

    def __init__(self, depth, hidden, heads, outputs, tokens=172, inputs=60):
        super().__init__()
        self.tokens = tokens
        self.embed, self.pos_embed = nn.Linear(inputs, hidden), nn.Parameter(torch.zeros(1, tokens, hidden))
        self.blocks = nn.Sequential(*[Encoder(hidden, heads) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(hidden), nn.Linear(hidden, outputs)

    def forward(self, x):
        x = self.embed(x.reshape(x.shape[0], self.tokens, -1)) + self.pos_embed
        return self.head(self.norm(self.blocks(x)).mean(1))


class SimCLR(nn.Module):
    def __init__(self, stem, hidden, dim, width=64, batch_norm=False):
        super().__init__()
        self.backbone = resnet("resnet18", stem, 10, width)
        self.backbone.fc = nn.Identity()
        norm = [nn.BatchNorm1d(hidden)] if batch_norm else []
        self.projector = nn.Sequential(nn.Linear(8 * width, hidden), *norm, nn.ReLU(inplace=True), nn.Linear(hidden, dim))

    def forward(self, x):
        return self.projector(self.backbone(x))


def ntxent(z, temperature=0.5):
    """Rows i and i + N / 2 are two views of a sample."""
    z = F.normalize(z, dim=1)
    n = z.shape[0] // 2
    similarity = z @ z.T / temperature
    similarity = similarity.masked_fill(torch.eye(2 * n, dtype=torch.bool, device=z.device), float("-inf"))
    other = torch.arange(2 * n, device=z.device).roll(n)
    return F.cross_entropy(similarity, other)


MAKERS = {"resnet": resnet, "wideresnet": WideResNet, "transformer": Transformer, "simclr": SimCLR}


def make(kind, arguments):
    return MAKERS[kind](**arguments)
