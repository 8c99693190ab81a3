"""What a diagnosis consists of: findings, each with its way out, and the report that holds them."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Any

SEVERITIES = ("error", "warning", "note")
"""An error raises, cannot be built or will not load; a warning runs, but is wrong, surprising or dear; a note informs."""

VERDICTS = ("ok", "warn", "reject")


@dataclass(frozen=True)
class Finding:
    """One thing that a configuration means.

    id: short name, such as "does-not-divide"; it stays the same when the message is worded anew.
    severity: one of SEVERITIES. message: what is so, with the numbers. suggestions: ways out; an error has at least one.
    source: where the rule comes from. chapter: the chapter that explains it, a file name without suffix.
    """

    id: str
    severity: str
    message: str
    suggestions: tuple = ()
    source: str = ""
    chapter: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The finding in JSON types."""
        return {
            "id": self.id,
            "severity": self.severity,
            "message": self.message,
            "suggestions": list(self.suggestions),
            "source": self.source,
            "chapter": self.chapter,
        }


@dataclass(frozen=True)
class Report:
    """Everything that follows from one configuration.

    verdict: one of VERDICTS. derived: name -> number, text or list; only what is known. findings: errors first, then
    warnings, then notes. quantities: what was computed, each with the factors it was multiplied from
    (`splitheads.cost.Quantity`). config: the keys in effect, filled in where the reader gave none.
    """

    verdict: str
    derived: dict
    findings: tuple = ()
    quantities: tuple = ()
    config: dict | None = None

    def to_dict(self) -> dict[str, Any]:
        """The report in JSON types: verdict, derived, findings, factors, config."""
        return {
            "verdict": self.verdict,
            "derived": json_value(self.derived),
            "findings": [finding.to_dict() for finding in self.findings],
            "factors": [
                {
                    "name": quantity.name,
                    "value": json_value(quantity.value),
                    "unit": quantity.unit,
                    "text": quantity.text,
                }
                for quantity in self.quantities
            ],
            "config": {} if self.config is None else json_value(self.config),
        }


def json_value(value: Any) -> Any:
    """The value with 1.0 as 1, all the way down: JSON has one kind of number, and the page writes it so."""
    if isinstance(value, float) and isfinite(value) and value == int(value):
        return int(value)
    if isinstance(value, (list, tuple)):
        return [json_value(one) for one in value]
    if isinstance(value, dict):
        return {key: json_value(one) for key, one in value.items()}
    return value
