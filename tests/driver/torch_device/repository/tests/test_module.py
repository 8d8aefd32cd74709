import pytest
import torch
from kernels.module import Mixer


@pytest.mark.parametrize("size", [8, 33])
def test_forward(device, size):
    mixer, x = Mixer(size).to(device), torch.randn(4, size, device=device)
    torch.testing.assert_close(mixer(x), torch.softmax(mixer.linear(x), -1))


@pytest.mark.parametrize("size", [8, 33])
def test_backward(device, size):
    mixer, x = Mixer(size).to(device), torch.randn(4, size, device=device)
    weights = torch.randn(4, size, device=device)
    (mixer(x) * weights).sum().backward()
    ours = mixer.linear.weight.grad.clone()
    mixer.zero_grad()
    (torch.softmax(mixer.linear(x), -1) * weights).sum().backward()
    torch.testing.assert_close(ours, mixer.linear.weight.grad)


def test_training_step(device):
    mixer, x = Mixer(16).to(device), torch.randn(8, 16, device=device)
    optimizer = torch.optim.AdamW(mixer.parameters(), lr=0.05)
    losses = []
    for _ in range(3):
        loss = -mixer(x)[:, 0].log().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_state_dict(device):
    mixer = Mixer(8).to(device)
    other = Mixer(8).to(device)
    other.load_state_dict(mixer.state_dict())
    x = torch.randn(2, 8, device=device)
    assert torch.equal(mixer(x), other(x))
