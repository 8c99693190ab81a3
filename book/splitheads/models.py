"""Published models: how 120 of them split d_model into heads, from book/data/models.csv, each row with its source.

The rows are well-known models, chosen by hand: read a share of them as "of this list". For multi-head latent
attention d_head is the width of queries and keys (content and rotary part together) and n_kv_heads counts heads after
the projection up from the latent. A UNet has a row per level, and no n_layers.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass, fields
from functools import cache
from os.path import abspath, dirname, join
from typing import Any

from .partition import _show
from .words import listing, nearest, plain

DATA = join(dirname(dirname(abspath(__file__))), "data", "models.csv")


@dataclass(frozen=True)
class Model:
    """A row of the table. Widths in columns; None where the source does not say, or it does not apply."""

    name: str
    family: str
    year: int
    month: int | None
    params_b: float | None
    """Parameters in billions, as announced."""
    n_layers: int | None
    d_model: int
    n_heads: int
    n_kv_heads: int
    d_head: int
    d_head_v: int | None
    """Width of a value head where it is not d_head."""
    attention: str
    """"mha", "gqa", "mqa" or "mla"."""
    follows_rule: bool
    """Whether n_heads * d_head == d_model."""
    source: str
    source_kind: str
    """"config-file", "transformers-default", "paper-table" or "docs"."""
    verified: bool
    note: str


class UnknownModel(LookupError):
    """No model of the table has this name. `suggestions` are names that may have been meant, closest first."""

    def __init__(self, message: str, suggestions: tuple = ()) -> None:
        super().__init__(message)
        self.suggestions = suggestions


@cache
def rows() -> tuple[Model, ...]:
    """All models, oldest first."""
    return tuple(Model(*row) for row in _read())


HUB = {
    "gpt2": "GPT-2 small (124M)",
    "openaigpt": "GPT-1",
    "distilbertbase": "DistilBERT-base",
    "electrasmalldiscriminator": "ELECTRA-Small",
    "vitbasepatch16224": "ViT-B/16",
    "vitbasepatch16224in21k": "ViT-B/16",
    "vitlargepatch16224": "ViT-L/16",
    "vithugepatch14224in21k": "ViT-H/14",
    "bloom": "BLOOM-176B",
    "starcoder": "StarCoder (15.5B)",
    "dbrxbase": "DBRX",
    "mistralnemobase2407": "Mistral NeMo 12B",
    "mistralnemoinstruct2407": "Mistral NeMo 12B",
    "llama4scout17b16e": "Llama 4 Scout",
    "c4aicommandrv01": "Command-R v01",
    "phi3mini4k": "Phi-3-mini",
    "phi3mini128k": "Phi-3-mini",
}
"""Names on the Hugging Face Hub, in letters and digits, that the table's own do not hold."""

_TUNED = (
    "instruct",
    "chat",
    "hf",
    "it",
    "pt",
    "base",
    "uncased",
    "cased",
    "bnb",
    "4bit",
    "bf16",
    "fp16",
    "fp8",
    "awq",
    "gptq",
)
"""Words at the end of a name on the Hub that leave the heads as they are."""


def find(name: str) -> Model:
    """The model of this name. Case, spaces and punctuation do not count, nor does what stands in parentheses.

    A name of the Hugging Face Hub is found, too, where there is no doubt: without its organisation, and without words
    such as "instruct" or "hf" at its end.

    Raises:
        UnknownModel: there is none, or several. The message names those that may have been meant.
    """
    known = _found(name) if isinstance(name, str) else []
    if len(known) == 1:
        return known[0]
    meant = [model.name for model in known] or (_near(name) if isinstance(name, str) else [])
    way = f"Did you mean {_or(meant)}?" if meant else f"It has {len(rows())}, such as {rows()[0].name} and Llama 3 8B."
    raise UnknownModel(f"The table has no model {_show(name)}. {way}", tuple(meant))


def is_name(name: str, model: Model) -> bool:
    """Whether this is the model's own name, with or without what stands in parentheses there."""
    return plain(name) in (plain(model.name), plain(_short(model.name)))


def _found(name: str) -> list:
    """The models that this may be the name of: one where there is no doubt."""
    for wanted in _readings(name):
        whole = [model for model in rows() if plain(model.name) == wanted]
        short = whole or [model for model in rows() if plain(_short(model.name)) == wanted]
        # "Mistral 7B" is the v0.1: no other version is here.
        version = short or [model for model in rows() if re.sub(r"v[0-9]+$", "", plain(model.name)) == wanted]
        if version:
            return version[:1] if whole else version
        if wanted in HUB:
            return [model for model in rows() if model.name == HUB[wanted]]
    return []


def _readings(name: str) -> list:
    """What the name may be in letters and digits: as it is, without its organisation, without words at its end."""
    found = []
    text = name[:120].strip()
    for whole in (text, text.split("/")[-1], re.sub(r"^meta[-_ ]", "", text.split("/")[-1].lower())):
        words = re.sub(r"[\s_-]+", " ", whole.lower()).strip().split(" ")
        found.append(plain(whole))
        while len(words) > 1 and words[-1] in _TUNED:
            words = words[:-1]
            found.append(plain(" ".join(words)))
    words = re.sub(r"[\s_-]+", " ", text.split("/")[-1].lower()).strip().split(" ")
    if words[-1][:1] == "v":  # "Mixtral 8x7B Instruct v0.1"
        found.append(plain(" ".join([word for word in words if word not in _TUNED])))
    return [one for one in found if one]


