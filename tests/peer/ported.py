#!/usr/bin/env python3
"""ported.py -- the programs of tests/ported in PyTorch; writes the numbers that tests/ported_spec.lua expects of them.

    python3 tests/peer/ported.py [NAME ...]

writes tests/ported/expected.json, or the numbers of these programs in it. Made with PyTorch 2.15 on a CPU. A function
has the name of the program, and says what that says, in PyTorch.
"""
import json
import math
import os
import sys

import torch
from torch import nn
from torch.nn import functional as F

PRIME = 10007
PROGRAMS = {}


def program(function):
    PROGRAMS[function.__name__] = function
    return function


def values(sizes, seed, scale=1.0):
    i = torch.arange(math.prod(sizes)) + seed * 131
    return (((i * i * 23 % PRIME).double() / PRIME - 0.5) * scale).view(sizes)


def integers(sizes, seed, below):
    return ((values(sizes, seed) + 0.5) * below).long()


def fill(net, dtype=torch.float64):
    net.to(dtype)
    with torch.no_grad():
        for k, (name, p) in enumerate(net.named_parameters()):
            rows = p.ndim > 1 and p.numel() / p.size(0)
            value = values(p.shape, k + 1, 3 / math.sqrt(rows) if rows else 0.2)
            if not rows and name.endswith("weight"):
                value = value + 1
            p.copy_(value)
    return net


def train(optimizer, loss_of, steps):
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@program
def bigram():
    words = "emma olivia ava isabella sophia charlotte mia amelia harper evelyn".split()
    codes = [[0] + [ord(c) - 96 for c in word] + [0] for word in words]
    xs = torch.tensor([a for c in codes for a in c[:-1]])
    ys = torch.tensor([b for c in codes for b in c[1:]])
    counts = torch.zeros(27 * 27)
    counts.index_add_(0, xs * 27 + ys, torch.ones(len(xs)))
    counts = counts.view(27, 27)
    P = counts + 1
    P = P / P.sum(1, keepdim=True)
    counted = -P[xs, ys].log().mean()
    W = values((27, 27), 1, 2).requires_grad_()
    xenc = F.one_hot(xs, 27).double()
    losses = []
    for _ in range(5):
        exps = (xenc @ W).exp()
        probs = exps / exps.sum(1, keepdim=True)
        loss = -probs[torch.arange(len(ys)), ys].log().mean() + 0.01 * (W ** 2).mean()
        W.grad = None
        loss.backward()
        W.data -= 50 * W.grad
        losses.append(loss.item())
    name, at = [], 0
    while True:
        after = counts[at].argmax().item()
        counts[at, after] = 0
        at = after
        name.append(at)
        if at == 0:
            break
    return {"counted": counted, "losses": losses, "name": name}


@program
def regression():
    x = values((40, 3), 1, 2)
    y = x @ torch.tensor([[1.5], [-2.0], [0.5]]) + 0.3 + values((40, 1), 2, 0.1)
    design = torch.cat([x, torch.ones(40, 1)], 1)
    closed = torch.linalg.lstsq(design, y).solution
    normal = torch.linalg.solve(design.T @ design, design.T @ y)
    model = fill(nn.Linear(3, 1))
    losses = train(torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.5), lambda: F.mse_loss(model(x), y), 20)
    labels = (y > 0.2).double()
    classifier = fill(nn.Linear(3, 1))
    lbfgs = torch.optim.LBFGS(classifier.parameters(), lr=1, max_iter=6, line_search_fn="strong_wolfe")

    def closure():
        lbfgs.zero_grad()
        penalty = 0.01 * classifier.weight.square().sum()
        loss = F.binary_cross_entropy_with_logits(classifier(x), labels) + penalty
        loss.backward()
        return loss

    logistic = [lbfgs.step(closure).item() for _ in range(3)]
    accuracy = ((classifier(x) > 0).double() == labels).double().mean()
    return {"closed": closed.flatten(), "normal": normal.flatten(), "losses": losses, "learned": model.weight,
            "logistic": logistic, "boundary": classifier.weight, "accuracy": accuracy}


@program
def makemore_mlp():
    words = "emma olivia ava isabella sophia charlotte mia amelia harper evelyn".split()
    xs, ys = [], []
    for word in words:
        context = [0, 0, 0]
        for code in [ord(c) - 96 for c in word] + [0]:
            xs.append(context)
            ys.append(code)
            context = context[1:] + [code]
    x, y = torch.tensor(xs), torch.tensor(ys)
    model = fill(nn.Sequential(nn.Embedding(27, 6), nn.Flatten(), nn.Linear(18, 20, bias=False), nn.BatchNorm1d(20),
                               nn.Tanh(), nn.Linear(20, 27)))
    batches = iter([i % 2 * 32 for i in range(8)])

    def loss_of():
        at = next(batches)
        return F.cross_entropy(model(x[at:at + 32]), y[at:at + 32])

    losses = train(torch.optim.SGD(model.parameters(), lr=0.5), loss_of, 8)
    model.eval()
    return {"losses": losses, "evaluated": F.cross_entropy(model(x), y), "mean": model[3].running_mean,
            "var": model[3].running_var}


@program
def char_lstm():
    text = "the quick brown fox jumps over the lazy dog while the cat sleeps in the warm sun and dreams of mice. "
    ids = torch.tensor([ord(c) - 32 for c in text[:97]])
    embed, lstm, head = nn.Embedding(96, 8), nn.LSTM(8, 16, 2, batch_first=True), nn.Linear(16, 96)
    parts = fill(nn.ModuleList([embed, lstm, head]))
    optimizer = torch.optim.Adam(parts.parameters(), lr=0.01)
    x, y = ids[:96].view(4, 24), ids[1:97].view(4, 24)
    losses, norms, state = [], [], None
    for i in range(6):
        at = i % 3 * 8
        if at == 0:
            state = None
        out, last = lstm(embed(x[:, at:at + 8]), state)
        loss = F.cross_entropy(head(out).flatten(0, 1), y[:, at:at + 8].flatten())
        optimizer.zero_grad()
        loss.backward()
        norms.append(nn.utils.clip_grad_norm_(parts.parameters(), 0.5).item())
        optimizer.step()
        state = [s.detach() for s in last]
        losses.append(loss.item())
    written, at, state = [], torch.tensor([[116 - 32]]), None
    for _ in range(5):
        out, state = lstm(embed(at), state)
        at = head(out)[:, -1].argmax(-1, keepdim=True)
        written.append(at.item())
    return {"losses": losses, "norms": norms, "written": written}


class GPTAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.c_attn, self.c_proj, self.heads = nn.Linear(width, 3 * width), nn.Linear(width, width), heads

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, self.heads, C // self.heads).transpose(1, 2) for t in self.c_attn(x).split(C, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(B, T, C))


class GPTBlock(nn.Module):
    def __init__(self, width, heads, approximate="none"):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(width), GPTAttention(width, heads)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, vocab, block_size, layers, heads, width, approximate="none"):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(block_size, width)
        self.h = nn.ModuleList([GPTBlock(width, heads, approximate) for _ in range(layers)])
        self.ln_f = nn.LayerNorm(width)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.size(1)))
        for block in self.h:
            x = block(x)
        return self.ln_f(x) @ self.wte.weight.T

    def write(self, ids, count):
        with torch.no_grad():
            for _ in range(count):
                ids = torch.cat([ids, self(ids)[:, -1].argmax(-1, keepdim=True)], 1)
        return ids


