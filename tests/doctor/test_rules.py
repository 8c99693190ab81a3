"""Every rule, both ways: a configuration that it speaks up for, and a neighbour that it keeps silent about."""

from __future__ import annotations

import math
import random
import re
from pathlib import Path

import pytest
from splitheads import backends, models
from splitheads.doctor import diagnose
from splitheads.doctor.facts import pruned
from splitheads.doctor.kernels import FA2_BUCKETS, KERNEL_RULES, VLLM_WIDTHS, power_of_two
from splitheads.doctor.report import SEVERITIES, VERDICTS
from splitheads.doctor.rules import RULES, diagnose_plain

BOOK = Path(__file__).resolve().parents[2] / "book"
CHAPTERS = {path.stem for path in BOOK.glob("*.md")} | {"sharding", "doctor"}
LLAMA = {"d_model": 4096, "n_heads": 32, "n_kv_heads": 8, "n_layers": 32}
MLA = {
    "attention": "mla",
    "d_model": 7168,
    "n_heads": 128,
    "d_head": 192,
    "d_head_v": 128,
    "kv_latent": 512,
    "rope_dim": 64,
}
FA2 = {"attn_implementation": "flash_attention_2"}
FLEX = {"attn_implementation": "flex_attention"}
GQA = {"n_heads": 32, "n_kv_heads": 4}
A100 = {"d_head": 64, "device": "a100"}


def ids(config: dict, severity: str | None = None) -> list[str]:
    return [finding.id for finding in diagnose(config).findings if severity in (None, finding.severity)]


def finding(config: dict, name: str):
    return next(found for found in diagnose(config).findings if found.id == name)


