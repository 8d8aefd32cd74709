"""A base of torch's dispatch modes that costs no import of ``torch._dynamo``."""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode


class DispatchMode(TorchDispatchMode):
    """A dispatch mode whose ``__torch_dispatch__`` is called as it is.

    That of another mode imports ``torch._dynamo`` at its first operator, seconds and 40 MB, to keep it from being
    compiled.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False
