"""Attention of one new token per sequence over a paged cache of latents (multi-head latent attention, absorbed)."""

from workbench.attention.ops.mla_decode.api import OP, mla_decode
from workbench.attention.ops.mla_decode.cases import CASES, MlaDecodeCase
from workbench.attention.ops.mla_decode.cuda_latent_mma import VARIANT as CUDA_LATENT_MMA
from workbench.attention.ops.mla_decode.cuda_latent_wgmma import VARIANT as CUDA_LATENT_WGMMA
from workbench.attention.ops.mla_decode.problem import MlaDecodeProblem, MlaDecodeTensors
from workbench.attention.ops.mla_decode.torch_gathered import VARIANT as TORCH
from workbench.attention.ops.mla_decode.triton_latent import VARIANT as TRITON_LATENT

VARIANTS = (TORCH, CUDA_LATENT_MMA, CUDA_LATENT_WGMMA, TRITON_LATENT)

OP.add(*VARIANTS, *CASES.values())
OP.function = mla_decode
case = OP.case

__all__ = [
    "CASES",
    "OP",
    "VARIANTS",
    "MlaDecodeCase",
    "MlaDecodeProblem",
    "MlaDecodeTensors",
    "case",
    "mla_decode",
]