@program
def nanogpt():
    model = fill(GPT(30, 12, 2, 4, 16))
    decay = [p for p in model.parameters() if p.ndim >= 2]
    rest = [p for p in model.parameters() if p.ndim < 2]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0}],
                                  lr=1e-2, betas=(0.9, 0.95))
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda it: (it + 1) / 3 if it < 2 else 0.1 + 0.45 * (1 + math.cos(math.pi * (it - 2) / 6)))
    tokens = integers((8, 13), 9, 30)
    losses, norms = [], []
    for i in range(6):
        batch = tokens[i % 2 * 4:][:4]
        loss = F.cross_entropy(model(batch[:, :12]).reshape(-1, 30), batch[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    return {"losses": losses, "norms": norms, "written": model.write(tokens[:1, :4], 6),
            "lr": scheduler.get_last_lr()}


@program
def vae():
    fc1, mu_of, logvar_of, fc3, fc4 = parts = fill(nn.ModuleList([
        nn.Linear(36, 20), nn.Linear(20, 4), nn.Linear(20, 4), nn.Linear(4, 20), nn.Linear(20, 36)]))
    optimizer = torch.optim.Adam(parts.parameters(), lr=1e-2)
    x = values((16, 36), 20) + 0.5
    reconstruction, divergence = [], []
    for i in range(6):
        h = fc1(x).relu()
        mu, logvar = mu_of(h), logvar_of(h)
        z = mu + values((16, 4), 21 + i, 3) * (0.5 * logvar).exp()
        bce = F.binary_cross_entropy(fc4(fc3(z).relu()).sigmoid(), x, reduction="sum")
        kld = -0.5 * (1 + logvar - mu.square() - logvar.exp()).sum()
        optimizer.zero_grad()
        (bce + kld).backward()
        optimizer.step()
        reconstruction.append(bce.item())
        divergence.append(kld.item())
    sample = fc4(fc3(values((2, 4), 40, 3)).relu()).sigmoid().mean(1)
    return {"reconstruction": reconstruction, "divergence": divergence, "sample": sample}


@program
def autoencoder():
    model = fill(nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(4, 8, 3, stride=2, padding=1), nn.ReLU(),
        nn.ConvTranspose2d(8, 4, 3, stride=2, padding=1, output_padding=1), nn.ReLU(),
        nn.ConvTranspose2d(4, 1, 3, stride=2, padding=1, output_padding=1), nn.Sigmoid()), torch.float32)
    x = values((8, 1, 12, 12), 3).float() + 0.5
    seeds = iter(range(11, 17))
    losses = train(torch.optim.RMSprop(model.parameters(), lr=1e-3, momentum=0.5),
                   lambda: F.mse_loss(model(x.masked_fill(values(x.shape, next(seeds)) < -0.3, 0)), x), 6)
    return {"losses": losses, "code": model[:4](x).mean((0, 2, 3))}


@program
def mnist_cnn():
    model = fill(nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(128, 16), nn.ReLU(), nn.Linear(16, 10), nn.LogSoftmax(1)), torch.float32)
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.7)
    x, y = values((24, 1, 12, 12), 5, 2).float(), integers((24,), 6, 10)
    losses = []
    for _ in range(4):
        for at in (0, 12):
            losses += train(optimizer, lambda: F.nll_loss(model(x[at:at + 12]), y[at:at + 12]), 1)
        scheduler.step()
    scores = model(x)
    return {"losses": losses, "test": F.nll_loss(scores, y, reduction="sum"),
            "right": (scores.argmax(1) == y).sum()}


class BasicBlock(nn.Module):
    def __init__(self, inputs, planes, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, planes, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != planes:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, planes, 1, stride=stride, bias=False),
                                          nn.BatchNorm2d(planes))

    def forward(self, x):
        return (self.bn2(self.conv2(self.bn1(self.conv1(x)).relu())) + self.shortcut(x)).relu()


@program
def resnet():
    layers = nn.Sequential(BasicBlock(8, 8, 1), BasicBlock(8, 16, 2), BasicBlock(16, 16, 1))
    model = fill(nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), layers,
                               nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=8)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    x, y = values((12, 3, 8, 8), 1, 3), integers((12,), 2, 5)
    losses = []
    for _ in range(6):
        losses += train(optimizer, lambda: criterion(model(x), y), 1)
        scheduler.step()
    model.eval()
    scores = model(x)
    return {"losses": losses, "scores": scores[0], "best": scores.argmax(1), "mean": layers[1].bn2.running_mean}


@program
def dcgan():
    G = fill(nn.Sequential(
        nn.ConvTranspose2d(5, 12, 4, 1, 0, bias=False), nn.BatchNorm2d(12), nn.ReLU(),
        nn.ConvTranspose2d(12, 6, 4, 2, 1, bias=False), nn.BatchNorm2d(6), nn.ReLU(),
        nn.ConvTranspose2d(6, 1, 4, 2, 1, bias=False), nn.Tanh()))
    D = fill(nn.Sequential(
        nn.Conv2d(1, 6, 4, 2, 1, bias=False), nn.LeakyReLU(0.2), nn.Conv2d(6, 12, 4, 2, 1, bias=False),
        nn.BatchNorm2d(12), nn.LeakyReLU(0.2), nn.Conv2d(12, 1, 4, bias=False), nn.Sigmoid(), nn.Flatten()))
    optimizer_g = torch.optim.Adam(G.parameters(), lr=2e-3, betas=(0.5, 0.999))
    optimizer_d = torch.optim.Adam(D.parameters(), lr=2e-3, betas=(0.5, 0.999))
    criterion = nn.BCELoss()
    ones, zeros = torch.ones(6, 1), torch.zeros(6, 1)
    losses_d, losses_g = [], []
    for i in range(1, 5):
        real, noise = values((6, 1, 16, 16), i, 2), values((6, 5, 1, 1), 10 + i, 3)
        optimizer_d.zero_grad()
        loss_d = criterion(D(real), ones)
        loss_d.backward()
        fake = G(noise)
        loss_f = criterion(D(fake.detach()), zeros)
        loss_f.backward()
        optimizer_d.step()
        losses_g += train(optimizer_g, lambda: criterion(D(fake), ones), 1)
        losses_d.append((loss_d + loss_f).item())
    G.eval()
    return {"discriminator": losses_d, "generator": losses_g, "picture": G(values((1, 5, 1, 1), 20, 3))[0, 0, 7]}


def double_conv(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.down, self.bottom = double_conv(2, 4), double_conv(4, 8), double_conv(8, 8)
        self.up1, self.conv1 = nn.ConvTranspose2d(8, 8, 2, stride=2), double_conv(16, 4)
        self.up2 = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
        self.conv2, self.out, self.pool = double_conv(8, 4), nn.Conv2d(4, 1, 1), nn.MaxPool2d(2)

    def forward(self, x):
        a = self.first(x)
        b = self.down(self.pool(a))
        y = self.conv1(torch.cat([b, self.up1(self.bottom(self.pool(b)))], 1))
        return self.out(self.conv2(torch.cat([a, self.up2(y)], 1)))


@program
def unet():
    model = fill(UNet())
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, weight_decay=1e-8, momentum=0.9)
    x = values((2, 2, 12, 12), 1, 2)
    mask = (x.sum(1, keepdim=True) > 0.2).double()
    losses = []
    for _ in range(4):
        scores = model(x)
        p = scores.sigmoid()
        dice = (2 * (p * mask).sum((1, 2, 3)) + 1) / (p.sum((1, 2, 3)) + mask.sum((1, 2, 3)) + 1)
        loss = F.binary_cross_entropy_with_logits(scores, mask) + 1 - dice.mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    return {"losses": losses, "scores": model(x)[1, 0, 5]}


