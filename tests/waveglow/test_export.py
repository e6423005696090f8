"""The plain model as it is under torch.jit.script, torch.export and torch.compile."""

import io
import warnings

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from waveglow.model import WaveGlow

pytestmark = pytest.mark.slow

SIGMA = 0.8


def speech(batch: int, frames: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Mels and as much audio, for the small model's hop of 16."""
    return torch.randn(batch, 3, frames).to(dtype), 0.3 * torch.randn(batch, 16 * frames).to(dtype)


class Infer(nn.Module):
    """A model's infer as a forward, which torch.export takes."""

    def __init__(self, model: WaveGlow) -> None:
        super().__init__()
        self.model = model

    def forward(self, mels: Tensor, z: Tensor) -> Tensor:
        return self.model.infer(mels, SIGMA, z)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_script(small_model, dtype: torch.dtype) -> None:
    model = small_model(dtype)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore", DeprecationWarning)
        scripted = torch.jit.script(model)
        torch.jit.save(scripted, buffer := io.BytesIO())
        buffer.seek(0)
        for twin in (scripted, torch.jit.load(buffer)):
            for batch, frames in ((2, 5), (1, 1), (3, 9)):
                mels, audio = speech(batch, frames, dtype)
                expected = model(mels, audio)
                outputs = twin(mels, audio)
                torch.testing.assert_close(outputs[0], expected.z, rtol=0, atol=1e-6)
                torch.testing.assert_close(outputs[2], expected.log_det_W_list, rtol=0, atol=1e-5)
                samples = twin.infer(mels, SIGMA, expected.z)
                torch.testing.assert_close(samples, model.infer(mels, SIGMA, expected.z), rtol=0, atol=1e-6)
                assert twin.infer(mels).shape == audio.shape
            with pytest.raises(torch.jit.Error, match="expected at least one group of 8"):
                twin(mels, audio[:, :7])


def test_export_of_forward_with_dynamic_batch_and_length(small_model) -> None:
    model = small_model(torch.float32)
    batch, frames = Dim("batch", max=64), Dim("frames", max=4096)
    shapes = {"mels": {0: batch, 2: frames}, "audio": {0: batch, 1: 16 * frames}}
    program = torch.export.export(model, speech(2, 5), dynamic_shapes=shapes).module()
    for size in ((1, 1), (3, 9), (2, 40)):
        inputs = speech(*size)
        outputs, expected = program(*inputs), model(*inputs)
        torch.testing.assert_close(outputs.z, expected.z, rtol=0, atol=1e-6)
        for got, want in ((outputs.log_s_list, expected.log_s_list), (outputs.log_det_W_list, expected.log_det_W_list)):
            torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6)


def test_compile_of_forward_backward_and_infer_in_one_graph(small_model) -> None:
    model, (mels, audio) = small_model(torch.float32, n_flows=3).train(), speech(2, 5)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    results = []
    for run in (model, compiled):
        model.zero_grad()
        z = run(mels, audio).z
        z.square().sum().backward()
        results.append([z.detach(), *(p.grad for p in model.parameters())])
    for got, want in zip(*results, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    infer = torch.compile(Infer(model.eval()), backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(infer(mels, z.detach()), model.infer(mels, SIGMA, z.detach()), rtol=0, atol=1e-6)