BOTH_WAYS = [
    # id, severity, a configuration where it is said, one where it is not
    ("does-not-divide", "error", {"d_model": 768, "n_heads": 5}, {"d_model": 768, "n_heads": 6}),
    ("does-not-divide", "error", {"d_model": 100, "n_heads": 3}, {"d_model": 100, "n_heads": 3, "d_head": 40}),
    ("does-not-divide", "error", {"d_model": 7, "n_heads": 2}, {**MLA, "n_heads": 5}),
    ("too-narrow", "error", {"d_model": 2, "n_heads": 8}, {"d_model": 8, "n_heads": 8}),
    ("layers-for-heads", "note", {"d_model": 1600, "n_heads": 48}, {"d_model": 1600, "n_heads": 47}),
    ("layers-for-heads", "note", {"d_model": 1024, "n_heads": 24}, {"d_model": 768, "n_heads": 12}),
    ("kv-heads-do-not-divide", "error", {"n_heads": 8, "n_kv_heads": 3}, {"n_heads": 8, "n_kv_heads": 4}),
    ("kv-heads-do-not-divide", "error", {"n_heads": 8, "n_kv_heads": 16}, {"n_heads": 8, "n_kv_heads": 8}),
    ("range", "error", {"d_model": 0, "n_heads": 1}, {"d_model": 1, "n_heads": 1}),
    ("range", "error", {"d_model": -768, "n_heads": 12}, {"d_model": 2**24, "n_heads": 1}),
    ("range", "error", {"d_model": 2**24 + 1, "n_heads": 1}, {"d_model": 2**24, "n_heads": 2}),
    ("range", "error", {"d_model": 64, "n_heads": 2**20, "d_head": 2**10}, {"d_model": 64, "n_heads": 2**14, "d_head": 2**10}),
    ("range", "error", {**A100, "dropout": 1.5}, {**A100, "dropout": 1.0}),
    ("range", "error", {**A100, "rope": True, "rotary_pct": -0.5}, {**A100, "rope": True, "rotary_pct": 0.5}),
    ("range", "error", {**A100, "seq_q": 2**31 + 1}, {**A100, "seq_q": 2**31}),
    ("range", "error", {**LLAMA, "n_layers": 10**6}, LLAMA),
    ("breaks-rule", "note", {"d_model": 2560, "n_heads": 32, "d_head": 128}, {"d_model": 4096, "n_heads": 32, "d_head": 128}),
    ("narrow-heads", "warning", {"d_model": 64, "n_heads": 64}, {"d_model": 1024, "n_heads": 64}),
    ("narrow-heads", "note", {"d_model": 64, "n_heads": 8}, {"d_model": 1024, "n_heads": 64}),
    ("incomplete", "note", {"n_layers": 12}, {"d_head": 64}),
    ("incomplete", "note", {"n_heads": 12}, {"n_heads": 28, "tp": 4}),
    ("rope-odd", "error", {"d_model": 520, "n_heads": 8, "rope": True}, {"d_model": 520, "n_heads": 8, "rope": False}),
    ("rope-odd", "warning", {"d_head": 100, "rope": True, "rotary_pct": 0.25}, {"d_head": 80, "rope": True, "rotary_pct": 0.25}),
    ("rope-odd", "error", {"d_head": 65, "rope": True}, {"d_head": 65, "rope": True, "rotary_pct": 0.5}),
    ("rope-odd", "error", {**MLA, "rope_dim": 63}, MLA),
    ("rope-nothing", "warning", {"d_head": 64, "rope": True, "rotary_pct": 0.01}, {"d_head": 64, "rope": True, "rotary_pct": 0.04}),
    ("kind-contradicts", "warning", {**LLAMA, "attention": "mha"}, {**LLAMA, "attention": "gqa"}),
    ("kind-contradicts", "warning", {**LLAMA, "attention": "mqa"}, {**LLAMA, "n_kv_heads": 1, "attention": "mqa"}),
    ("kind-contradicts", "note", {**LLAMA, "n_kv_heads": 1, "attention": "gqa"}, {**LLAMA, "attention": "gqa"}),
    ("kv-heads-missing", "note", {"d_model": 4096, "n_heads": 32, "attention": "gqa"}, {"d_model": 4096, "n_heads": 32, "attention": "mqa"}),
    ("mla-rope-part", "error", {**MLA, "d_head": 64}, MLA),
    ("mla-widths-missing", "note", {"attention": "mla", "n_heads": 8, "d_head": 96}, MLA),
    ("mla-cache", "note", MLA, LLAMA),
    ("mla-head", "note", {**MLA, "d_model": 24576}, MLA),
    ("breaks-rule", "note", MLA, {**MLA, "d_model": 24576}),
    ("value-width", "note", {"d_model": 4096, "n_heads": 32, "d_head_v": 64}, {"d_model": 4096, "n_heads": 32, "d_head_v": 128}),
    # existing weights
    ("loads-but-wrong", "warning", {"d_model": 768, "n_heads": 8, "checkpoint_n_heads": 12}, {"d_model": 768, "n_heads": 12, "checkpoint_n_heads": 12}),
    ("loads-but-wrong", "warning", {"d_model": 768, "n_heads": 8, "d_head": 96, "checkpoint_n_heads": 12}, {"d_model": 768, "n_heads": 8, "d_head": 64, "checkpoint_n_heads": 12}),
    ("loads-but-wrong", "warning", {"n_heads": 8, "checkpoint_n_heads": 12}, {"n_heads": 8, "checkpoint_n_heads": 8}),
    ("loads-but-wrong", "warning", {**LLAMA, "n_heads": 64, "n_kv_heads": 16, "checkpoint_n_heads": 32, "checkpoint_n_kv_heads": 8}, {**LLAMA, "checkpoint_n_heads": 32, "checkpoint_n_kv_heads": 8}),
    ("will-not-load", "error", {"d_model": 512, "n_heads": 8, "checkpoint_n_heads": 12, "checkpoint_d_model": 768}, {"d_model": 768, "n_heads": 8, "checkpoint_n_heads": 12, "checkpoint_d_model": 768}),
    ("will-not-load", "error", {**LLAMA, "checkpoint_n_kv_heads": 32}, {**LLAMA, "checkpoint_n_kv_heads": 8}),
    ("will-not-load", "error", {"n_heads": 32, "n_kv_heads": 1, "checkpoint_n_kv_heads": 32}, {"n_heads": 32, "n_kv_heads": 1, "checkpoint_n_kv_heads": 1}),
    ("will-not-load", "error", {"model": "Qwen3-0.6B", "n_heads": 32}, {"model": "Qwen3-0.6B"}),
    ("will-not-load", "error", {"model": "Llama 2 7B", "n_kv_heads": 8}, {"model": "Llama 2 7B", "n_kv_heads": 32}),
    ("will-not-load", "error", {**MLA, "checkpoint_n_heads": 64}, {**MLA, "checkpoint_n_heads": 128}),
    ("will-not-load", "error", {**MLA, "d_head": None, "checkpoint_n_heads": 64}, {**MLA, "d_head": None, "checkpoint_n_heads": 128}),
    ("will-not-load", "error", {"d_model": 2560, "n_heads": 32, "d_head": 80, "checkpoint_d_head": 128}, {"d_model": 2560, "n_heads": 32, "d_head": 128, "checkpoint_d_head": 128}),
    ("will-not-load", "error", {"n_heads": 32, "d_head": 80, "checkpoint_d_head": 128}, {"n_heads": 32, "d_head": 80, "checkpoint_d_head": 80}),
    ("checkpoint-unclear", "warning", {"d_model": 768, "n_heads": 12, "checkpoint_n_heads": 7}, {"d_model": 768, "n_heads": 12, "checkpoint_n_heads": 7, "checkpoint_d_head": 64}),
    ("key-not-used", "warning", {**MLA, "n_kv_heads": 8}, {**MLA, "n_kv_heads": 128}),
    ("key-not-used", "warning", {**LLAMA, "attention": "gqa", "kv_latent": 512}, {**LLAMA, "attention": "gqa"}),
    ("key-not-used", "warning", {**LLAMA, "rope_dim": 64}, LLAMA),
    ("incomplete", "note", {"attention": "mla", "d_model": 7168, "n_heads": 128, "kv_latent": 512, "rope_dim": 64}, MLA),
    ("range", "error", {"d_head": 64, "checkpoint_scale": 0}, {"d_head": 64, "checkpoint_scale": 0.5}),
    ("scale-too-sharp", "warning", {"d_head": 64, "scale": 0.125, "checkpoint_scale": 0.1}, {"d_head": 64, "scale": 0.1, "checkpoint_scale": 0.1}),
    ("padding-buys-nothing", "note", {"d_head": 80, "pad_d_head_to": 96}, {"d_head": 80, "pad_d_head_to": 128}),
    ("padding-buys-nothing", "note", {**A100, "d_head": 80, "pad_d_head_to": 96}, {**A100, "d_head": 80, "pad_d_head_to": 96, "mask": "bool"}),
    ("padding-buys-nothing", "note", {"d_head": 80, "pad_d_head_to": 128, **FLEX}, {"d_head": 80, "pad_d_head_to": 128, **FA2}),
    ("padding-buys-nothing", "note", {"d_head": 72, "pad_d_head_to": 96}, {"d_head": 90, "pad_d_head_to": 96}),
    ("pruned", "note", {"d_model": 768, "n_heads": 12, "prune_heads": 4}, {"d_model": 768, "n_heads": 12, "prune_heads": 0}),
    ("pruned", "note", {"d_model": 768, "n_heads": 12, "prune_heads": [0, 11]}, {"d_model": 768, "n_heads": 12, "prune_heads": []}),
    ("pruned", "note", {**LLAMA, "prune_heads": 8}, {**LLAMA, "prune_heads": 3}),
    ("pruned", "note", {**LLAMA, "prune_heads": [0, 1, 2, 3]}, {**LLAMA, "prune_heads": [0, 1, 2, 4]}),
    ("prune-heads", "error", {"d_model": 768, "n_heads": 12, "prune_heads": 12}, {"d_model": 768, "n_heads": 12, "prune_heads": 11}),
    ("prune-heads", "error", {"d_model": 768, "n_heads": 12, "prune_heads": [12]}, {"d_model": 768, "n_heads": 12, "prune_heads": [11]}),
    ("prune-heads", "error", {"d_model": 768, "n_heads": 12, "prune_heads": -1}, {"d_model": 768, "n_heads": 12, "prune_heads": 1}),
    ("prune-heads", "error", {**LLAMA, "prune_heads": 3}, {**LLAMA, "prune_heads": 4}),
    ("prune-heads", "error", {"n_heads": 1, "prune_heads": 1}, {"n_heads": 2, "prune_heads": 1}),
    ("padding-changes-scale", "warning", {"d_head": 80, "pad_d_head_to": 96}, {"d_head": 80, "pad_d_head_to": 80}),
    ("padding-changes-scale", "warning", {"d_head": 80, "pad_d_head_to": 96, "scale": 96**-0.5}, {"d_head": 80, "pad_d_head_to": 96, "scale": 80**-0.5}),
    ("padded", "note", {"d_head": 80, "pad_d_head_to": 96, "scale": 0.1118}, {"d_head": 80, "pad_d_head_to": 96}),
    ("pad-too-narrow", "error", {"d_head": 80, "pad_d_head_to": 64}, {"d_head": 80, "pad_d_head_to": 96}),
    ("scale-too-flat", "warning", {"d_model": 512, "n_heads": 8, "scale": 512**-0.5}, {"d_model": 512, "n_heads": 8, "scale": 0.125}),
    ("scale-too-sharp", "warning", {"d_head": 64, "scale": 1.0}, {"d_head": 64, "scale": 0.1255}),
    ("scale-not-positive", "warning", {"d_head": 64, "scale": 0.0}, {"d_head": 64, "scale": 0.125}),
    ("own-scale", "note", {"model": "Gemma 2 27B"}, {"model": "Gemma 2 9B"}),
    ("own-scale", "note", {"model": "T5-3B"}, {"model": "T5-3B", "scale": 0.0883883}),
    # many GPUs
    ("tp-heads", "error", {"n_heads": 28, "n_kv_heads": 4, "tp": 8}, {"n_heads": 28, "n_kv_heads": 4, "tp": 4}),
    ("tp-kv-heads", "error", {"n_heads": 28, "n_kv_heads": 4, "tp": 14}, {"n_heads": 28, "n_kv_heads": 4, "tp": 28}),
    ("tp-kv-heads", "error", {**GQA, "tp": 8, "stack": "hf"}, {**GQA, "tp": 8, "stack": "vllm"}),
    ("kv-replicated", "note", {**GQA, "tp": 8}, {**GQA, "tp": 4}),
    ("mla-replicates", "note", {**MLA, "tp": 8}, {**MLA, "tp": 1}),
    # kernels
    ("math-fallback", "warning", {"d_head": 65, "dtype": "fp32", "device": "a100"}, {"d_head": 64, "dtype": "fp32", "device": "a100"}),
    ("math-fallback", "warning", {"d_head": 100, "mask": "bool", "device": "a100"}, {"d_head": 104, "mask": "bool", "device": "a100"}),
    ("math-fallback", "warning", {"d_head": 64, "dtype": "bf16", "device": "t4"}, {"d_head": 64, "device": "t4"}),
    ("math-fallback", "warning", {"d_head": 64, "dropout": 0.1, "training": True, "device": "cpu"}, {"d_head": 65, "device": "cpu"}),
    ("math-fallback", "warning", {**A100, **GQA, "mask": "bool", "torch": "2.13.0"}, {**A100, **GQA, "mask": "bool", "torch": "2.14.1"}),
    ("math-fallback", "warning", {"d_head": 200, "training": True, "device": "rtx4090", "dropout": 0.1, "dtype": "fp32", "d_head_v": 65}, {"d_head": 200, "training": True, "device": "rtx4090"}),
    ("metal", "note", {"d_head": 64, "device": "mps"}, {"d_head": 64, "device": "cpu"}),
    ("not-flash", "note", {**A100, "mask": "float"}, A100),
    ("not-flash", "note", {**A100, "device": "h100"}, {**A100, "device": "h100", "torch": "2.10.0"}),
    ("version-dependent", "note", {**A100, "device": "h100"}, A100),
    ("version-dependent", "warning", {**A100, **GQA, "mask": "bool"}, {**A100, **GQA, "mask": "bool", "torch": "2.15.0"}),
    ("version-dependent", "note", {"d_head": 160, "device": "a100"}, {"d_head": 192, "device": "a100"}),
    ("nearest-platform", "note", {**A100, "torch": "2.9.1"}, {**A100, "torch": "2.13.0+cu130"}),
    ("mask-and-causal", "error", {"d_head": 64, "mask": "bool", "is_causal": True}, {"d_head": 64, "mask": "bool"}),
    ("mask-and-causal", "error", {**A100, "mask": "bool", "is_causal": True}, {**A100, "is_causal": True}),
    ("mask-and-causal", "warning", {**A100, "mask": "bool", "is_causal": True, "torch": "2.13.0"}, {**A100, "mask": "bool", "is_causal": True, "device": "mps"}),
    ("bucket-waste", "warning", {"d_head": 132, **FA2}, {"d_head": 128, **FA2}),
    ("bucket-waste", "note", {"d_head": 80, "device": "a100"}, {"d_head": 96, "device": "a100"}),
    ("bucket-waste", "note", {"d_head": 80, "pad_d_head_to": 96, "scale": 80**-0.5, "device": "a100"}, {"d_head": 80, "device": "cpu"}),
    ("width-not-8", "note", {"d_head": 65}, {"d_head": 72}),
    ("fa2-refuses", "error", {"d_head": 264, **FA2}, {"d_head": 256, **FA2}),
    ("fa2-refuses", "error", {"d_head": 64, "dtype": "fp32", **FA2}, {"d_head": 64, "dtype": "fp16", **FA2}),
    ("fa2-refuses", "error", {"d_head": 64, "device": "t4", "dtype": "fp16", **FA2}, {"d_head": 64, "device": "rtx3090", **FA2}),
    ("fa2-refuses", "error", {"d_head": 256, "device": "rtx3090", "training": True, "dropout": 0.1, **FA2}, {"d_head": 256, "device": "rtx3090", "training": True, **FA2}),
    ("fa2-value-width", "warning", {"d_head": 192, "d_head_v": 128, **FA2}, {"d_head": 192, **FA2}),
    ("fa2-mask", "warning", {"d_head": 64, "mask": "bool", **FA2}, {"d_head": 64, **FA2}),
    ("fa1-history", "note", {"d_head": 128, "training": True, "device": "rtx3090"}, {"d_head": 128, "training": True, "device": "a100"}),
    ("fa1-history", "note", {"d_head": 80, "training": True, "device": "rtx4090"}, {"d_head": 64, "training": True, "device": "rtx4090"}),
    ("flex-power-of-two", "error", {"d_head": 72, "torch": "2.6.0", **FLEX}, {"d_head": 64, "torch": "2.6.0", **FLEX}),
    ("flex-power-of-two", "note", {"d_head": 72, **FLEX}, {"d_head": 128, **FLEX}),
    ("flex-power-of-two", "warning", {"d_head": 72, "torch": "2.7.1", **FLEX}, {"d_head": 64, "torch": "2.7.1", **FLEX}),
    ("vllm-head-size", "note", {"d_head": 80, "stack": "vllm"}, {"d_head": 80, "stack": "hf"}),
    ("vllm-head-size", "warning", {"d_head": 90, "stack": "vllm"}, {"d_head": 96, "stack": "vllm"}),
    ("vllm-head-size", "note", {"d_head": 224, "stack": "vllm"}, {**MLA, "stack": "vllm"}),
    ("causal-top-left", "warning", {"d_head": 64, "seq_q": 1, "seq_k": 9, "is_causal": True}, {"d_head": 64, "seq_q": 1, "seq_k": 9}),
    ("causal-top-left", "warning", {"d_head": 64, "seq_q": 5, "seq_k": 9, "is_causal": True}, {"d_head": 64, "seq_q": 9, "seq_k": 9, "is_causal": True}),
    ("causal-top-left", "warning", {"d_head": 64, "seq_q": 9, "seq_k": 5, "is_causal": True}, {"d_head": 64, "seq_k": 5, "is_causal": True}),
    ("causal-bottom-right", "note", {"d_head": 64, "seq_q": 1, "seq_k": 9, "is_causal": True, **FA2}, {"d_head": 64, "seq_q": 1, "seq_k": 9, "is_causal": True}),
    ("dropout-always", "warning", {**A100, "dropout": 0.1, "training": False}, {**A100, "dropout": 0.1, "training": True}),
    ("dropout-always", "note", {**A100, "dropout": 0.1}, {"d_head": 64, "dropout": 0.1}),
    ("dtype-cache-only", "note", {**A100, "dtype": "fp8"}, {"d_head": 64, "dtype": "fp8"}),
    ("bf16-on-turing", "note", {"d_head": 64, "device": "t4"}, {"d_head": 64, "device": "t4", "dtype": "fp16"}),
    ("gqa-flag", "warning", {**A100, **GQA, "enable_gqa": False}, {**A100, **GQA}),
    ("gqa-flag", "warning", {**A100, **GQA, "torch": "2.4.0"}, {**A100, **GQA, "torch": "2.5.1"}),
    ("call-raises", "error", {**A100, "torch": "1.13"}, {**A100, "torch": "2.0.1"}),
    ("call-raises", "error", {**A100, "torch": "1.13"}, {**A100, "torch": "1.13", "attn_implementation": "eager"}),
    ("call-raises", "error", {**A100, "torch": "2.0.1", "scale": 0.125}, {**A100, "torch": "2.1.0", "scale": 0.125}),
    ("call-raises", "error", {**A100, **GQA, "enable_gqa": True, "torch": "2.4.0"}, {**A100, **GQA, "enable_gqa": True, "torch": "2.5.0"}),
    ("call-raises", "error", {"d_head": 64, "torch": "2.4.1", **FLEX}, {"d_head": 64, "torch": "2.5.0", **FLEX}),
    ("call-raises", "error", {"d_head": 64, "device": "mps", "dtype": "fp64"}, {"d_head": 64, "device": "cpu", "dtype": "fp64"}),
    ("call-raises", "error", {"d_head": 64, "device": "mps", "dtype": "fp64", **FLEX}, {"d_head": 64, "device": "mps", "dtype": "fp32", **FLEX}),
    ("nearest-platform", "warning", {**A100, "torch": "2.7.1"}, {**A100, "torch": "2.9.1"}),
    ("nearest-platform", "warning", {**A100, "torch": "2.16.0"}, {**A100, "torch": "2.15.1"}),
    ("flash-attention-1", "warning", {"d_head": 256, "device": "a100", "torch": "2.1.0"}, {"d_head": 256, "device": "a100", "torch": "2.2.0"}),
    ("flash-attention-1", "warning", {"d_head": 136, "device": "a100", "torch": "2.0"}, {"d_head": 128, "device": "a100", "torch": "2.0"}),
    ("flash-attention-1", "warning", {"d_head": 128, "device": "rtx3090", "training": True, "torch": "2.1.0"}, {"d_head": 128, "device": "rtx3090", "torch": "2.1.0"}),
    ("flex-refuses", "error", {"d_head": 8, "device": "a100", **FLEX}, {"d_head": 16, "device": "a100", **FLEX}),
    ("flex-refuses", "error", {"d_head": 64, "d_head_v": 8, "device": "a100", **FLEX}, {"d_head": 8, "device": "cpu", **FLEX}),
    ("flex-refuses", "warning", {"d_head": 8, **FLEX}, {"d_head": 8, "pad_d_head_to": 16, **FLEX}),
    ("flex-refuses", "error", {"d_head": 64, "device": "cpu", "training": True, **FLEX}, {"d_head": 64, "device": "a100", "training": True, **FLEX}),
    ("flex-refuses", "error", {"d_head": 64, "unbatched": True, **FLEX}, {"d_head": 64, "unbatched": False, **FLEX}),
    ("flex-arguments", "warning", {"d_head": 64, "mask": "bool", **FLEX}, {"d_head": 64, "is_causal": True, **FLEX}),
    ("flex-arguments", "warning", {"d_head": 64, "dropout": 0.1, **FLEX}, {"d_head": 64, "dropout": 0.0, **FLEX}),
    ("flex-power-of-two", "error", {"d_head": 64, "d_head_v": 72, "torch": "2.6.0", **FLEX}, {"d_head": 64, "d_head_v": 32, "torch": "2.6.0", **FLEX}),
    ("flex-power-of-two", "note", {"d_head": 72, "device": "a100", **FLEX}, {"d_head": 72, "device": "cpu", **FLEX}),
    ("dropout-always", "note", {"d_head": 64, "dropout": 0.1, **FA2}, {"d_head": 64, "dropout": 0.1, **FLEX}),
    ("gqa-flag", "warning", {**A100, **GQA, "enable_gqa": False}, {**A100, "n_heads": 32, "n_kv_heads": 1, "enable_gqa": False}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "severity", "said", "silent"), BOTH_WAYS, ids=[f"{n}-{i}" for i, (n, *_) in enumerate(BOTH_WAYS)]
)
def test_both_ways(name, severity, said, silent):
    assert name in ids(said, severity)
    assert not any(found.id == name and found.severity == severity for found in diagnose(silent).findings)


