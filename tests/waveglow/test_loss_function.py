import numpy as np
import pytest
import torch
from scipy.stats import norm

from common.errors import UsageError
from waveglow.loss_function import WaveGlowLoss
from waveglow.model import WaveGlowOutput


def outputs(dtype=torch.float64, scale=1.0) -> WaveGlowOutput:
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    return WaveGlowOutput(scale * draw(2, 8, 5), [draw(2, 4, 5), draw(2, 3, 5)], [draw(()), draw(())])


@pytest.mark.parametrize("sigma", [1.0, 0.6])
def test_closed_form(sigma):
    out = outputs()
    terms = WaveGlowLoss(sigma).terms(out, torch.zeros(2, 40))
    constant = 80 * (np.log(sigma) + 0.5 * np.log(2 * np.pi))
    normal = -norm.logpdf(out.z.numpy(), scale=sigma).sum() - constant
    assert terms["likelihood"].item() == pytest.approx(normal / 80, rel=1e-12)
    assert terms["log_s"].item() == pytest.approx(-sum(s.numpy().sum() for s in out.log_s_list) / 80, rel=1e-12)
    assert terms["log_det_W"].item() == pytest.approx(-sum(d.item() for d in out.log_det_W_list) / 80, rel=1e-12)
    loss = WaveGlowLoss(sigma)(out, torch.zeros(2, 40), iteration=7)
    assert loss.shape == ()
    assert loss.item() == pytest.approx(sum(term.item() for term in terms.values()), rel=1e-12)


def test_is_the_negative_log_density_of_the_audio(small_model):
    """Change of variables, with the determinant of the whole Jacobian of a batch of two."""
    model = small_model(n_flows=3)
    mels = torch.randn(2, 3, 1).double()
    audio = 0.3 * torch.randn(2, 16).double()
    z = model(mels, audio).z.detach().numpy()
    jacobian = torch.autograd.functional.jacobian(lambda a: model(mels, a).z, audio).reshape(32, 32)
    log_density = norm.logpdf(z, scale=0.7).sum() + np.linalg.slogdet(jacobian.numpy())[1]
    constant = np.log(0.7) + 0.5 * np.log(2 * np.pi)
    loss = WaveGlowLoss(sigma=0.7)(model(mels, audio), audio)
    assert loss.item() == pytest.approx(-log_density / 32 - constant, rel=1e-10)


def test_half_precision_outputs_are_summed_in_float32():
    halved = outputs(torch.float16, scale=300.0)  # 300^2 is beyond float16
    same = WaveGlowOutput(halved.z.double(), *([t.double() for t in terms] for terms in halved[1:]))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = WaveGlowLoss()(halved, torch.zeros(2, 40))
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(WaveGlowLoss()(same, torch.zeros(2, 40)).item(), rel=1e-6)


def test_gradient_with_respect_to_z():
    out = outputs()
    out.z.requires_grad_()
    WaveGlowLoss(sigma=0.5)(out, torch.zeros(2, 40)).backward()
    torch.testing.assert_close(out.z.grad, out.z.detach() / (0.25 * 80), atol=1e-14, rtol=0)


@pytest.mark.parametrize("sigma", [0.0, -1.0, float("nan")])
def test_sigma_has_to_be_positive(sigma):
    with pytest.raises(UsageError, match=f"--sigma {sigma}: expected a positive number"):
        WaveGlowLoss(sigma)