def _near(name: str) -> list:
    """Names that may have been meant: nearest to the name without its organisation and the words at its end."""
    names = [model.name for model in rows()]
    for one in [*_readings(name)[-1:], _without_words(name)]:
        found = nearest(one, names) if one else []
        if found:
            return found
    family = plain(re.sub(r"[0-9]*([\s_.-].*)?$", "", name[:120].strip().split("/")[-1]))
    if len(family) < 2 and len(_readings(name)) > 0:
        family = _readings(name)[-1]
    return [one for one in names if len(family) > 1 and plain(one).startswith(family)][:3]


def _without_words(name: str) -> str:
    """The name without its organisation, words such as "instruct" anywhere in it, and a version at its end."""
    words = re.sub(r"[\s_-]+", " ", name[:120].strip().split("/")[-1].lower()).strip().split(" ")
    left = [word for word in words if word not in _TUNED and not re.fullmatch(r"v[0-9.]+", word)]
    return plain(" ".join(left))


def select(**filters: Any) -> list[Model]:
    """The models that pass every filter: `select(attention="gqa", d_head=128, min_d_model=8192)`.

    A filter is a field of `Model` with the value it must have, or min_ or max_ before the name of a number; a model
    that has no such number passes neither.

    Raises:
        TypeError: there is no such filter.
    """
    known = [field.name for field in fields(Model)]
    found = list(rows())
    for name, wanted in filters.items():
        field = name.removeprefix("min_").removeprefix("max_")
        if field not in known:
            meant = nearest(field, known)
            raise TypeError(
                f"select() has no filter {name!r}. {f'Did you mean {_or(meant)}?' if meant else listing(known)}"
            )
        found = [model for model in found if _passes(getattr(model, field), name, wanted)]
    return found


def _passes(value: Any, name: str, wanted: Any) -> bool:
    if name.startswith("min_"):
        return value is not None and value >= wanted
    if name.startswith("max_"):
        return value is not None and value <= wanted
    return value == wanted


def why_broken(model: Model) -> str:
    """One sentence: why n_heads * d_head is not d_model here. Empty for a model that follows the rule.

    Where no source states a reason, it says what the source shows.
    """
    if model.follows_rule:
        return ""
    inner = model.n_heads * model.d_head
    wide = "wider" if inner > model.d_model else "narrower"
    if "as printed" in model.note:
        return (
            f"The paper's table is kept as printed for {model.name}, and it is likely a misprint: {_misprint(model)}."
        )
    if model.attention == "mla":
        return (
            f"{model.name} has multi-head latent attention: queries and keys are a content part and a rotary part; the "
            "content part of the keys is made from a low-rank latent, the rotary key is one for all heads, and nothing ties "
            f"{model.n_heads} heads of {model.d_head} to d_model."
        )
    if model.attention == "mqa" and "output projection" in model.note:
        return (
            f"{model.name} has one key/value head of {model.d_head} columns, which {model.n_heads} query heads read, and a "
            f"grouped low-rank projection brings their {inner} columns back to d_model."
        )
    if model.family == "T5":
        return (
            f"{model.name} was made larger inside the block alone: the stream stays {model.d_model} wide, like that of T5-large, "
            f"and {model.n_heads} heads of {model.d_head} take {inner} columns (d_kv is a setting of its own)."
        )
    if model.family.startswith("Gemma"):
        where = " in its sliding-window layers" if "local layers" in model.note else ""
        return (
            f"{model.name} takes heads of {model.d_head}{where}, as the Gemma models take 256 or 128 at every width, and a power of two "
            f"of them: {model.n_heads}, so attention comes out {wide} than the stream."
        )
    if wide == "narrower":
        return (
            f"{model.name} keeps heads of {model.d_head} and has fewer of them than would fill the stream: {model.n_heads}, which take "
            f"{inner} of {model.d_model} columns."
        )
    return (
        f"{model.name} sets the head width by itself (head_dim = {model.d_head} in its configuration), and attention is wider "
        f"than the stream: {inner} columns for {model.d_model}."
    )


def _misprint(model: Model) -> str:
    each, left = divmod(model.d_model, model.n_heads)
    if left:
        return f"{model.n_heads} heads do not divide {model.d_model}"
    return f"{model.n_heads} heads of {model.d_head} are {model.n_heads * model.d_head} columns, and {model.n_heads} of {each} would fit"


def _short(name: str) -> str:
    """The name without what stands in parentheses."""
    return name.partition("(")[0]


def _or(names: list) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


@cache
def _read() -> list[list]:
    """The rows of the file, values in the order of Model's fields."""
    found = []
    with open(DATA, encoding="utf8", newline="") as file:
        for row in csv.DictReader(file):
            whole = {
                key: int(row[key]) if row[key] else None
                for key in ("year", "month", "n_layers", "d_model", "n_heads", "n_kv_heads", "d_head", "d_head_v")
            }
            values = {
                **row,
                **whole,
                "name": row["model"],
                "params_b": float(row["params_b"]) if row["params_b"] else None,
                "attention": row["attention"].lower(),
                "follows_rule": row["partition_rule"] == "yes",
                "verified": row["verified"] == "yes",
            }
            found.append([values[field.name] for field in fields(Model)])
    return found