def test_every_id_of_the_rules_is_tested():
    """Every id that stands in the rules' source is in the list above, so that a new rule brings its test."""
    source = "".join(
        (BOOK / "splitheads" / "doctor" / name).read_text("utf8")
        for name in ("facts.py", "rules.py", "kernels.py", "loading.py")
    )
    written = set(re.findall(r'Finding\(\s*"([a-z0-9-]+)"', source)) | set(
        re.findall(r'_scale_finding\(\s*"([a-z-]+)"', source)
    )
    written |= {"does-not-divide", "too-narrow", "tp-heads", "tp-kv-heads"}
    assert len(written) >= 50
    assert written == {name for name, *_ in BOTH_WAYS}


# What every report keeps to.

EVERYTHING = [said for _, _, said, _ in BOTH_WAYS] + [silent for *_, silent in BOTH_WAYS]
MISSING = {"incomplete", "mla-widths-missing"}
"""These name what is not there; there is no number to print."""
READING = {"alias", "clamped", "inferred", "overrides-model", "overrides-config"}
"""Notes of the reading, which tell what was done and rest on no source."""


@pytest.mark.parametrize("config", EVERYTHING, ids=range(len(EVERYTHING)))
def test_every_finding_is_complete(config):
    report = diagnose(config)
    assert report.verdict in VERDICTS
    order = [SEVERITIES.index(found.severity) for found in report.findings]
    assert order == sorted(order)
    worst = min(order, default=2)
    assert report.verdict == {0: "reject", 1: "warn", 2: "ok"}[worst]
    for found in report.findings:
        assert found.message.endswith("."), found.message
        assert ".." not in found.message, found.message
        assert "None" not in found.message + " ".join(found.suggestions), found.message
        assert found.id in MISSING or re.search(r"\d", found.message), found.message
        assert found.chapter in CHAPTERS, found
        assert found.source or found.id in READING, found
        assert all(way.endswith(".") and way[0] != " " for way in found.suggestions), found.suggestions
        if found.severity == "error":
            assert found.suggestions, found
    assert list(report.to_dict()) == ["verdict", "derived", "findings", "factors", "config"]