class Denoiser(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(8, width), nn.SiLU(), nn.Linear(width, width))
        self.enter = nn.Conv2d(1, width, 3, padding=1)
        self.norm = nn.GroupNorm(2, width)
        self.middle = nn.Conv2d(width, width, 3, padding=1)
        self.leave = nn.Conv2d(width, 1, 3, padding=1)

    def forward(self, x, t):
        angles = t.double()[:, None] * torch.exp(-math.log(1000) / 4 * torch.arange(4.0))
        time = self.time(torch.cat([angles.sin(), angles.cos()], 1))
        return self.leave(F.silu(self.middle(F.silu(self.norm(self.enter(x) + time[:, :, None, None])))))


@program
def ddpm():
    T = 20
    beta = torch.linspace(1e-3, 0.2, T)
    alpha = 1 - beta
    alpha_bar = alpha.cumprod(0)
    model = fill(Denoiser(8))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    ema = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.8))
    losses = []
    for i in range(1, 7):
        x, noise = values((6, 1, 6, 6), 1, 2), values((6, 1, 6, 6), 20 + i, 3.4)
        t = integers((6,), 30 + i, T)
        a = alpha_bar[t].view(-1, 1, 1, 1)
        losses += train(optimizer, lambda: F.mse_loss(model(a.sqrt() * x + (1 - a).sqrt() * noise, t), noise), 1)
        ema.update_parameters(model)
    x = values((2, 1, 6, 6), 50, 3.4)
    with torch.no_grad():
        for t in reversed(range(T)):
            noise = ema(x, torch.full((2,), t))
            x = (x - beta[t] / (1 - alpha_bar[t]).sqrt() * noise) / alpha[t].sqrt()
            if t > 0:
                x = x + beta[t].sqrt() * values((2, 1, 6, 6), 60 + t, 3.4)
    return {"losses": losses, "sample": x[0, 0, 2], "alpha_bar": alpha_bar}


@program
def reinforce():
    cells, gamma = 7, 0.95
    policy = fill(nn.Sequential(nn.Linear(cells, 16), nn.ReLU(), nn.Linear(16, 2), nn.Softmax(-1)))
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-2)
    states = torch.eye(cells)
    chance = iter((values((400,), 3) + 0.5).tolist())
    losses, lengths = [], []
    for _ in range(6):
        at, done, saved, rewards = 2, False, [], []
        while not done and len(rewards) < 30:
            choice = torch.distributions.Categorical(probs=policy(states[at]))
            action = 1 if next(chance) < choice.probs[1].item() else 0
            saved.append(choice.log_prob(torch.tensor(action)) + 0.01 * choice.entropy())
            at = max(at + (1 if action else -1), 0)
            done = at == cells - 1
            rewards.append(1 if done else -0.05)
        returns, R = [], 0
        for reward in reversed(rewards):
            R = reward + gamma * R
            returns.insert(0, R)
        returns = torch.tensor(returns)
        returns = (returns - returns.mean()) / (returns.std() + 1e-8)
        losses += train(optimizer, lambda: -(torch.stack(saved) * returns).sum(), 1)
        lengths.append(len(rewards))
    return {"losses": losses, "lengths": lengths, "policy": policy(states)[:, 1]}


@program
def dqn():
    def net():
        return nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3))

    policy, target = fill(net()), net().double()
    target.load_state_dict(policy.state_dict())
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-2, amsgrad=True)
    memory, state = [], [1.0, 0.0]
    draw = integers((80,), 4, 3).tolist()
    losses = []
    for t in range(1, 81):
        action = draw[t - 1]
        if t % 2 == 0:
            action = policy(torch.tensor(state)).argmax().item()
        speed = 0.9 * state[1] + 0.2 * (action - 1)
        after = [state[0] + speed, speed]
        over = abs(after[0]) > 2
        memory.append((state, action, -after[0] * after[0], after, 0.0 if over else 1.0))
        state = [1.0, 0.0] if over else after
        if t % 8 == 0 and t >= 16:
            rows = zip(*[memory[k * 7 % t] for k in range(1, 17)])
            states, actions, rewards, nexts, alive = (torch.tensor(row) for row in rows)
            chosen = policy(states).gather(1, actions[:, None]).squeeze(1)
            with torch.no_grad():
                best = target(nexts).max(1).values
            loss = F.smooth_l1_loss(chosen, rewards + 0.99 * alive * best)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_value_(policy.parameters(), 1)
            optimizer.step()
            with torch.no_grad():
                for a, b in zip(target.parameters(), policy.parameters()):
                    a.lerp_(b, 0.05)
            losses.append(loss.item())
    return {"losses": losses, "q": policy(torch.tensor([[0.5, 0], [-0.5, 0]])), "target": target[4].bias}


@program
def pca():
    def signed(columns):
        return columns * columns.gather(0, columns.abs().argmax(0, keepdim=True)).sign()

    x = values((50, 3), 1, 4) @ values((3, 5), 2) + values((50, 5), 3, 0.2)
    centered = x - x.mean(0)
    _, S, Vh = torch.linalg.svd(centered, full_matrices=False)
    components = signed(Vh.T[:, :3])
    variance = S.square() / 49
    eigenvalues, vectors = torch.linalg.eigh(centered.T @ centered / 49)
    v = torch.ones(5)
    for _ in range(60):
        v = centered.T @ (centered @ v)
        v = v / v.norm()
    scores = centered @ components
    again = scores @ components.T + x.mean(0)
    return {"components": components, "variance": variance, "ratio": (variance / variance.sum()).cumsum(0),
            "by_eigh": signed(vectors.flip(1)[:, :3]), "eigenvalues": eigenvalues.flip(0),
            "power": signed(v[:, None]).squeeze(1), "scores": scores[:4], "error": (again - x).square().mean().sqrt()}


@program
def gaussian_process():
    def kernel(a, b, length, scale):
        return scale.square() * torch.exp(-0.5 * (torch.cdist(a, b) / length).square())

    def factor():
        length, scale, noise = logs.exp()
        K = kernel(x, x, length, scale) + noise.square() * torch.eye(15)
        return torch.linalg.cholesky(K), length, scale

    def loss_of():
        L = factor()[0]
        alpha = torch.cholesky_solve(y[:, None], L).squeeze(1)
        return 0.5 * y.dot(alpha) + L.diagonal().log().sum() + 0.5 * 15 * math.log(2 * math.pi)

    x = torch.linspace(-3, 3, 15)[:, None] + values((15, 1), 1, 0.1)
    y = x.sin().squeeze(1) + values((15,), 2, 0.2)
    logs = nn.Parameter(torch.tensor([0.3, 0.0, -1.5]))
    losses = train(torch.optim.Adam([logs], lr=0.1), loss_of, 15)
    at = torch.linspace(-4, 4, 7)[:, None]
    L, length, scale = factor()
    across = kernel(x, at, length, scale)
    mean = (across.T @ torch.cholesky_solve(y[:, None], L)).squeeze(1)
    v = torch.linalg.solve_triangular(L, across, upper=False)
    return {"losses": losses, "logs": logs, "mean": mean, "variance": scale.square() - v.square().sum(0)}


