"""A Hugging Face config.json → the transformer's shape, for the common families."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpudoctor.errors import InputError
from gpudoctor.machine.plan.shapes import Shape

Config = dict[str, Any]


def read_shape(path: Path) -> Shape:
    """Read `config.json` (or the folder that holds it); InputError names what is missing or unknown."""
    path = path / "config.json" if path.is_dir() else path
    try:
        raw = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: not a Hugging Face config ({error}); give config.json or its folder") from None
    config = raw.get("text_config", raw) if isinstance(raw, dict) else {}
    family = str(config.get("model_type", ""))
    if family not in _FAMILIES:
        known = ", ".join(sorted(_FAMILIES))
        raise InputError(f"{path}: no formula for model_type {family!r}; known: {known}; or give a module:factory")
    try:
        return _FAMILIES[family](config)
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise InputError(f"{path}: the config of a {family} model lacks or breaks {error}") from None


def _decoder(c: Config, **more: Any) -> Shape:
    heads = int(c["num_attention_heads"])
    known: Config = {
        "name": c["model_type"], "hidden": int(c["hidden_size"]), "layers": int(c["num_hidden_layers"]), "heads": heads,
        "kv_heads": int(c.get("num_key_value_heads") or heads), "head_dim": int(c.get("head_dim") or 0), "vocab": int(c["vocab_size"]),
        "ffn": int(c["intermediate_size"]), "tied": bool(c.get("tie_word_embeddings", False)),
        "qkv_bias": bool(c.get("attention_bias", False)), "out_bias": bool(c.get("attention_bias", False)), "mlp_bias": bool(c.get("mlp_bias", False)),
    }
    return Shape(**(known | _behaviour(c) | more))


def _behaviour(c: Config) -> Config:
    """What changes activations, not parameters: the activation function, and whether anything is dropped."""
    function = str(c.get("hidden_act") or c.get("activation_function") or c.get("activation") or "gelu")
    rates = [c.get(k) for k in ("hidden_dropout_prob", "dropout", "resid_pdrop", "hidden_dropout")]
    return {"activation": function, "dropout": any(rate for rate in rates)}


def _gpt2(c: Config) -> Shape:
    hidden = int(c["n_embd"])
    return Shape(
        "gpt2", hidden, int(c["n_layer"]), int(c["n_head"]), int(c["vocab_size"]), int(c.get("n_inner") or 4 * hidden), gated=False, norm=2,
        qkv_bias=True, out_bias=True, mlp_bias=True, tied=bool(c.get("tie_word_embeddings", True)), positions=int(c["n_positions"]), **_behaviour(c),
    )


def _neox(c: Config) -> Shape:
    bias = bool(c.get("attention_bias", True))
    return _decoder(c, gated=False, norm=2, qkv_bias=bias, out_bias=bias, mlp_bias=True)


def _opt(c: Config) -> Shape:
    if int(c.get("word_embed_proj_dim") or c["hidden_size"]) != int(c["hidden_size"]):
        raise ValueError("word_embed_proj_dim (a projection of embeddings is not covered)")
    return _decoder(
        c | {"intermediate_size": c["ffn_dim"]}, gated=False, norm=2, qkv_bias=True, out_bias=True, mlp_bias=True,
        tied=bool(c.get("tie_word_embeddings", True)), positions=int(c["max_position_embeddings"]) + 2,
    )


def _bert(c: Config) -> Shape:
    hidden, vocab = int(c["hidden_size"]), int(c["vocab_size"])
    pooler, norm = hidden * hidden + hidden, 2 * hidden
    extra = int(c.get("type_vocab_size", 0)) * hidden + norm
    match _task(c):
        case "ForMaskedLM":
            extra += pooler + norm + vocab
        case "ForSequenceClassification":
            extra += pooler + (hidden + 1) * _labels(c)
        case "ForTokenClassification":
            extra += (hidden + 1) * _labels(c)
        case _:
            extra += pooler
    return _decoder(
        c, gated=False, norm=2, final_norm=False, qkv_bias=True, out_bias=True, mlp_bias=True, tied=True, causal=False,
        positions=int(c["max_position_embeddings"]), extra=extra, head=_task(c) == "ForMaskedLM",
    )


def _distilbert(c: Config) -> Shape:
    hidden, vocab = int(c["dim"]), int(c["vocab_size"])
    extra = 2 * hidden
    if _task(c) == "ForMaskedLM":
        extra += hidden * hidden + hidden + 2 * hidden + vocab
    elif _task(c) == "ForSequenceClassification":
        extra += hidden * hidden + hidden + (hidden + 1) * _labels(c)
    return Shape(
        "distilbert", hidden, int(c["n_layers"]), int(c["n_heads"]), vocab, int(c["hidden_dim"]), gated=False, norm=2, final_norm=False,
        qkv_bias=True, out_bias=True, mlp_bias=True, tied=True, causal=False, positions=int(c["max_position_embeddings"]), extra=extra,
        head=_task(c) == "ForMaskedLM", **_behaviour(c),
    )


def _vit(c: Config) -> Shape:
    hidden, patch = int(c["hidden_size"]), int(c["patch_size"])
    places = (int(c["image_size"]) // patch) ** 2 + 1
    head = (hidden + 1) * _labels(c) if _task(c) == "ForImageClassification" else hidden * hidden + hidden
    extra = int(c.get("num_channels", 3)) * patch * patch * hidden + hidden + hidden + head
    bias = bool(c.get("qkv_bias", True))
    return _decoder(
        c | {"vocab_size": 0}, gated=False, norm=2, qkv_bias=bias, out_bias=True, mlp_bias=True, tied=True, causal=False,
        positions=places, extra=extra, head=False,
    )


def _task(c: Config) -> str:
    """`BertForMaskedLM` → `ForMaskedLM`; empty for the bare model."""
    name = str((c.get("architectures") or [""])[0])
    return name[name.index("For") :] if "For" in name else ""


def _labels(c: Config) -> int:
    return int(c.get("num_labels") or len(c.get("id2label") or {}) or 2)


_FAMILIES: dict[str, Callable[[Config], Shape]] = {
    "llama": _decoder,
    "mistral": _decoder,
    "phi3": lambda c: _decoder(c, qkv_bias=False, out_bias=False),
    "qwen2": lambda c: _decoder(c, qkv_bias=True, out_bias=False),
    "qwen3": lambda c: _decoder(c, qk_norm=True, head_dim=int(c.get("head_dim", 128))),
    "gemma": lambda c: _decoder(c, tied=bool(c.get("tie_word_embeddings", True)), head_dim=int(c.get("head_dim", 256))),
    "gemma2": lambda c: _decoder(c, tied=bool(c.get("tie_word_embeddings", True)), head_dim=int(c.get("head_dim", 256)), norms_per_layer=4),
    "mixtral": lambda c: _decoder(c, experts=int(c["num_local_experts"]), experts_used=int(c["num_experts_per_tok"])),
    "gpt2": _gpt2,
    "gpt_neox": _neox,
    "opt": _opt,
    "bert": _bert,
    "roberta": _bert,
    "distilbert": _distilbert,
    "vit": _vit,
}
