"""Tacotron 2 against a plain version: one clip, one step, one symbol, one tap at a time, in float64."""

import statistics

import pytest
import torch
from torch import nn

from tacotron2.data_function import Tacotron2Batch
from tacotron2.loss_function import Tacotron2Loss, Tacotron2LossConfig
from tacotron2.model import Tacotron2
from tests.float64 import assert_close

SMALL = {
    "n_mel_channels": 5, "n_symbols": 11, "symbols_embedding_dim": 6, "encoder_kernel_size": 3,
    "encoder_n_convolutions": 2, "encoder_embedding_dim": 8, "attention_rnn_dim": 7, "attention_dim": 4,
    "attention_location_n_filters": 3, "attention_location_kernel_size": 5, "decoder_rnn_dim": 9, "prenet_dim": 6,
    "max_decoder_steps": 9, "postnet_embedding_dim": 7, "postnet_n_convolutions": 3,
}  # fmt: skip
BATCHES = {"one clip": ([5], [8]), "one symbol": ([1, 1], [4, 2]), "one frame": ([4, 3], [1, 1])}
BATCHES |= {"three clips": ([6, 4, 3], [7, 4, 5])}  # neither 4, 5 nor 7 is a multiple of 3, nor all of 2


def small_model(dtype=torch.float64, **config):
    """A model in evaluation mode whose every weight and statistic matters, its dropout off."""
    model = Tacotron2(**{**SMALL, **config}).to(dtype).eval()
    model.decoder.p_attention_dropout = model.decoder.p_decoder_dropout = 0.0
    model.decoder.prenet.p_dropout = model.encoder.p_dropout = model.postnet.p_dropout = 0.0
    with torch.no_grad():
        for name, parameter in model.decoder.named_parameters():
            if name.startswith(("prenet", "attention", "gate")):
                parameter.mul_(1.5)  # far from uniform attention and from a linear model
        for norm in (module for module in model.modules() if isinstance(module, nn.BatchNorm1d)):
            norm.weight.uniform_(0.5, 1.5)
            norm.bias.normal_(std=0.3)
            norm.running_mean.normal_(std=0.3)
            norm.running_var.uniform_(0.5, 1.5)
    return model