@pytest.mark.parametrize("config", EVERYTHING, ids=range(len(EVERYTHING)))
def test_no_finding_is_said_twice(config):
    said = [(found.id, found.message) for found in diagnose(config).findings]
    assert len(said) == len(set(said))


def test_a_message_prints_the_numbers_at_fault():
    for config in EVERYTHING:
        for found in diagnose(config).findings:
            if found.severity == "error" and found.id not in (
                "mask-and-causal",
                "range",
                "fa2-refuses",
                "call-raises",
                "flex-refuses",
            ):
                numbers = {
                    str(value) for value in config.values() if isinstance(value, int) and not isinstance(value, bool)
                }
                shown = set(re.findall(r"-?\d+", found.message))
                assert not numbers or numbers & shown or "model" in config, (config, found.message)


def test_rules_are_short_and_named():
    names = [rule.__name__ for rule in (*RULES, *KERNEL_RULES)]
    assert len(set(names)) == len(names)
    assert all(
        name.startswith("rule_") and rule.__doc__ for name, rule in zip(names, (*RULES, *KERNEL_RULES), strict=True)
    )


# Published models.

ROWS = models.rows()


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_a_published_model_is_sound(row):
    """No error and no warning for the model alone; the breakers of the rule are told to be that."""
    report = diagnose({"model": row.name})
    assert report.verdict == "ok", [found.message for found in report.findings]
    assert len(report.findings) <= 3
    assert (report.derived["d_head"], report.derived["n_heads"], report.derived["n_kv_heads"]) == (
        row.d_head,
        row.n_heads,
        row.n_kv_heads,
    )
    assert report.derived["inner_width"] == row.n_heads * row.d_head
    assert report.derived["o_proj"] == [row.d_model, row.n_heads * (row.d_head_v or row.d_head)]
    named = ids({"model": row.name})
    if row.attention == "mla":
        assert "mla-cache" in named
    assert ("breaks-rule" in named) == (not row.follows_rule)
    if "breaks-rule" in named:
        assert models.why_broken(row) in finding({"model": row.name}, "breaks-rule").message


