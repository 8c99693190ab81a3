"""Rules about the KV cache: windows that stop it growing, and models that keep none."""

from __future__ import annotations

from typing import Any

from splitheads import cost
from splitheads.doctor.facts import Facts
from splitheads.doctor.families import SOURCE
from splitheads.doctor.kernels import dtype_of
from splitheads.doctor.keys import Config
from splitheads.doctor.report import Finding
from splitheads.words import grouped, plural, size_text

_CACHE = "transformers 5.24.0, cache_utils.py: DynamicCache, DynamicSlidingWindowLayer, EncoderDecoderCache"


def known(c: Config, key: str) -> Any:
    """What a config.json or a named model tells beside the keys; None where nothing does."""
    return None if c.about is None else c.about.get(key)


def per_token_of(c: Config, f: Facts) -> Any:
    """Bytes that one token adds to the cache, every layer counted in full; None where that is not known."""
    if c.n_layers is None:
        return None
    if f.mla:
        if c.kv_latent is None or c.rope_dim is None:
            return None
        return cost.mla_kv_bytes_per_token(c.n_layers, c.kv_latent, c.rope_dim, dtype_of(c))
    if not f.kv_heads or not f.d_head:
        return None
    return cost.kv_bytes_per_token(c.n_layers, f.kv_heads, f.d_head, f.d_head_v, dtype_of(c))


def rule_windows(c: Config, f: Facts) -> list[Finding]:
    """Layers that keep only the last tokens: what is counted in full is an upper bound there."""
    window, windowed = known(c, "window"), known(c, "windowed")
    per_token = per_token_of(c, f)
    if window is None or per_token is None or (f.length_k is not None and f.length_k <= window):
        return []
    own = c.n_layers == known(c, "layers")
    if windowed is None or not own or not 0 < windowed <= c.n_layers:
        message = (
            f"{known(c, 'title')} has a sliding window of {grouped(window)} tokens; in how many of {plural(c.n_layers, 'layer')} is not known "
            "here. The cache is counted in full, which is an upper bound."
        )
        return [Finding("sliding-window", "note", message, (), SOURCE, "doctor")]
    rest = c.n_layers - windowed
    which = f"{windowed} of {plural(c.n_layers, 'layer')}" if rest else f"All {plural(c.n_layers, 'layer')}"
    message = f"{which} keep the last {plural(window, 'token')} only."
    layer = per_token.value // c.n_layers
    if not known(c, "alike"):
        message += " The others have heads of other widths, and are counted here like these."
    elif f.length_k is None:
        more = (
            f"only the other {rest} grow: {grouped(rest * layer)} bytes per token"
            if rest
            else "the cache stops growing"
        )
        message += f" kv_bytes_per_token holds up to there; beyond, {more}."
    else:
        full, tokens = per_token.value * f.length_k * f.batch, rest * f.length_k + windowed * window
        kept = tokens * layer * f.batch
        parts = (
            f"{rest} × {grouped(f.length_k)} + {windowed} × {grouped(window)}"
            if rest
            else f"{windowed} × {grouped(window)}"
        )
        times = f" × {f.batch} sequences" if f.batch > 1 else ""
        message += (
            f" kv_bytes_total counts every layer in full, {size_text(full)}, which is an upper bound. With the windows it is ({parts}) "
            f"× {grouped(layer)} bytes{times} = {grouped(kept)} bytes ({size_text(kept)})."
        )
    return [Finding("sliding-window", "note", message, (), _CACHE, "doctor")]


def rule_no_cache(c: Config, f: Facts) -> list[Finding]:
    """Encoders, which keep no cache, and encoder-decoders, which keep a second one."""
    cache, per_token = known(c, "cache"), per_token_of(c, f)
    if not cache or per_token is None:
        return []
    number, layers = grouped(per_token.value), plural(c.n_layers, "layer")
    if cache == "none":
        message = (
            f"This model keeps no KV cache: encoders and diffusion models have every token at once. kv_bytes_per_token = {number} is what "
            f"K and V of one token take over {layers}, and a forward pass holds those of 1 layer at a time."
        )
        return [Finding("no-cache", "note", message, (), _CACHE, "doctor")]
    message = (
        f"kv_bytes_per_token = {number} counts the self-attention of the decoder's {layers}. Its cross-attention keeps K and V of the "
        f"source beside that: {number} bytes for each token of the source, which do not grow."
    )
    return [Finding("cross-cache", "note", message, (), _CACHE, "doctor")]


CACHE_RULES = (rule_windows, rule_no_cache)