def make_batch(text_lengths, mel_lengths, dtype=torch.float64, r=1):
    """Random clips; their padding is random, too, so that a masked model that looks at it shows."""
    texts, mels, frames = torch.tensor(text_lengths), torch.tensor(mel_lengths), max(mel_lengths)
    return Tacotron2Batch(
        text=torch.randint(1, 11, (len(texts), max(text_lengths))),
        text_lengths=texts,
        mels=torch.randn(len(mels), 5, frames, dtype=dtype),
        gates=(torch.arange(frames) // r >= (mels[:, None] - 1) // r).to(dtype),
        mel_lengths=mels,
        names=("",) * len(texts),
    )


def zero_from(x, n):
    """x (C, T) with zeros from column n on."""
    return torch.cat([x[:, :n], torch.zeros_like(x[:, n:])], dim=1)


def conv(weight, x):
    """Same-length convolution of x (in, T), zeros around it."""
    size, edge = weight.shape[2], x.new_zeros(len(x), weight.shape[2] // 2)
    padded = torch.cat([edge, x, edge], dim=1)
    return sum(weight[:, :, j] @ padded[:, j : j + x.shape[1]] for j in range(size))


class Plain:
    """The formulas. Dropout is off; `running` are BatchNorm's statistics after a batch in training."""

    def __init__(self, model, training=False):
        parameters = dict(model.named_parameters())
        state = {name: x.detach().clone().double() for name, x in model.state_dict().items() if x.is_floating_point()}
        self.w = {name: x.requires_grad_(name in parameters) for name, x in state.items()}
        self.c, self.training = model.config, training
        self.running = {}

    def linear(self, name, x):
        return self.w[f"{name}.linear_layer.weight"] @ x + self.w.get(f"{name}.linear_layer.bias", 0)

    def normalise(self, name, clips, lengths):
        mean, variance = self.w[f"{name}.running_mean"], self.w[f"{name}.running_var"]
        if self.training:
            seen = torch.cat([x[:, :n] for x, n in zip(clips, lengths)], dim=1)
            n = seen.shape[1]
            running = mean, variance
            mean = seen.sum(1) / n
            variance = (seen - mean[:, None]).square().sum(1) / n
            self.running[f"{name}.running_mean"] = 0.9 * running[0] + 0.1 * mean
            self.running[f"{name}.running_var"] = 0.9 * running[1] + 0.1 * variance * n / (n - 1)
        scale, bias = self.w[f"{name}.weight"], self.w[f"{name}.bias"]
        return [((x.T - mean) / (variance + 1e-5).sqrt() * scale + bias).T for x in clips]

    def conv_stack(self, name, clips, lengths, activations):
        """Clips (C, T); with lengths, the columns past them are zero and not counted."""
        sizes = lengths or [x.shape[1] for x in clips]
        clips = [zero_from(x, n) for x, n in zip(clips, sizes)]
        for i, activation in enumerate(activations):
            layer = f"{name}.convolutions.{i}"
            weight, bias = self.w[f"{layer}.0.conv.weight"], self.w[f"{layer}.0.conv.bias"]
            clips = self.normalise(f"{layer}.1", [conv(weight, x) + bias[:, None] for x in clips], sizes)
            clips = [zero_from(activation(x), n) for x, n in zip(clips, sizes)]
        return clips

    def lstm(self, name, suffix, x, hidden, cell):
        w = self.w
        gates = w[f"{name}.weight_ih{suffix}"] @ x + w[f"{name}.bias_ih{suffix}"]
        gates = gates + w[f"{name}.weight_hh{suffix}"] @ hidden + w[f"{name}.bias_hh{suffix}"]
        n = len(hidden)
        i, f, g, o = gates[:n], gates[n : 2 * n], gates[2 * n : 3 * n], gates[3 * n :]
        cell = cell / (1 + torch.exp(-f)) + torch.tanh(g) / (1 + torch.exp(-i))
        return torch.tanh(cell) / (1 + torch.exp(-o)), cell

    def encode(self, text, lengths, mask_padding):
        """Memory (S, E) of each clip."""
        clips = [torch.stack([self.w["embedding.weight"][symbol] for symbol in ids], dim=1) for ids in text]
        relu = [lambda x: x.clamp(min=0)] * self.c.encoder_n_convolutions
        clips = self.conv_stack("encoder", clips, lengths if mask_padding else None, relu)
        memories = []
        for x, n in zip(clips, lengths):
            rows = [[] for _ in range(x.shape[1])]
            for suffix, order in (("_l0", range(n)), ("_l0_reverse", reversed(range(n)))):
                hidden = cell = x.new_zeros(self.c.encoder_embedding_dim // 2)
                for s in order:
                    hidden, cell = self.lstm("encoder.lstm", suffix, x[:, s], hidden, cell)
                    rows[s].append(hidden)
            nothing = x.new_zeros(self.c.encoder_embedding_dim)
            memories.append(torch.stack([torch.cat(row) if row else nothing for row in rows]))
        return memories

    def attend(self, hidden, memory, n, weights, cumulative):
        name = "decoder.attention_layer"
        location = conv(self.w[f"{name}.location_layer.location_conv.conv.weight"], torch.stack([weights, cumulative]))
        query, energies = self.linear(f"{name}.query_layer", hidden), []
        for s in range(n):
            key = self.linear(f"{name}.memory_layer", memory[s])
            place = self.linear(f"{name}.location_layer.location_dense", location[:, s])
            energies.append(self.linear(f"{name}.v", torch.tanh(query + key + place))[0])
        shares = torch.exp(torch.stack(energies))
        return torch.cat([shares / shares.sum(), memory.new_zeros(len(memory) - n)])

    def decode(self, memory, n, steps, teacher=None):
        """Frames (M, K·r), gates (K·r,) and alignments (K, S) of one clip: taught, or fed with its own frames."""
        c, r = self.c, self.c.n_frames_per_step
        attention_h = attention_c = memory.new_zeros(c.attention_rnn_dim)
        decoder_h = decoder_c = memory.new_zeros(c.decoder_rnn_dim)
        weights = cumulative = memory.new_zeros(len(memory))
        context = memory.new_zeros(c.encoder_embedding_dim)
        frames, gates, alignments = [], [], []
        for k in range(steps):
            previous = memory.new_zeros(r * c.n_mel_channels)
            if k:
                known = frames if teacher is None else teacher.T
                previous = torch.cat([known[t] for t in range((k - 1) * r, k * r)])
            for i in range(2):
                previous = self.linear(f"decoder.prenet.layers.{i}", previous).clamp(min=0)
            x = torch.cat([previous, context])
            attention_h, attention_c = self.lstm("decoder.attention_rnn", "", x, attention_h, attention_c)
            weights = self.attend(attention_h, memory, n, weights, cumulative)
            cumulative = cumulative + weights
            context = sum(weights[s] * memory[s] for s in range(len(memory)))
            x = torch.cat([attention_h, context])
            decoder_h, decoder_c = self.lstm("decoder.decoder_rnn", "", x, decoder_h, decoder_c)
            x = torch.cat([decoder_h, context])
            frames += self.linear("decoder.linear_projection", x).split(c.n_mel_channels)
            gates += [self.linear("decoder.gate_layer", x)[0]] * r
            alignments.append(weights)
        return torch.stack(frames, dim=1), torch.stack(gates), torch.stack(alignments)

    def refine(self, mels, lengths):
        activations = [torch.tanh] * (self.c.postnet_n_convolutions - 1) + [lambda x: x]
        return [x + y for x, y in zip(mels, self.conv_stack("postnet", mels, lengths, activations))]

    def forward(self, batch):
        r, masked = self.c.n_frames_per_step, self.c.mask_padding
        symbols, lengths, frames = batch.text_lengths.tolist(), batch.mel_lengths.tolist(), batch.mels.shape[2]
        steps = -(-frames // r)
        decoded = []
        for memory, n, mel in zip(self.encode(batch.text, symbols, masked), symbols, batch.mels.double()):
            teacher = torch.cat([mel, mel.new_zeros(len(mel), steps * r - frames)], dim=1)
            decoded.append(self.decode(memory, n, steps, teacher))
        mels, gates = [mel[:, :frames] for mel, _, _ in decoded], [gate[:frames] for _, gate, _ in decoded]
        if not masked:
            lengths = [frames] * len(mels)
        mels = [zero_from(mel, n) for mel, n in zip(mels, lengths)]
        refined = [zero_from(mel, n) for mel, n in zip(self.refine(mels, lengths if masked else None), lengths)]
        gates = [torch.cat([gate[:n], torch.full_like(gate[n:], 1e3)]) for gate, n in zip(gates, lengths)]
        return [torch.stack(mels), torch.stack(refined), torch.stack(gates), torch.stack([a for _, _, a in decoded])]

    def loss(self, outputs, batch):
        """Per clip and frame, so that real frames can be told from padding."""
        mels, refined, gates, _ = outputs
        terms = []
        for b, n in enumerate(batch.mel_lengths.tolist()):
            for t in range(n if self.c.mask_padding else mels.shape[2]):
                target, stop, gate = batch.mels[b, :, t], batch.gates[b, t], gates[b, t]
                error = (mels[b, :, t] - target).square().mean() + (refined[b, :, t] - target).square().mean()
                likelihood = stop / (1 + torch.exp(-gate)) + (1 - stop) / (1 + torch.exp(gate))
                terms.append(error - torch.log(likelihood))
        return sum(terms) / len(terms)

    def infer(self, ids, threshold):
        """Frames up to the step in which the gate fires, the number before it, and alignments of one text."""
        r, limit = self.c.n_frames_per_step, self.c.max_decoder_steps
        (memory,) = self.encode([ids], [len(ids)], True)
        mels, gates, alignments = self.decode(memory, len(ids), limit)
        before = steps_before(gates[::r], threshold)
        n_steps = min(before + 1, limit)
        return self.refine([mels[:, : n_steps * r]], None)[0], before * r, alignments[:n_steps]


def steps_before(gates, threshold):
    fired = (torch.sigmoid(gates) > threshold).tolist()
    return fired.index(True) if True in fired else len(fired)


@pytest.mark.parametrize("sizes", BATCHES)
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("mask_padding", [False, True], ids=["plain", "masked"])
@pytest.mark.parametrize("r", [1, 3])
def test_outputs_gradients_and_statistics(sizes, r, mask_padding, training):
    """With and without the padding, which without --mask-padding has an effect, as in the published recipe."""
    model = small_model(mask_padding=mask_padding, n_frames_per_step=r).train(training)
    batch, plain = make_batch(*BATCHES[sizes], r=r), Plain(model, training)
    outputs, expected = model(*batch.inputs), plain.forward(batch)
    assert outputs._fields == ("mel_outputs", "mel_outputs_postnet", "gate_outputs", "alignments")
    for got, want in zip(outputs, expected, strict=True):
        assert_close(got, want, 1e-9)
    Tacotron2Loss(Tacotron2LossConfig(mask_padding=mask_padding))(outputs, batch.targets).backward()
    plain.loss(expected, batch).backward()
    for name, parameter in model.named_parameters():
        theirs = plain.w[name].grad
        theirs = torch.zeros_like(parameter) if theirs is None else theirs
        torch.testing.assert_close(parameter.grad, theirs, rtol=0, atol=1e-9, msg=lambda m, name=name: f"{name}: {m}")
    expected_statistics = {name: x for name, x in plain.w.items() if "running" in name} | plain.running
    statistics = {name: x for name, x in model.named_buffers() if "running" in name}
    assert statistics.keys() == expected_statistics.keys()
    for name, value in statistics.items():
        assert_close(value, expected_statistics[name], 1e-9)


def telling_threshold(plain, texts):
    """The gate threshold at which the texts end after the most different numbers of steps."""
    gates = []
    for ids in texts:
        (memory,) = plain.encode([ids], [len(ids)], True)
        gates.append(plain.decode(memory, len(ids), plain.c.max_decoder_steps)[1].detach())
    values = torch.cat(gates).sigmoid().unique()
    middles = ((values[1:] + values[:-1]) / 2).tolist()
    return max(middles, key=lambda middle: len({steps_before(gate, middle) for gate in gates}))


@pytest.mark.parametrize("r", [1, 2, 3])
def test_inference(r):
    """A batch in any order of lengths, whose gates fire at different steps, against each text alone."""
    model = small_model(n_frames_per_step=r)
    batch = make_batch([4, 6, 2, 3], [1] * 4)
    with torch.no_grad():
        model.embedding.weight.mul_(3)
        model.decoder.gate_layer.linear_layer.weight.mul_(5)
    plain, texts = Plain(model), [ids[:n] for ids, n in zip(batch.text, batch.text_lengths)]
    model.decoder.gate_threshold = telling_threshold(plain, texts)
    everything = [plain.infer(ids, model.decoder.gate_threshold) for ids in texts]
    mels, lengths, alignments = model.infer(batch.text, batch.text_lengths)
    assert lengths.tolist() == [n for _, n, _ in everything]
    assert len(set(lengths.tolist())) >= 3
    for b, (mel, n, alignment) in enumerate(everything):
        frames, (steps, symbols) = mel.shape[1], alignment.shape
        assert_close(mels[b, :, :frames], mel.detach(), 1e-9)
        assert not mels[b, :, frames:].any()
        assert_close(alignments[b, :steps, :symbols], alignment.detach(), 1e-9)
        assert not alignments[b, :, symbols:].any()
        assert n <= frames <= n + r
    assert mels.shape == (4, 5, max(mel.shape[1] for mel, _, _ in everything))
    assert alignments.shape[1] * r == mels.shape[2]


@pytest.mark.parametrize("mask_padding", [False, True], ids=["plain", "masked"])
@pytest.mark.parametrize("r", [1, 2])
def test_bfloat16_autocast(r, mask_padding):
    """8 bits of mantissa: the loss within 1 %, the gradient within 6 degrees of float32's.

    The median of a few models, as now and then one has a ReLU at its corner or attention at a tie.
    """
    criterion, cosines = Tacotron2Loss(Tacotron2LossConfig(mask_padding=mask_padding)), []
    for _ in range(5):
        model = small_model(torch.float32, mask_padding=mask_padding, n_frames_per_step=r).train()
        batch = make_batch([9, 8, 6, 5], [20, 14, 17, 9], dtype=torch.float32, r=r)
        results = []
        for enabled in (False, True):
            model.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
                outputs = model(*batch.inputs)
                loss = criterion(outputs, batch.targets)
            loss.backward()
            assert all(x.isfinite().all() for x in outputs)
            assert outputs.alignments.dtype == loss.dtype == torch.float32
            results.append((loss.item(), torch.cat([p.grad.flatten() for p in model.parameters()])))
        (exact_loss, exact), (half_loss, gradient) = results
        assert half_loss == pytest.approx(exact_loss, rel=0.01)
        cosines.append(torch.cosine_similarity(gradient, exact, dim=0).item())
    assert statistics.median(cosines) > 0.995