WARNED = {
    # A bucket of 64 for 40 columns; one shared key/value head of 512 columns, which no fused kernel took before 2.14.
    "a100": {"Stable Diffusion 1.x UNet (320-channel level)", "DeepSeek-V4-Flash"},
    "h100": {"DeepSeek-V4-Flash"},
    "rtx4090": {"Stable Diffusion 1.x UNet (320-channel level)", "DeepSeek-V4-Flash"},
    # The fused CPU kernel wants values as wide as keys.
    "cpu": {"DeepSeek-V2", "DeepSeek-V3", "Kimi K2", "MiniCPM3-4B"},
}


@pytest.mark.parametrize("device", WARNED)
@pytest.mark.parametrize("training", [False, True])
def test_warnings_for_published_models_are_few_and_known(device, training):
    warned = set()
    for row in ROWS:
        report = diagnose({"model": row.name, "device": device, "training": training})
        assert report.verdict != "reject", row.name
        assert len(report.findings) <= 6, row.name
        if report.verdict == "warn":
            warned.add(row.name)
    assert warned == WARNED[device]


def test_turing_is_answered_in_fp16_where_no_dtype_is_given():
    report = diagnose({"model": "BERT-Base", "device": "t4"})
    assert (report.verdict, report.derived["backend"], report.config["dtype"]) == ("ok", "EFFICIENT", "fp16")
    assert diagnose({"model": "BERT-Base", "device": "t4", "dtype": "bf16"}).verdict == "warn"


# Numbers.


def test_clean_configurations_say_little():
    assert ids({"model": "BERT-Base"}) == ["no-cache"]
    assert ids({"d_model": 768, "n_heads": 12, "device": "a100"}) == []
    assert ids({"model": "Llama 3 8B", "device": "a100"}) == []


def test_suggested_head_counts_divide_and_usual_widths_come_first():
    for width, heads in (
        (1024, 12),
        (768, 5),
        (4096, 24),
        (512, 220),
        (1600, 48),
        (1000, 16),
        (7, 2),
        (2**24 - 3, 100),
    ):
        first = finding({"d_model": width, "n_heads": heads}, "does-not-divide").suggestions[0]
        pairs = [(int(n), int(d)) for n, d in re.findall(r"(\d+) \(d_head (\d+)\)", first)]
        assert pairs
        assert all(n * d == width for n, d in pairs)
        usual = [d for _, d in pairs if d in (64, 128)]
        assert not any(width % d == 0 for d in (64, 128)) or pairs[0][1] in usual


def test_kernel_facts_are_those_of_the_backends_module():
    for d in (40, 64, 80, 100, 132, 160, 224, 256):
        for torch in ("2.8.0", "2.15.0"):
            report = diagnose({"d_head": d, "device": "a100", "torch": torch})
            choice = backends.choose(backends.SdpaCall(d, torch=torch, device="sm80"))
            derived = report.derived
            assert (derived["backend"], derived["d_kernel"], derived["bucket"]) == (
                choice.backend,
                choice.d_kernel,
                choice.bucket,
            )
            assert derived["useful_share"] == pytest.approx(d / choice.bucket)


def test_the_library_buckets_are_those_of_the_newest_torch():
    assert backends.flash_buckets(backends.TORCH_VERSIONS[-1]) == FA2_BUCKETS
    assert set(FA2_BUCKETS) <= set(VLLM_WIDTHS)
    assert all(power_of_two(d) == 2 ** math.ceil(math.log2(d)) for d in range(1, 600))


def test_ways_out_of_math_do_lead_out():
    """Every change that is suggested is asked again, here through the public call."""
    config = {"d_head": 100, "mask": "bool", "device": "a100"}
    ways = finding(config, "math-fallback").suggestions
    assert any("d_head = 104" in way and "EFFICIENT" in way for way in ways)
    assert diagnose({**config, "d_head": 104}).derived["backend"] == "EFFICIENT"
    both = finding({"d_head": 65, "dtype": "bf16", "device": "t4"}, "math-fallback").suggestions
    assert any("fp16" in way and "72" in way for way in both)
    assert diagnose({"d_head": 72, "dtype": "fp16", "device": "t4"}).derived["backend"] == "EFFICIENT"


