"""The structures of published training scripts run unchanged in a block, at toy size.

Each script is a function of a block, which it opens around its loop. It returns the tensors that it trains.
"""

import contextlib
import copy
import math

import pytest

import simfloat as sf

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional


def images(batch=2, channels=3, size=8):
    return torch.randn(batch, channels, size, size), torch.arange(batch) % 4


def tokens(batch=2, length=6):
    return torch.randint(0, 11, (batch, length)), torch.randint(0, 11, (batch, length))


def perceptron_with_a_scaler(block):
    """PyTorch's recipe of mixed precision: autocast, GradScaler, and clipping between them."""
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    opt, scaler = torch.optim.SGD(net.parameters(), lr=0.1), torch.amp.GradScaler("cpu", init_scale=1024.0)
    x, y = torch.randn(4, 8), torch.randn(4, 4)
    with block(net):
        for _ in range(2):
            with torch.autocast("cpu", torch.bfloat16):
                loss = F.mse_loss(net(x), y)
            scaler.scale(loss).backward()
            scaler.unscale_(opt)
            torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            scaler.step(opt)
            scaler.update()
            opt.zero_grad()
    return list(net.parameters())


class BasicBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += x
        return self.relu(out)


def residual_network(block):
    """Training of ImageNet: a momentum, a weight decay and a schedule by epochs."""
    model = nn.Sequential(nn.Conv2d(3, 4, 1), BasicBlock(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.1)
    criterion, (x, y) = nn.CrossEntropyLoss(label_smoothing=0.1), images(4)
    model.train()
    with block(model):
        for _ in range(2):
            loss = criterion(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
    return [*model.parameters(), *model.buffers()]


class CausalSelfAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.c_attn, self.c_proj, self.heads = nn.Linear(width, 3 * width), nn.Linear(width, width), heads

    def forward(self, x):
        batch, length, width = x.size()
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.c_attn(x).split(width, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(batch, length, width))


class Block(nn.Module):
    def __init__(self, width=8, heads=2):
        super().__init__()
        self.ln_1, self.attn, self.ln_2 = nn.LayerNorm(width), CausalSelfAttention(width, heads), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, checkpoint=False):
        super().__init__()
        self.transformer = nn.ModuleDict({"wte": nn.Embedding(11, 8), "wpe": nn.Embedding(6, 8), "h": Block()})
        self.lm_head, self.checkpoint = nn.Linear(8, 11, bias=False), checkpoint
        self.transformer.wte.weight = self.lm_head.weight

    def forward(self, idx, targets):
        x = self.transformer.wte(idx) + self.transformer.wpe(torch.arange(idx.size(1)))
        x = (
            torch.utils.checkpoint.checkpoint(self.transformer.h, x, use_reentrant=False)
            if self.checkpoint
            else self.transformer.h(x)
        )
        return F.cross_entropy(self.lm_head(x).view(-1, 11), targets.view(-1), ignore_index=-1)


def language_model(block):
    """A GPT with tied weights, groups of parameters with and without decay, a warm-up, and clipping."""
    model = GPT()
    decay = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95))
    x, y = tokens()
    with block(model):
        for step in range(2):
            for group in optimizer.param_groups:
                group["lr"] = 1e-3 * (step + 1) / 3
            loss = model(x, y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
    return list(model.parameters())


def checkpointed_language_model(block):
    """The same GPT with checkpoints of activations, and gradients accumulated over small batches."""
    model = GPT(checkpoint=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with block(model):
        for _ in range(2):
            loss = model(*tokens(1)) / 2
            loss.backward()
        optimizer.step()
    return list(model.parameters())


class RNNModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.rnn, self.decoder = nn.Embedding(11, 6), nn.LSTM(6, 5), nn.Linear(5, 11)

    def forward(self, input, hidden):
        output, hidden = self.rnn(self.encoder(input), hidden)
        return F.log_softmax(self.decoder(output).view(-1, 11), dim=1), hidden


def word_language_model(block):
    """An LSTM whose hidden state is detached between pieces of text, updated by hand."""
    model, criterion = RNNModel(), nn.NLLLoss()
    hidden = (torch.zeros(1, 2, 5), torch.zeros(1, 2, 5))
    with block(model):
        for _ in range(2):
            data, targets = tokens(4, 2)
            model.zero_grad()
            hidden = tuple(h.detach() for h in hidden)
            output, hidden = model(data, hidden)
            criterion(output, targets.view(-1)).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            for p in model.parameters():
                p.data.add_(p.grad, alpha=-2.0)
    return list(model.parameters())


class VisionTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv_proj, self.class_token = nn.Conv2d(3, 8, 4, 4), nn.Parameter(torch.zeros(1, 1, 8))
        self.pos_embedding, self.head = nn.Parameter(torch.randn(1, 5, 8) * 0.02), nn.Linear(8, 4)
        self.norm, self.attention = nn.LayerNorm(8), nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x):
        x = self.conv_proj(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(x.shape[0], -1, -1), x], dim=1) + self.pos_embedding
        y = self.norm(x)
        return self.head((x + self.attention(y, y, y, need_weights=False)[0])[:, 0])