@program
def kmeans():
    x = values((60, 2), 1) + integers((60, 2), 2, 2) * 3
    chosen = [0]
    for _ in range(3):
        chosen.append(torch.cdist(x, x[chosen]).min(1).values.argmax().item())
    centers = x[chosen].clone()
    inertia = []
    for _ in range(6):
        nearest, labels = torch.cdist(x, centers).min(1)
        counts = torch.zeros(4).index_add(0, labels, torch.ones(60))
        centers = torch.zeros(4, 2).index_add(0, labels, x) / counts.clamp(1)[:, None]
        inertia.append(nearest.square().sum().item())
    return {"chosen": chosen, "inertia": inertia, "centers": centers, "labels": labels}


@program
def gcn():
    pairs = []
    for i in range(20):
        first = i // 10 * 10
        pairs.append((i, i))
        for other in (first + (i + 1) % 10, first + (i + 3) % 10):
            pairs += [(i, other), (other, i)]
    pairs += [(2, 12), (12, 2), (7, 15), (15, 7)]
    adjacency = torch.zeros(20, 20).index_put(tuple(torch.tensor(pairs).T.flip(0)), torch.ones(len(pairs)),
                                              accumulate=True)
    degree = adjacency.sum(1)
    norm = adjacency / (degree[:, None] * degree).sqrt()
    x, labels, known = values((20, 6), 3, 2), torch.arange(20) // 10, [1, 6, 11, 16]
    gc1, gc2 = layers = fill(nn.ModuleList([nn.Linear(6, 8, bias=False), nn.Linear(8, 2, bias=False)]))

    def model():
        return (norm @ gc2((norm @ gc1(x)).relu())).log_softmax(1)

    losses = train(torch.optim.Adam(layers.parameters(), lr=0.05, weight_decay=5e-4),
                   lambda: F.nll_loss(model()[known], labels[known]), 20)
    scores = model()
    return {"losses": losses, "degree": degree, "scores": scores[:3], "right": (scores.argmax(1) == labels).sum()}


@program
def pinn():
    net = fill(nn.Sequential(nn.Linear(1, 12), nn.Tanh(), nn.Linear(12, 12), nn.Tanh(), nn.Linear(12, 1)))
    t = torch.linspace(0, 2, 21)[:, None].requires_grad_()

    def derivative(y, x):
        return torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)[0]

    def loss_of():
        u = net(t)
        velocity = derivative(u, t)
        residual = derivative(velocity, t) + u - (3 * t).sin()
        return residual.square().mean() + (u[0, 0] - 1).square() + velocity[0, 0].square()

    losses = train(torch.optim.Adam(net.parameters(), lr=1e-2), loss_of, 8)
    lbfgs = torch.optim.LBFGS(net.parameters(), lr=0.5, max_iter=5)

    def closure():
        lbfgs.zero_grad()
        loss = loss_of()
        loss.backward()
        return loss

    refined = [lbfgs.step(closure).item() for _ in range(2)]
    return {"losses": losses, "refined": refined, "u": net(t).squeeze(1)}


@program
def word2vec():
    words = "the king rules the land the queen rules the land the dog chases the cat the cat chases the mouse".split()
    vocabulary = {word: i for i, word in enumerate(dict.fromkeys(words))}
    ids = [vocabulary[word] for word in words]
    pairs = [(ids[i], ids[j]) for i in range(len(ids)) for j in range(max(0, i - 2), min(len(ids), i + 3)) if i != j]
    centers, contexts = torch.tensor(pairs).T
    count = len(vocabulary)
    center, context = model = fill(nn.ModuleList([nn.Embedding(count, 8), nn.Embedding(count, 8)]))
    seeds = iter(range(11, 19))

    def loss_of():
        v = center(centers)
        scores = context(integers((len(pairs), 4), next(seeds), count)).bmm(v[:, :, None]).squeeze(2)
        return -(F.logsigmoid((v * context(contexts)).sum(1)) + F.logsigmoid(-scores).sum(1)).mean()

    losses = train(torch.optim.Adagrad(model.parameters(), lr=0.3), loss_of, 8)
    king = F.cosine_similarity(center.weight[vocabulary["king"]][None], center.weight, dim=1)
    return {"losses": losses, "king": king, "nearest": king.topk(3).indices}


@program
def gpt2_weights():
    model = GPT(40, 16, 2, 2, 12, "tanh").float()
    seed = 0

    def read(sizes, scale, around=0.0):
        nonlocal seed
        seed += 1
        return (values(sizes, seed, scale) + around).float()

    def norm(module):
        module.weight.copy_(read(module.weight.shape, 0.2, 1))
        module.bias.copy_(read(module.bias.shape, 0.2))

    def conv1d(module):
        module.weight.copy_(read(module.weight.T.shape, 1).T)
        module.bias.copy_(read(module.bias.shape, 0.2))

    with torch.no_grad():
        model.wte.weight.copy_(read((40, 12), 1))
        model.wpe.weight.copy_(read((16, 12), 0.3))
        for block in model.h:
            norm(block.ln_1)
            conv1d(block.attn.c_attn)
            conv1d(block.attn.c_proj)
            norm(block.ln_2)
            conv1d(block.mlp[0])
            conv1d(block.mlp[2])
        norm(model.ln_f)
        ids = integers((2, 6), 50, 40)
        logits = model(ids)
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        return {"loss": loss, "logits": logits[0, -1], "written": model.write(ids, 8)}


class LlamaBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_norm = nn.RMSNorm(16, eps=1e-5)
        self.q_proj, self.k_proj = nn.Linear(16, 16, bias=False), nn.Linear(16, 8, bias=False)
        self.v_proj, self.o_proj = nn.Linear(16, 8, bias=False), nn.Linear(16, 16, bias=False)
        self.post_norm = nn.RMSNorm(16, eps=1e-5)
        self.gate_proj, self.up_proj = nn.Linear(16, 40, bias=False), nn.Linear(16, 40, bias=False)
        self.down_proj = nn.Linear(40, 16, bias=False)

    def forward(self, x):
        def rotate(y):
            first, second = y.chunk(2, -1)
            return y * angle.cos() + torch.cat([-second, first], -1) * angle.sin()

        angle = torch.outer(torch.arange(float(x.size(1))), 1 / 10000 ** (torch.arange(0, 4, 2.0) / 4)).repeat(1, 2)
        h = self.input_norm(x)
        q, k, v = (f(h).unflatten(-1, (-1, 4)).transpose(1, 2) for f in (self.q_proj, self.k_proj, self.v_proj))
        y = F.scaled_dot_product_attention(rotate(q), rotate(k), v, is_causal=True, enable_gqa=True)
        x = x + self.o_proj(y.transpose(1, 2).flatten(2))
        h = self.post_norm(x)
        return x + self.down_proj(F.silu(self.gate_proj(h)) * self.up_proj(h))


