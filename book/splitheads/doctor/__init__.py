"""Every consequence of one configuration: legal or not and why, shapes, costs, kernels, sharding, what loads.

    from splitheads.doctor import diagnose
    diagnose({"d_model": 1024, "n_heads": 12}).verdict  # "reject"

`python -m splitheads doctor` says the same in a shell. Needs the standard library alone.
"""

from splitheads.doctor.huggingface import from_huggingface, looks_like_huggingface
from splitheads.doctor.keys import ALIASES, KEYS, Config, read
from splitheads.doctor.report import Finding, Report
from splitheads.doctor.rules import diagnose, diagnose_plain
from splitheads.doctor.values import ConfigError

__all__ = [
    "ALIASES",
    "KEYS",
    "Config",
    "ConfigError",
    "Finding",
    "Report",
    "diagnose",
    "diagnose_plain",
    "from_huggingface",
    "looks_like_huggingface",
    "read",
]