def vision_transformer(block):
    """Patches, a class token, and Mixup's two labels."""
    model = VisionTransformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.3)
    x, y = images()
    share = 0.7
    with block(model):
        mixed = share * x + (1 - share) * x.flip(0)
        output = model(mixed)
        loss = share * F.cross_entropy(output, y) + (1 - share) * F.cross_entropy(output, y.flip(0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return list(model.parameters())


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.time, self.down = nn.Linear(8, 4), nn.Conv2d(3, 4, 3, 2, 1)
        self.norm, self.up = nn.GroupNorm(2, 4), nn.ConvTranspose2d(4, 4, 2, 2)
        self.out = nn.Conv2d(7, 3, 3, padding=1)

    def forward(self, x, t):
        frequencies = torch.exp(-math.log(10000) * torch.arange(4) / 4)
        angles = t[:, None].float() * frequencies[None]
        emb = self.time(torch.cat([angles.sin(), angles.cos()], dim=-1))
        h = F.silu(self.norm(self.down(x) + emb[:, :, None, None]))
        return self.out(torch.cat([self.up(h), x], dim=1))


def denoising_diffusion(block):
    """A step of a diffusion model: noise at random times, which the U-Net predicts."""
    model = UNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    alphas, (x, _) = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 50), 0), images()
    with block(model):
        t = torch.randint(0, 50, (2,))
        noise = torch.randn_like(x)
        a = alphas[t][:, None, None, None]
        noisy = a.sqrt() * x + (1 - a).sqrt() * noise
        loss = F.mse_loss(model(noisy, t), noise)
        loss.backward()
        optimizer.step()
    return list(model.parameters())


def adversarial_networks(block):
    """DCGAN: two optimizers in turns, real and fake labels, and a detached sample."""
    generator = nn.Sequential(nn.ConvTranspose2d(4, 4, 4, bias=False), nn.BatchNorm2d(4), nn.ReLU(True),
                              nn.ConvTranspose2d(4, 3, 2, 2), nn.Tanh())  # fmt: skip
    critic = nn.Sequential(nn.Conv2d(3, 4, 4, 2, 1), nn.LeakyReLU(0.2, inplace=True), nn.Conv2d(4, 1, 4), nn.Sigmoid())
    both, criterion = nn.ModuleDict({"G": generator, "D": critic}), nn.BCELoss()
    optimizers = [torch.optim.Adam(net.parameters(), lr=2e-4, betas=(0.5, 0.999)) for net in (critic, generator)]
    real, _ = images()
    with block(both):
        critic.zero_grad()
        criterion(critic(real).view(-1), torch.full((2,), 1.0)).backward()
        fake = generator(torch.randn(2, 4, 1, 1))
        criterion(critic(fake.detach()).view(-1), torch.full((2,), 0.0)).backward()
        optimizers[0].step()
        generator.zero_grad()
        criterion(critic(fake).view(-1), torch.full((2,), 1.0)).backward()
        optimizers[1].step()
    return list(both.parameters())