@program
def llama():
    model = fill(nn.Sequential(nn.Embedding(30, 16), LlamaBlock(), LlamaBlock(), nn.RMSNorm(16, eps=1e-5),
                               nn.Linear(16, 30, bias=False)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, betas=(0.9, 0.95), weight_decay=0.1)
    tokens = integers((4, 11), 40, 30)
    losses = []
    for _ in range(5):
        loss = F.cross_entropy(model(tokens[:, :10]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    ids = tokens[:1, :5]
    for _ in range(6):
        ids = torch.cat([ids, model(ids)[:, -1].argmax(-1, keepdim=True)], 1)
    return {"losses": losses, "written": ids[0, 5:], "scores": model(tokens)[1, 10]}


class Seq2SeqEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(12, 12, padding_idx=0)
        self.gru = nn.GRU(12, 12, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(24, 12)

    def forward(self, source):
        outputs, state = self.gru(self.embedding(source))
        return self.bridge(outputs), (torch.cat([state[0], state[1]], 1) @ self.bridge.weight.T).tanh()


class Seq2SeqDecoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(12, 12, padding_idx=0)
        self.Wa, self.Ua, self.Va = nn.Linear(12, 12), nn.Linear(12, 12), nn.Linear(12, 1)
        self.cell, self.out = nn.GRUCell(24, 12), nn.Linear(12, 12)

    def forward(self, word, state, memory, padding):
        scores = self.Va((self.Wa(state)[:, None] + self.Ua(memory)).tanh()).squeeze(2)
        attention = scores.masked_fill(padding, -math.inf).softmax(1)
        state = self.cell(torch.cat([self.embedding(word), (attention[:, None] @ memory).squeeze(1)], 1), state)
        return self.out(state), state, attention


@program
def seq2seq():
    encoder, decoder = fill(Seq2SeqEncoder()), fill(Seq2SeqDecoder())
    parameters = [*encoder.parameters(), *decoder.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-2)
    source = integers((8, 5), 3, 10) + 2
    target = source.flip(1).clone()
    source[:4, 4], target[:4, 0] = 0, 2
    losses = []
    for _ in range(6):
        memory, state = encoder(source)
        word, scores = torch.full((8,), 1), []
        for t in range(5):
            score, state, _ = decoder(word, state, memory, source == 0)
            scores.append(score)
            word = target[:, t]
        loss = F.cross_entropy(torch.stack(scores, 1).flatten(0, 1), target.flatten(), ignore_index=0)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        losses.append(loss.item())
    memory, state = encoder(source[:1])
    word, written = torch.tensor([1]), []
    for _ in range(5):
        scores, state, attention = decoder(word, state, memory, source[:1] == 0)
        word = scores.argmax(1)
        written.append(word.item())
    return {"losses": losses, "written": written, "attention": attention[0]}


@program
def real_nvp():
    layers = fill(nn.ModuleList([nn.ModuleList([
        nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(), nn.Linear(16, 2), nn.Tanh()),
        nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(), nn.Linear(16, 2))]) for _ in range(4)]))
    masks = [torch.tensor(m) for m in ([1.0, 0.0], [0.0, 1.0]) * 2]

    def log_prob(x):
        log_det = 0
        for (scale, shift), mask in reversed(list(zip(layers, masks))):
            kept = x * mask
            s, t = scale(kept) * (1 - mask), shift(kept) * (1 - mask)
            x, log_det = kept + (1 - mask) * (x - t) * (-s).exp(), log_det - s.sum(1)
        return (-0.5 * (x.square() + math.log(2 * math.pi))).sum(1) + log_det

    angle = (values((64,), 2) + 0.5) * math.pi
    data = torch.stack([angle.cos(), angle.sin()], 1) + values((64, 2), 3, 0.2)
    losses = train(torch.optim.Adamax(layers.parameters(), lr=5e-3), lambda: -log_prob(data).mean(), 10)
    sample = values((5, 2), 4, 3)
    for (scale, shift), mask in zip(layers, masks):
        kept = sample * mask
        s, t = scale(kept) * (1 - mask), shift(kept) * (1 - mask)
        sample = kept + (1 - mask) * (sample * s.exp() + t)
    return {"losses": losses, "sample": sample, "density": log_prob(sample)}


@program
def neural_ode():
    def solve(f):
        path, h = [torch.tensor([[2.0, 0.0]])], 0.025
        for _ in range(20):
            y = path[-1]
            k1 = f(y)
            k2 = f(y + h / 2 * k1)
            k3 = f(y + h / 2 * k2)
            k4 = f(y + h * k3)
            path.append(y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4))
        return torch.stack(path)

    A = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]])
    truth = solve(lambda y: (y ** 3) @ A)
    func = fill(nn.Sequential(nn.Linear(2, 20), nn.Tanh(), nn.Linear(20, 2)))

    def path_of():
        return solve(lambda y: func(y ** 3))

    losses = train(torch.optim.RMSprop(func.parameters(), lr=5e-3), lambda: F.l1_loss(path_of(), truth), 9)
    return {"losses": losses, "truth": truth[-1, 0], "learned": path_of()[-1, 0]}


class ViT(nn.Module):
    def __init__(self, size, patch, width, classes):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.zeros(1, (size // patch) ** 2 + 1, width))
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(width, 4, 2 * width, 0, "gelu", batch_first=True, norm_first=True), 2,
            nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(len(x), -1, -1), x], 1) + self.positions
        return self.head(self.encoder(x)[:, 0])


@program
def vit():
    model = fill(ViT(12, 4, 16, 6))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.05)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=6)
    x, y = values((6, 3, 12, 12), 60, 3), integers((6,), 61, 6)
    losses = []
    for _ in range(6):
        losses += train(optimizer, lambda: F.cross_entropy(model(x), y, label_smoothing=0.1), 1)
        scheduler.step()
    model.eval()
    return {"losses": losses, "scores": model(x)[0], "token": model.class_token[0, 0]}


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.source, self.target = nn.Embedding(14, 16), nn.Embedding(14, 16)
        self.transformer = nn.Transformer(16, 4, 2, 2, 32, 0, batch_first=True)
        self.generator = nn.Linear(16, 14)

    def forward(self, source, target):
        def embed(table, ids):
            frequency = torch.exp(-math.log(10000) / 16 * torch.arange(0, 16, 2))
            angle = torch.arange(float(ids.size(1)))[:, None] * frequency
            return table(ids) * 4 + torch.stack([angle.sin(), angle.cos()], -1).flatten(1)

        later = torch.ones(target.size(1), target.size(1), dtype=torch.bool).triu(1)
        return self.generator(self.transformer(
            embed(self.source, source), embed(self.target, target), tgt_mask=later, tgt_is_causal=True,
            src_key_padding_mask=source == 0, tgt_key_padding_mask=target == 0, memory_key_padding_mask=source == 0))


@program
def transformer():
    model = fill(Translator())
    optimizer = torch.optim.Adam(model.parameters(), lr=1, betas=(0.9, 0.98), eps=1e-9)
    noam = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda n: 0.05 * 16 ** -0.5 * min((n + 1) ** -0.5, (n + 1) * 4 ** -1.5))
    source = integers((6, 5), 70, 12) + 2
    target = torch.cat([torch.full((6, 1), 1), source.flip(1)], 1)
    source[:3, 3:5], target[:3, 4:6] = 0, 0
    criterion = nn.CrossEntropyLoss(ignore_index=0, label_smoothing=0.1)
    losses = []
    for _ in range(6):
        losses += train(optimizer, lambda: criterion(model(source, target[:, :-1]).flatten(0, 1),
                                                     target[:, 1:].flatten()), 1)
        noam.step()
    written = torch.full((2, 1), 1)
    for _ in range(5):
        written = torch.cat([written, model(source[2:4], written)[:, -1].argmax(-1, keepdim=True)], 1)
    return {"losses": losses, "written": written, "scores": model(source, target)[0, 1]}


