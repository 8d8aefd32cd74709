"""The dtypes of the ops on caches."""

from __future__ import annotations

import torch

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
"""Dtypes of queries, keys, values and outputs."""