def q_learning(block):
    """DQN: a target network, a gathered action, Huber's loss, clipped gradients, and a soft update."""
    policy_net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    target_net = copy.deepcopy(policy_net)
    optimizer = torch.optim.AdamW(policy_net.parameters(), lr=1e-2, amsgrad=True)
    state, following, reward, action = torch.randn(4, 4), torch.randn(4, 4), torch.rand(4), torch.tensor([0, 1, 1, 0])
    with block(nn.ModuleDict({"policy": policy_net, "target": target_net})):
        values = policy_net(state).gather(1, action[:, None])
        with torch.no_grad():
            expected = target_net(following).max(1).values * 0.99 + reward
        F.smooth_l1_loss(values, expected[:, None]).backward()
        torch.nn.utils.clip_grad_value_(policy_net.parameters(), 100)
        optimizer.step()
        with torch.no_grad():
            for target, p in zip(target_net.parameters(), policy_net.parameters(), strict=True):
                target.mul_(0.995).add_(0.005 * p)
    return [*policy_net.parameters(), *target_net.parameters()]


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc21, self.fc22 = nn.Linear(12, 8), nn.Linear(8, 3), nn.Linear(8, 3)
        self.fc3, self.fc4 = nn.Linear(3, 8), nn.Linear(8, 12)

    def forward(self, x):
        h = F.relu(self.fc1(x))
        mu, logvar = self.fc21(h), self.fc22(h)
        std = torch.exp(0.5 * logvar)
        z = mu + torch.randn_like(std) * std
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z)))), mu, logvar


def autoencoder(block):
    """A variational autoencoder: a sample, a reconstruction, and a divergence."""
    model = VAE()
    optimizer, x = torch.optim.Adam(model.parameters(), lr=1e-3), torch.rand(4, 12)
    with block(model):
        output, mu, logvar = model(x)
        divergence = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        loss = F.binary_cross_entropy(output, x, reduction="sum") + divergence
        loss.backward()
        optimizer.step()
    return list(model.parameters())


class LoRALinear(nn.Module):
    def __init__(self, base, rank=2, alpha=4.0):
        super().__init__()
        self.base, self.scaling = base.requires_grad_(False), alpha / rank
        self.lora_A = nn.Parameter(torch.randn(rank, base.in_features) * 0.1)
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x):
        return self.base(x) + (x @ self.lora_A.T @ self.lora_B.T) * self.scaling


def low_rank_adapters(block):
    """Fine-tuning of adapters beside frozen layers."""
    model = nn.Sequential(LoRALinear(nn.Linear(8, 8)), nn.Tanh(), LoRALinear(nn.Linear(8, 4)))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    x, y = torch.randn(4, 8), torch.randn(4, 4)
    with block(model):
        for _ in range(2):
            F.mse_loss(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
    return list(model.parameters())


def averages_of_weights(block):
    """An exponential average of the weights, with swa_utils."""
    model = nn.Sequential(nn.Linear(8, 8), nn.SiLU(), nn.Linear(8, 1))
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    optimizer, x = torch.optim.NAdam(model.parameters(), lr=1e-2), torch.randn(4, 8)
    with block(nn.ModuleList([model, average])):
        for _ in range(2):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            average.update_parameters(model)
    return [*model.parameters(), *average.parameters()]


SCRIPTS = (
    perceptron_with_a_scaler, residual_network, language_model, checkpointed_language_model, word_language_model,
    vision_transformer, denoising_diffusion, adversarial_networks, q_learning, autoencoder, low_rank_adapters,
    averages_of_weights,
)  # fmt: skip


#: A policy whose overrides make every role FP32: it has the bits of "fp32" if each operation finds its role and path.
WIDENED = sf.policies["bf16-standard"].override("*", compute=sf.FP32, activations=sf.FP32, weights=sf.FP32)


def trained(script, policy=None, observer=None):
    """The tensors that a script trains, in a block with a policy, or in PyTorch's own arithmetic."""
    torch.manual_seed(0)

    def block(model):
        return contextlib.nullcontext() if policy is None else sf.torch.simulate(model, policy, 0, observer)

    return [x.detach() for x in script(block)]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_a_script_runs_unchanged_and_has_the_bits_of_a_policy_that_overrides_all_roles(script):
    wide, widened = trained(script, "fp32"), trained(script, WIDENED, sf.Recorder())
    assert all(map(torch.equal, wide, widened))
    torch.testing.assert_close(wide, trained(script), rtol=1e-3, atol=1e-3)  # sums in another order