@program
def wgan_gp():
    G = fill(nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Unflatten(1, (2, 4, 4)), nn.Upsample(scale_factor=2),
                           nn.Conv2d(2, 1, 3, padding=1), nn.Tanh()))
    D = fill(nn.Sequential(
        nn.Conv2d(1, 6, 3, stride=2, padding=1), nn.LeakyReLU(0.2), nn.Conv2d(6, 8, 3, stride=2, padding=1),
        nn.InstanceNorm2d(8, affine=True), nn.SiLU(), nn.Flatten(), nn.Linear(32, 1)))
    optimizer_g = torch.optim.Adam(G.parameters(), lr=1e-3, betas=(0.0, 0.9))
    optimizer_d = torch.optim.Adam(D.parameters(), lr=1e-3, betas=(0.0, 0.9))

    def judge():
        fake, weight = G(noise).detach(), values((5, 1, 1, 1), 40 + i) + 0.5
        mixed = (weight * real + (1 - weight) * fake).requires_grad_()
        scores = D(mixed)
        gradient, = torch.autograd.grad(scores, mixed, torch.ones_like(scores), create_graph=True)
        return D(fake).mean() - D(real).mean() + 10 * (gradient.flatten(1).norm(2, 1) - 1).square().mean()

    critic, generator = [], []
    for i in range(1, 7):
        real, noise = values((5, 1, 8, 8), i, 2), values((5, 4), 20 + i, 3)
        critic += train(optimizer_d, judge, 1)
        if i % 2 == 0:
            generator += train(optimizer_g, lambda: -D(G(noise)).mean(), 1)
    return {"critic": critic, "generator": generator, "picture": G(values((1, 4), 50, 3))[0, 0, 3]}


@program
def maml():
    def forward(x, w):
        x = F.linear(x, w[0], w[1]).tanh()
        x = F.linear(x, w[2], w[3]).tanh()
        return F.linear(x, w[4], w[5])

    def adapt(w, x, y, steps, create_graph):
        for _ in range(steps):
            gradients = torch.autograd.grad(F.mse_loss(forward(x, w), y), w, create_graph=create_graph)
            w = [p - 0.05 * g for p, g in zip(w, gradients)]
        return w

    def wave(x, task):
        return (1 + 0.5 * task) * (x + task).sin()

    def loss_of():
        x, at, loss = values((10, 1), i, 6), values((10, 1), 20 + i, 6), 0
        for task in (i % 3, -i % 4):
            loss = loss + F.mse_loss(forward(at, adapt(parameters, x, wave(x, task), 1, True)), wave(at, task))
        return loss

    parameters = list(fill(nn.Sequential(nn.Linear(1, 12), nn.Tanh(), nn.Linear(12, 12), nn.Tanh(),
                                         nn.Linear(12, 1))).parameters())
    optimizer = torch.optim.Adam(parameters, lr=1e-2)
    losses = []
    for i in range(1, 7):
        losses += train(optimizer, loss_of, 1)
    x = values((10, 1), 40, 6)
    return {"losses": losses, "fitted": forward(x, adapt(parameters, x, wave(x, 2), 3, False)).squeeze(1)}


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
        self.critic = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
        self.log_std = nn.Parameter(torch.zeros(2))

    def forward(self, state):
        return torch.distributions.Normal(self.actor(state), self.log_std.exp()), self.critic(state).squeeze(-1)


@program
def ppo():
    @torch.no_grad()
    def collect(seed):
        state, rows, rewards, value_list = values((8, 2), seed, 4), [], [], []
        for t in range(1, 17):
            policy, value = model(state)
            action = policy.loc + policy.scale * values((8, 2), seed + t, 3)
            rows.append((state, action, policy.log_prob(action).sum(-1)))
            value_list.append(value)
            state = state + 0.2 * action.clamp(-1, 1)
            rewards.append(-state.square().sum(-1))
        after, advantage, advantages = model(state)[1], 0, []
        for reward, value in zip(reversed(rewards), reversed(value_list)):
            advantage = reward + 0.99 * after - value + 0.99 * 0.95 * advantage
            advantages.insert(0, advantage)
            after = value
        advantages = torch.stack(advantages)
        returns = (advantages + torch.stack(value_list)).flatten()
        states, actions, logs = (torch.cat(column) for column in zip(*rows))
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        return states, actions, logs, advantages.flatten(), returns, torch.stack(rewards).mean().item()

    model = fill(ActorCritic())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, eps=1e-5)
    losses, rewards = [], []
    for turn in range(1, 4):
        states, actions, logs, advantages, returns, reward = collect(100 * turn)
        rewards.append(reward)
        for _ in range(3):
            policy, value = model(states)
            ratio = (policy.log_prob(actions).sum(-1) - logs).exp()
            surrogate = torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).mean()
            loss = -surrogate + 0.5 * F.mse_loss(value, returns) - 0.01 * policy.entropy().sum(-1).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            losses.append(loss.item())
    return {"losses": losses, "rewards": rewards, "log_std": model.log_std}


class Speech(nn.Module):
    def __init__(self, bands, letters):
        super().__init__()
        self.conv, self.norm = nn.Conv1d(bands, 8, 3, stride=2, padding=1), nn.LayerNorm(8)
        self.gru, self.head = nn.GRU(8, 10, bidirectional=True), nn.Linear(20, letters)

    def forward(self, x, lengths):
        h = self.norm(self.conv(x).permute(2, 0, 1)).relu()
        packed = nn.utils.rnn.pack_padded_sequence(h, lengths, enforce_sorted=False)
        return self.head(nn.utils.rnn.pad_packed_sequence(self.gru(packed)[0])[0]).log_softmax(-1)


@program
def ctc_speech():
    def greedy(row, length):
        best = row.argmax(-1).tolist()[:length]
        return [b for a, b in zip([0] + best, best) if b not in (a, 0)]

    model, criterion = fill(Speech(6, 5)), nn.CTCLoss()
    x, targets = values((4, 6, 20), 1, 3), integers((4, 3), 2, 4) + 1
    lengths, target_lengths = torch.tensor([10, 8, 10, 6]), torch.tensor([3, 2, 3, 1])
    losses = train(torch.optim.AdamW(model.parameters(), lr=2e-2),
                   lambda: criterion(model(x, lengths), targets, lengths, target_lengths), 12)
    scores = model(x, lengths)
    return {"losses": losses, "first": greedy(scores[:, 0], 10), "last": greedy(scores[:, 3], 6),
            "scores": scores[5, 3]}