def test_gqa_is_asked_about_as_gqa_unless_told_otherwise():
    assert "enable_gqa = True is assumed" in finding({**A100, **GQA, "mask": "bool"}, "version-dependent").message
    assert diagnose({**A100, **GQA, "mask": "bool", "torch": "2.13.0"}).derived["backend"] == "MATH"
    assert (
        diagnose({**A100, **GQA, "mask": "bool", "torch": "2.13.0", "enable_gqa": False}).derived["backend"]
        == "EFFICIENT"
    )


@pytest.mark.parametrize(
    ("heads", "kv_heads", "prune", "left"),
    [
        (12, 12, 4, (8, 8)),
        (12, 12, [0, 0, 5], (10, 10)),
        (12, 12, 12, (None, None)),
        (12, 12, [], (None, None)),
        (32, 8, 8, (24, 8)),
        (32, 8, 4, (28, 7)),
        (32, 8, 3, (None, None)),
        (32, 8, [0, 1, 2, 3], (28, 7)),
        (32, 8, [0, 4, 8, 12, 16, 20, 24, 28], (24, 8)),
        (32, 8, [0, 4], (None, None)),
        (8, 1, 3, (5, 1)),
        (8, 3, 1, (None, None)),
        (None, 8, 1, (None, None)),
    ],
)
def test_pruning_keeps_groups_equal(heads, kv_heads, prune, left):
    assert pruned(heads, kv_heads, prune) == left


def test_kv_bytes_per_rank_stop_shrinking_at_the_key_value_heads():
    rank = [diagnose({**LLAMA, "tp": tp}).derived["kv_bytes_per_token_per_rank"] for tp in (1, 2, 4, 8, 16, 32)]
    assert rank == [131072, 65536, 32768, 16384, 16384, 16384]
    latent = [diagnose({**MLA, "n_layers": 61, "tp": tp}).derived["kv_bytes_per_token_per_rank"] for tp in (1, 8, 128)]
    assert latent == [70272, 70272, 70272]


def test_what_can_be_derived_is_derived():
    assert diagnose({"n_heads": 28, "n_kv_heads": 4}).derived == {
        "n_heads": 28,
        "n_kv_heads": 4,
        "tp_sizes": [1, 2, 4, 28],
    }
    assert diagnose({"d_head": 512, "device": "a100"}).derived["backend"] == "EFFICIENT"
    assert "kv_bytes_per_token" not in diagnose({"d_model": 768, "n_heads": 12}).derived
    assert diagnose({"dtype": "bf16"}).derived == {}
    full = diagnose({**LLAMA, "seq_k": 8192, "batch": 2}).derived
    assert full["kv_bytes_total"] == 2 * 2**30
    assert full["score_bytes"] == 2 * 32 * 8192**2 * 2
    assert full["core_flops"] == 2 * 4 * 8192**2 * 4096
    assert full["projection_flops"] == 2 * 8192 * 2 * 41_943_040


def test_intensity_is_told_where_the_card_has_published_peaks():
    report = diagnose({**LLAMA, "device": "a100", "seq_q": 4096}).to_dict()
    assert report["derived"]["decode_intensity"] == 4  # four query heads read each key/value head, two bytes a number
    assert report["derived"]["prefill_intensity"] > 153
    texts = {factor["name"]: factor["text"] for factor in report["factors"]}
    assert "ridge 153 (312 TFLOP/s / 2039 GB/s): memory-bound" in texts["arithmetic intensity, decoding"]
    assert [text for text in texts.values() if "compute-bound" in text] != []
    for device in ("sm80", "cpu"):  # an architecture is not a card
        assert "decode_intensity" not in diagnose({**LLAMA, "device": device}).derived


def test_broken_splits_derive_no_shapes():
    for config in ({"d_model": 768, "n_heads": 5}, {"n_heads": 8, "n_kv_heads": 3, "d_model": 64}):
        assert not {"q_proj", "attention_params_per_layer"} & set(diagnose(config).derived)


@pytest.mark.parametrize(
    "value", [None, 3, 1.5, "x", [], [1], {"no_such_key": 1}, {"d_model": "12"}, {"d_model": True}, {"d_model": [1]}]
)
def test_the_plain_form_never_raises(value):
    answer = diagnose_plain(value)
    assert list(answer) == ["error"]
    assert "\n" not in answer["error"]


@pytest.mark.parametrize("value", [10**30, -(10**30), 0, -1])
@pytest.mark.parametrize(
    "key",
    ["d_model", "n_heads", "n_kv_heads", "d_head", "d_head_v", "n_layers", "kv_latent", "q_latent", "rope_dim", "seq_q", "seq_k", "batch", "tp",
     "checkpoint_n_heads", "checkpoint_n_kv_heads", "checkpoint_d_model", "checkpoint_d_head", "pad_d_head_to"],
)  # fmt: skip
def test_a_number_out_of_range_is_rejected_by_name(key, value):
    report = diagnose({**LLAMA, "d_head": 128, "device": "a100", key: value})
    assert report.verdict == "reject"
    assert any(found.id == "range" and key in found.message for found in report.findings)
    assert all(len(found.message) < 600 for found in report.findings)


@pytest.mark.parametrize(
    "config",
    [
        {"model": "Gemma 4 31B"},
        {"model": "T5-base"},
        {"model_type": "gpt_neo", "hidden_size": 768, "num_heads": 12, "num_layers": 12},
    ],
)
def test_models_that_do_not_scale_their_scores_are_told(config):
    report = diagnose(config)
    assert "own-scale" in ids(config)
    assert report.derived.get("scale", 1.0) == 1.0


# Checkpoints of latent attention, scales of their own, padding.


@pytest.mark.parametrize(
    ("changes", "shapes"),
    [
        ({"n_heads": 64}, "o_proj [7168, 16384] against [7168, 8192]"),
        ({"d_model": 4096}, "q_a_proj [1536, 7168] against [1536, 4096]"),
        ({"kv_latent": 256}, "kv_b_proj [32768, 512] against [32768, 256]"),
        ({"d_head": 128}, "q_b_proj [24576, 1536] against [16384, 1536]"),
        ({"rope_dim": 32}, "kv_a_proj_with_mqa [576, 7168] against [544, 7168]"),
        ({"d_head_v": 64}, "o_proj [7168, 16384] against [7168, 8192]"),
        ({"q_latent": 768}, "q_a_proj [1536, 7168] against [768, 7168]"),
    ],
)
def test_latent_attention_with_another_width_does_not_load(changes, shapes):
    config = {"model": "DeepSeek-V3", **changes}
    found = finding(config, "will-not-load")
    assert shapes in found.message
    own = {
        "n_heads": 128,
        "d_model": 7168,
        "kv_latent": 512,
        "d_head": 192,
        "rope_dim": 64,
        "d_head_v": 128,
        "q_latent": 1536,
    }
    for key in changes:
        assert any(f"{key} = {own[key]}, as trained" in way for way in found.suggestions)