class MoE(nn.Module):
    def __init__(self, width, experts, k):
        super().__init__()
        self.k, self.router = k, nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList([
            nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
            for _ in range(experts)])

    def forward(self, x):
        probs = self.router(x).softmax(-1)
        weights, chosen = probs.topk(self.k, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        y = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            tokens, places = torch.where(chosen == i)
            y = y.index_add(0, tokens, expert(x[tokens]) * weights[tokens, places, None])
        load = F.one_hot(chosen, len(self.experts)).double().mean((0, 1))
        return y, len(self.experts) * (load * probs.mean(0)).sum()


@program
def moe():
    model = fill(MoE(8, 4, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    x, y = values((24, 8), 1, 4), values((24, 8), 2, 2)
    losses, balances = [], []
    for _ in range(6):
        out, balance = model(x)
        losses += train(optimizer, lambda: F.mse_loss(out, y) + 0.1 * balance, 1)
        balances.append(balance.item())
    return {"losses": losses, "balances": balances, "router": model.router.weight[0]}


class CLIP(nn.Module):
    def __init__(self):
        super().__init__()
        self.picture = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.GELU(), nn.Conv2d(8, 8, 3, padding=1, groups=8),
            nn.Conv2d(8, 12, 1), nn.Hardswish(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 8))
        self.words, self.caption = nn.EmbeddingBag(20, 12, mode="mean"), nn.Linear(12, 8)
        self.temperature = nn.Parameter(torch.tensor([2.6]))

    def forward(self, pictures, captions):
        p = F.normalize(self.picture(pictures), dim=-1)
        c = F.normalize(self.caption(self.words(captions)), dim=-1)
        return self.temperature.exp() * p @ c.T


@program
def clip():
    model = fill(CLIP())
    model.temperature.data.fill_(2.6)
    optimizer = torch.optim.NAdam(model.parameters(), lr=1e-2)
    pictures, captions, own = values((6, 3, 8, 8), 1, 3), integers((6, 4), 2, 20), torch.arange(6)
    losses = []
    for _ in range(8):
        scores = model(pictures, captions)
        losses += train(optimizer, lambda: (F.cross_entropy(scores, own) + F.cross_entropy(scores.T, own)) / 2, 1)
        model.temperature.data.clamp_(0, math.log(100))
    return {"losses": losses, "scores": model(pictures, captions)[0], "temperature": model.temperature}


class SelectiveScan(nn.Module):
    """The block of Mamba: a state whose steps depend on the input."""

    def __init__(self, width, inner, state, rank):
        super().__init__()
        self.inner, self.state, self.rank = inner, state, rank
        self.in_proj = nn.Linear(width, 2 * inner, bias=False)
        self.conv = nn.Conv1d(inner, inner, 3, groups=inner, padding=2)
        self.x_proj = nn.Linear(inner, rank + 2 * state, bias=False)
        self.dt_proj = nn.Linear(rank, inner)
        self.A_log = nn.Parameter(torch.arange(1, state + 1).double().log().repeat(inner, 1))
        self.D = nn.Parameter(torch.ones(inner))
        self.out_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x):
        steps = x.size(1)
        x, z = self.in_proj(x).chunk(2, dim=-1)
        x = F.silu(self.conv(x.transpose(1, 2))[..., :steps].transpose(1, 2))
        dt, B, C = self.x_proj(x).split([self.rank, self.state, self.state], dim=-1)
        dt = F.softplus(self.dt_proj(dt))
        decay = torch.exp(torch.einsum("bld,dn->bldn", dt, -torch.exp(self.A_log)))
        given = torch.einsum("bld,bln,bld->bldn", dt, B, x)
        h, ys = x.new_zeros(x.size(0), self.inner, self.state), []
        for t in range(steps):
            h = decay[:, t] * h + given[:, t]
            ys.append(torch.einsum("bdn,bn->bd", h, C[:, t]))
        y = torch.stack(ys, dim=1) + x * self.D
        return self.out_proj(y * F.silu(z))


class Mamba(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.blocks = nn.ModuleList([SelectiveScan(8, 12, 4, 2) for _ in range(2)])
        self.norms = nn.ModuleList([nn.RMSNorm(8, eps=1e-5) for _ in range(2)])
        self.norm = nn.RMSNorm(8, eps=1e-5)
        self.head = nn.Linear(8, 20, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids):
        x = self.embed(ids)
        for norm, block in zip(self.norms, self.blocks):
            x = x + block(norm(x))
        return self.head(self.norm(x))


@program
def mamba():
    model = fill(Mamba())
    decays = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    optimizer = torch.optim.AdamW([{"params": decays, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}], lr=2e-2)
    tokens = integers((3, 9), 7, 20)
    losses = []
    for step in range(6):
        for group in optimizer.param_groups:
            group["lr"] = 2e-2 * min(1, (step + 1) / 3)
        losses += train(optimizer, lambda: F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()), 1)
    return {"losses": losses, "count": len(list(model.parameters())), "A": model.blocks[0].A_log[0],
            "scores": model(tokens)[1, -1]}


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(inplace=True), nn.MaxPool2d(2),
            nn.Conv2d(6, 8, 3), nn.BatchNorm2d(8), nn.LeakyReLU(0.1), nn.AdaptiveAvgPool2d((1, 1)))
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        return F.normalize(self.fc(torch.flatten(self.features(x), 1)), p=2, dim=1)


class ContrastiveLoss(nn.Module):
    def __init__(self, margin):
        super().__init__()
        self.margin = margin

    def forward(self, a, b, same):
        distance = F.pairwise_distance(a, b)
        return (same * distance.pow(2) + (1 - same) * torch.clamp(self.margin - distance, min=0).pow(2)).mean()


def nt_xent(a, b, temperature):
    """SimCLR's loss of two views."""
    n = a.size(0)
    z = torch.cat([a, b])
    similarity = z @ z.T / temperature
    similarity.fill_diagonal_(float("-inf"))
    partner = torch.cat([torch.arange(n) + n, torch.arange(n)])
    return F.cross_entropy(similarity, partner)


@program
def siamese():
    net, target = fill(Encoder()), fill(Encoder())
    target.load_state_dict(net.state_dict())
    for p in target.parameters():
        p.requires_grad_(False)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=6)
    a, b = values((6, 1, 10, 10), 1, 3), values((6, 1, 10, 10), 2, 3)
    same = torch.tensor([1.0, 0, 1, 0, 1, 0])
    contrastive, triplet = ContrastiveLoss(1.0), nn.TripletMarginLoss(margin=0.5)
    losses = []
    for _ in range(6):
        x, y = net(a), net(b)
        loss = contrastive(x, y, same) + triplet(x, y, y.roll(1, 0)) + 0.5 * nt_xent(x, y, 0.5)
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        with torch.no_grad():
            for p, q in zip(net.parameters(), target.parameters()):
                q.mul_(0.9).add_(p, alpha=0.1)
        losses.append(loss.item())
    net.eval()
    with torch.no_grad():
        near = torch.cdist(net(a), target(b)).argmin(dim=1)
    return {"losses": losses, "norm": norm, "near": near, "mean": net.features[1].running_mean, "target": target.fc.bias}


@program
def hmm():
    """A hidden Markov model by gradients of the forward algorithm, its best path, and a Kalman filter."""
    states, symbols = 3, 4
    start = values((states,), 1).requires_grad_()
    move = values((states, states), 2, 2).requires_grad_()
    emit = values((states, symbols), 3, 2).requires_grad_()
    seen = integers((5, 12), 4, symbols)
    lengths = torch.tensor([12, 9, 12, 5, 7])

    def log_likelihood():
        A, B = move.log_softmax(-1), emit.log_softmax(-1)
        alpha = start.log_softmax(-1) + B.t()[seen[:, 0]]
        for t in range(1, seen.size(1)):
            after = torch.logsumexp(alpha.unsqueeze(2) + A, dim=1) + B.t()[seen[:, t]]
            alpha = torch.where((t < lengths).unsqueeze(1), after, alpha)
        return alpha.logsumexp(-1)

    optimizer = torch.optim.Adam([start, move, emit], lr=0.1)
    losses = train(optimizer, lambda: -(log_likelihood() / lengths).mean(), 8)
    with torch.no_grad():
        A, B = move.log_softmax(-1), emit.log_softmax(-1)
        best, back = start.log_softmax(-1) + B[:, seen[0, 0]], []
        for t in range(1, 12):
            scores, at = (best.unsqueeze(1) + A).max(dim=0)
            best = scores + B[:, seen[0, t]]
            back.append(at)
        path = [best.argmax().item()]
        for at in reversed(back):
            path.insert(0, at[path[0]].item())

    step = torch.tensor([[1.0, 0.1], [0.0, 1.0]])
    look = torch.tensor([[1.0, 0.0]])
    Q, R = 0.01 * torch.eye(2), torch.tensor([[0.2]], requires_grad=True)
    mean, P, total = torch.zeros(2), torch.eye(2), 0.0
    for y in values((10, 1), 5, 2):
        mean, P = step @ mean, step @ P @ step.T + Q
        S = look @ P @ look.T + R
        gain = torch.linalg.solve(S, look @ P).T
        rest = y - look @ mean
        total = total + torch.distributions.MultivariateNormal(look @ mean, S).log_prob(y)
        mean, P = mean + gain @ rest, (torch.eye(2) - gain @ look) @ P
    total.backward()
    return {"losses": losses, "path": path, "likelihood": log_likelihood(), "mean": mean, "total": total, "R": R.grad}