def test_the_shapes_of_latent_attention_are_those_of_transformers():
    torch = pytest.importorskip("torch")
    modeling = pytest.importorskip("transformers.models.deepseek_v3.modeling_deepseek_v3")
    from splitheads.doctor.loading import mla_shapes
    from transformers import DeepseekV3Config

    for q_latent in (24, None):
        config = DeepseekV3Config(
            hidden_size=64, num_attention_heads=4, num_key_value_heads=4, q_lora_rank=q_latent, kv_lora_rank=16, qk_rope_head_dim=8,
            qk_nope_head_dim=12, v_head_dim=10,
        )  # fmt: skip
        with torch.device("meta"):
            module = modeling.DeepseekV3Attention(config, 0)
        there = {
            name.removesuffix(".weight"): list(weight.shape)
            for name, weight in module.named_parameters()
            if "norm" not in name
        }
        assert mla_shapes(64, 4, 20, 10, 16, q_latent, 8) == there


@pytest.mark.parametrize(
    ("model", "scale"),
    [("DeepSeek-V3", 0.13523), ("DeepSeek-V2", 0.11472), ("Kimi K2", 0.13086), ("T5-3B", 1.0), ("Gemma 2 27B", 1 / 12), ("GLM-5", 1 / 16)],
)  # fmt: skip
def test_the_scale_of_a_model_is_the_one_it_was_trained_with(model, scale):
    assert diagnose({"model": model}).derived["scale"] == pytest.approx(scale, rel=1e-4)
    assert diagnose({"model": model, "scale": scale}).verdict == "ok"
    assert diagnose({"model": model, "scale": 1.5 * scale}).verdict == "warn"


def test_a_default_scale_is_wrong_where_the_model_has_another():
    assert (
        "Gemma 2 27B was trained with 0.0833"
        in finding({"model": "Gemma 2 27B", "scale": 128**-0.5}, "scale-too-sharp").message
    )
    found = finding({"model": "T5-3B", "scale": 0.0883883}, "scale-too-flat")
    assert "11.3 times too small" in found.message
    assert found.suggestions[0].startswith("Use 1, as trained")


def test_pruned_latent_attention_has_no_k_proj():
    message = finding({"model": "DeepSeek-V3", "prune_heads": 64}, "pruned").message
    assert "q_b_proj [12288, 1536]" in message
    assert "kv_b_proj [16384, 512]" in message
    assert "k_proj" not in message.replace("kv_", "")
    assert "no longer d_head" not in message
    assert (
        "no longer d_head"
        not in finding({"d_model": 2560, "n_heads": 32, "d_head": 128, "prune_heads": 8}, "pruned").message
    )


def test_the_scale_under_padding_is_the_one_that_runs():
    assert diagnose({"d_head": 80, "pad_d_head_to": 96}).derived["scale"] == 1 / math.sqrt(96)
    assert diagnose({"d_head": 80, "pad_d_head_to": 96, "scale": 0.1118}).derived["scale"] == 0.1118
    assert diagnose({"model": "T5-3B", "pad_d_head_to": 192}).derived["scale"] == 1.0
    assert "for 96" in finding({"d_head": 80, "pad_d_head_to": 96}, "padding-buys-nothing").message


def test_latent_attention_without_d_head_says_what_is_missing():
    config = {"attention": "mla", "d_model": 7168, "n_heads": 128, "kv_latent": 512, "rope_dim": 64}
    assert "192 = 128 + 64" in finding(config, "incomplete").suggestions[0]
    assert "incomplete" not in ids({"attention": "mla", "kv_latent": 512, "rope_dim": 64, "n_layers": 61})


# What is suggested works.

SETTABLE = {
    "d_head", "d_head_v", "pad_d_head_to", "dtype", "mask", "unbatched", "enable_gqa", "dropout", "attn_implementation", "torch",
    "is_causal", "device",
}  # fmt: skip
WAY = re.compile(r"\b([a-z_]+) = ([A-Za-z0-9_]+(?:\.\d+)*)(?: or ([a-z0-9]+)\b(?! =))?")
VALUES = {"False": False, "True": True, "none": None}


def applied(config: dict, way: str) -> list[dict]:
    """The configuration with what a suggestion says done to it: one for each "or" that it has; none for mere advice."""
    done = []
    for alternative in way.split(" or d_head = ") if " and d_head_v" in way else [way]:
        one: dict = {}
        told = re.match(r"In torch ([\d.]+): ", way)
        if told:
            one["torch"] = told[1]
        if "k and v repeated" in way and "place of" in way and "n_heads" in config:
            one.update(n_kv_heads=config["n_heads"], enable_gqa=None)
        second: dict = {}
        text = (
            alternative
            if alternative.startswith(("d_head", "In", "pad")) or alternative == way
            else f"d_head = {alternative}"
        )
        for key, value, other in WAY.findall(text):
            if key in SETTABLE:
                one[key] = VALUES.get(value, value) if not value.isdigit() else int(value)
                if other.isdigit() or (key == "dtype" and other):
                    second[key] = int(other) if other.isdigit() else other
        done += [{**config, **one}, *([{**config, **one, **second}] if second else [])] if one else []
    return done


def random_call(rng: random.Random) -> dict:
    """A kernel configuration of the odd kind: each key with its own chance."""
    config: dict = {
        "d_head": rng.choice([8, 31, 40, 64, 65, 72, 80, 96, 100, 128, 160, 192, 200, 224, 256, 257, 300, 512])
    }
    config["device"] = rng.choice(["a100", "rtx4090", "rtx3090", "h100", "b200", "rtx5090", "t4", "cpu", "mps"])

    def sometimes(chance: float, **values) -> None:
        if rng.random() < chance:
            config.update({key: rng.choice(choices) for key, choices in values.items()})

    sometimes(0.3, d_head_v=[16, 32, 64, 100, 128, config["d_head"]])
    sometimes(0.4, n_heads=[8, 32], n_kv_heads=[1, 2, 8])
    sometimes(0.6, dtype=["fp16", "bf16", "fp32", "fp64", "fp8"])
    sometimes(0.3, mask=["bool", "float"])
    sometimes(0.2, is_causal=[True])
    sometimes(0.3, dropout=[0.1, 0.125])
    sometimes(0.4, training=[True, False])
    sometimes(0.2, unbatched=[True])
    sometimes(0.2, enable_gqa=[True, False])
    sometimes(0.2, pad_d_head_to=[config["d_head"] + 5, config["d_head"] + 24])
    sometimes(0.2, seq_q=[1, 512], seq_k=[512, 4096])
    sometimes(
        0.5,
        torch=[
            "2.0.1",
            "2.1.0",
            "2.4.1",
            "2.6.0",
            "2.7.1",
            "2.8.0",
            "2.9.1",
            "2.11.0",
            "2.13.0",
            "2.14.1",
            "2.15.0",
            "2.16.0",
        ],
    )
    sometimes(0.4, attn_implementation=["sdpa", "flash_attention_2", "flex_attention"])
    return config