class LoRA(nn.Module):
    """A weight plus a product of low rank."""

    def __init__(self, outputs, inputs, rank, alpha):
        super().__init__()
        self.A = nn.Parameter(torch.empty(rank, inputs))
        self.B = nn.Parameter(torch.zeros(outputs, rank))
        self.scale = alpha / rank
        with torch.no_grad():
            self.A.copy_(values((rank, inputs), 9))

    def forward(self, W):
        return W + self.scale * self.B @ self.A


@program
def lora():
    from torch.nn.utils import parametrize
    base = fill(nn.Sequential(
        nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, activation="gelu"), nn.Linear(8, 5)))
    base.requires_grad_(False)
    targets = {}
    for name, part in base.named_modules():
        if name in ("0.linear1", "0.linear2", "1"):
            parametrize.register_parametrization(part, "weight", LoRA(part.out_features, part.in_features, 2, 4))
            targets[name] = part
    trained = [p for p in base.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=5e-2)
    x, y = values((4, 6, 8), 1, 4), integers((4,), 2, 5)
    losses = train(optimizer, lambda: F.cross_entropy(base(x).mean(1), y), 6)
    state = {name: p for name, p in base.state_dict().items() if name.endswith((".A", ".B"))}
    before = base(x).mean(1)
    with parametrize.cached():
        cached = base(x).mean(1)
    for part in targets.values():
        parametrize.remove_parametrizations(part, "weight", leave_parametrized=True)
    merged = base(x).mean(1)
    return {"losses": losses, "count": sum(p.numel() for p in trained), "kept": len(state), "before": before[0],
            "cached": cached[0], "merged": merged[0]}


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 12), nn.ReLU(), nn.Linear(12, 12), nn.ReLU())
        self.mean, self.log_std = nn.Linear(12, 2), nn.Linear(12, 2)

    def forward(self, x, noise):
        h = self.body(x)
        d = torch.distributions.Normal(self.mean(h), self.log_std(h).clamp(-5, 2).exp())
        u = d.mean + d.stddev * noise
        action = torch.tanh(u)
        log_prob = (d.log_prob(u) - torch.log(1 - action.pow(2) + 1e-6)).sum(-1, keepdim=True)
        return action, log_prob


@program
def sac():
    """Soft actor critic on recorded steps: two critics, targets that follow, a temperature that is learned."""
    import copy
    actor = fill(Actor())
    critics = fill(nn.ModuleList([nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1)) for _ in range(2)]))
    targets = copy.deepcopy(critics).requires_grad_(False)
    log_alpha = torch.zeros(1, requires_grad=True)
    of_actor = torch.optim.Adam(actor.parameters(), lr=3e-3)
    of_critics = torch.optim.Adam(critics.parameters(), lr=3e-3)
    of_alpha = torch.optim.Adam([log_alpha], lr=3e-3)
    critic_losses, actor_losses, alphas = [], [], []
    for i in range(6):
        state, after = values((16, 3), 3 * i + 1, 2), values((16, 3), 3 * i + 2, 2)
        action, reward = values((16, 2), 3 * i + 3, 2), state.sum(1, keepdim=True)
        done = (state[:, :1] > 0.8).double()
        alpha = log_alpha.exp().detach()
        with torch.no_grad():
            a, log_prob = actor(after, values((16, 2), i + 40, 3))
            both = torch.cat([t(torch.cat([after, a], 1)) for t in targets], 1)
            goal = reward + 0.9 * (1 - done) * (both.min(1, keepdim=True).values - alpha * log_prob)
        pair = torch.cat([state, action], 1)
        loss = sum(F.smooth_l1_loss(c(pair), goal) for c in critics)
        of_critics.zero_grad(set_to_none=True)
        loss.backward()
        of_critics.step()
        a, log_prob = actor(state, values((16, 2), i + 50, 3))
        for p in critics.parameters():
            p.requires_grad = False
        best = torch.min(*[c(torch.cat([state, a], 1)) for c in critics])
        policy = (alpha * log_prob - best).mean()
        of_actor.zero_grad()
        policy.backward()
        of_actor.step()
        for p in critics.parameters():
            p.requires_grad = True
        of_alpha.zero_grad()
        (-(log_alpha * (log_prob.detach() - 2)).mean()).backward()
        of_alpha.step()
        with torch.no_grad():
            for p, q in zip(critics.parameters(), targets.parameters()):
                q.lerp_(p, 0.05)
        critic_losses.append(loss.item())
        actor_losses.append(policy.item())
        alphas.append(log_alpha.item())
    return {"critics": critic_losses, "actor": actor_losses, "alphas": alphas,
            "action": actor(state, torch.zeros(16, 2))[0][0], "target": targets[0][2].weight[0]}


@program
def private():
    """Gradients of each sample by vmap, clipped one by one (DP-SGD); an ensemble by stacked parameters; a Laplacian."""
    from torch.func import functional_call, grad, hessian, stack_module_state, vmap
    net = fill(nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)))
    parameters = {name: p.detach().clone() for name, p in net.named_parameters()}
    x, y = values((8, 4), 1, 4), integers((8,), 2, 3)

    def loss_of(parameters, x, y):
        return F.cross_entropy(functional_call(net, parameters, (x.unsqueeze(0),)), y.unsqueeze(0))

    losses, norms = [], []
    for _ in range(4):
        each = vmap(grad(loss_of), in_dims=(None, 0, 0))(parameters, x, y)
        norm = sum(g.flatten(1).square().sum(1) for g in each.values()).sqrt()
        factor = (0.5 / (norm + 1e-6)).clamp(max=1.0)
        for name, g in each.items():
            parameters[name] = parameters[name] - 0.5 * torch.einsum("b,b...->...", factor, g) / 8
        losses.append(vmap(loss_of, in_dims=(None, 0, 0))(parameters, x, y).mean().item())
        norms.append(norm.mean().item())

    nets = [fill(nn.Linear(4, 2)) for _ in range(3)]
    for i, one in enumerate(nets):
        one.weight.data.mul_(i + 1)
    stacked, buffers = stack_module_state(nets)
    outputs = vmap(lambda p, b, x: functional_call(nets[0], (p, b), (x,)), in_dims=(0, 0, None))(stacked, buffers, x)
    outputs.square().mean().backward()

    def field(p):
        return functional_call(net, parameters, (p,)).sum()

    laplacian = vmap(lambda p: hessian(field)(p).trace())(x)
    return {"losses": losses, "norms": norms, "outputs": outputs[1, 0], "slope": stacked["weight"].grad[2, 0],
            "laplacian": laplacian}


#PROGRAMS


def plain(value):
    """Numbers and lists of numbers."""
    return value.tolist() if isinstance(value, torch.Tensor) else value


def main():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../ported/expected.json")
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    expected = {}
    if sys.argv[1:] and os.path.exists(path):
        with open(path) as file:
            expected = json.load(file)
    for name in sys.argv[1:] or PROGRAMS:
        expected[name] = {key: plain(value) for key, value in PROGRAMS[name]().items()}
    rows = [f"{json.dumps(name)}: {json.dumps(expected[name], sort_keys=True)}" for name in sorted(expected)]
    with open(path, "w") as file:
        file.write("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    main()