def test_what_is_suggested_works():
    """Every concrete way out is taken: its finding is gone or milder, no error comes, and the kernel is the one it names."""
    rng, tried = random.Random(10), 0
    kernel = {
        "math-fallback", "version-dependent", "bucket-waste", "call-raises", "flex-refuses", "flex-arguments", "flex-power-of-two",
        "fa2-refuses", "fa2-value-width", "flash-attention-1", "nearest-platform", "bf16-on-turing", "gqa-flag",
    }  # fmt: skip
    for _ in range(1500):
        config = random_call(rng)
        report = diagnose(config)
        errors = [found for found in report.findings if found.severity == "error"]
        for found in report.findings:
            if found.id == "math-fallback":
                assert found.suggestions, (config, found.message)
            for way in found.suggestions if found.id in kernel else ():
                assert f"torch {config.get('torch')}: torch = {config.get('torch')}" not in way
                for changed in applied(config, way):
                    after, tried = diagnose(changed), tried + 1
                    same = [other for other in after.findings if other.id == found.id]
                    worst = min([SEVERITIES.index(other.severity) for other in same], default=3)
                    told = (config, found.id, found.message, way, changed, [other.message for other in same])
                    better = worst > SEVERITIES.index(found.severity) or found.message not in [
                        other.message for other in same
                    ]
                    assert better, told
                    assert len([other for other in after.findings if other.severity == "error"]) <= len(errors), told
                    pick = re.search(r": (FLASH|EFFICIENT|CUDNN)\.$", way)
                    if pick and found.id in ("math-fallback", "version-dependent"):
                        assert after.derived.get("backend") == pick[1], told
                    if found.id == "bucket-waste":
                        assert after.derived.get("useful_share", 2) > report.derived["useful_share"], told
    assert tried > 2000


def test_the_way_to_take_a_suggestion():
    assert applied({"d_head": 65}, "d_head = 68 (or pad to it with scale = 1/√65): EFFICIENT.") == [{"d_head": 68}]
    assert applied({"d_head": 80}, "d_head = 64 or 96 fills its kernel.") == [{"d_head": 64}, {"d_head": 96}]
    assert applied({"d_head": 31}, "d_head = 32 and d_head_v = 104: EFFICIENT.") == [{"d_head": 32, "d_head_v": 104}]
    assert applied({}, "In torch 2.8.0: mask = none (is_causal where it is causal): FLASH.") == [
        {"torch": "2.8.0", "mask": None}
    ]
    assert applied({}, "Look up what your own version takes.") == []


def test_suggestions_name_every_width_that_they_change():
    ways = finding(
        {
            "n_heads": 128,
            "d_head": 31,
            "d_head_v": 100,
            "device": "rtx4090",
            "torch": "2.14.1",
            "training": True,
            "dropout": 0.1,
        },
        "math-fallback",
    ).suggestions
    assert "d_head = 32 and d_head_v = 104: EFFICIENT." in ways
    narrow = finding({"d_head": 65, "dtype": "fp32", "device": "a100"}, "math-fallback").suggestions
    assert any(way.startswith("d_head = 68 ") for way in narrow)
    for widths in ((64, 132), (132, 64)):
        on_cpu = finding({"d_head": widths[0], "d_head_v": widths[1], "device": "cpu"}, "math-fallback").suggestions
        assert on_cpu
        assert "FLASH" in on_cpu[0]


def test_another_torch_is_no_way_out_in_a_torch():
    ways = finding({"model": "Llama 3 8B", "device": "t4"}, "version-dependent").suggestions
    assert not any("In torch" in way and "torch =" in way for way in ways)
    assert any("In torch 2.8.0: k and v repeated 4 times" in way for way in ways)


def test_old_versions_are_not_green():
    for torch in ("1.13", "2.0.1", "2.1.0", "2.4.0", "2.7.1", "2.16.0", "3.0"):
        assert diagnose({**A100, "torch": torch}).verdict != "ok", torch
    assert "backend" not in diagnose({"d_head": 256, "device": "a100", "torch": "2.1.0"}).derived
    assert diagnose({"d_head": 224, "device": "a100", "torch": "2.6.0"}).derived["bucket"] == 224
    for torch in ("2.8.1", "2.9.1", "2.12.0", "2.15.1"):
        assert diagnose({**A100, "torch": torch}).verdict == "ok", torch


def test_real_lengths_are_printed():
    long = {"d_head": 64, "n_heads": 8, "dtype": "fp64", "device": "a100", "seq_q": 2**31}
    assert "2 147 483 648 × 2 147 483 648 scores" in finding(long, "math-fallback").message
    uneven = {"d_head": 64, "device": "a100", "is_causal": True, "seq_q": 2**31, "seq_k": 2**24 - 1}
    assert "2147483648 queries and 16777215 keys" in finding(uneven, "not-flash").message
    for config in (
        long,
        uneven,
        {**long, "batch": 2**31},
        {**uneven, "seq_k": 2**30},
        {**A100, "device": "h100", "batch": 2**30},
    ):
        told = " ".join(found.message for found in diagnose(config).findings)
        assert "16777216" not in told.replace(" ", "")
    assert "1 sequence:" in finding({**A100, "unbatched": True, "torch": "2.13.0"}, "math-fallback").message


def test_the_way_to_attend_is_named():
    assert (
        "FlashAttention-2 does not compute in it"
        in finding({"d_head": 64, "dtype": "fp8", **FA2}, "dtype-cache-only").message
    )
    assert "SDPA does not compute in it" in finding({**A100, "dtype": "fp8"}, "dtype-cache-only").message
    cached = {"d_head": 64, "device": "t4", "dtype": "fp8"}  # computed in fp16 there, not in bf16
    assert diagnose(cached).derived["backend"] == "EFFICIENT"


def test_mla_has_its_place_on_the_roofline():
    report = diagnose({"model": "DeepSeek-V3", "device": "h100", "seq_k": 4096})
    assert report.derived["decode_intensity"] == pytest.approx(2 * 128 * (576 + 512) / (576 * 2))
    assert any("decoding (MLA)" in quantity.name for quantity in report.quantities)
    assert "decode_intensity" not in diagnose({**MLA, "rope_dim": None, "device": "h100"}).derived


@pytest.mark.parametrize(
    "name", ["rtx3090", "RTX 3090", "3090", "rtx4090", "4090", "NVIDIA GeForce RTX 4090", "a10", "h100"]
)
def test_a_card_is_found_under_each_of_its_names(name):
    assert "decode_intensity" in diagnose({**LLAMA, "device": name}).derived
