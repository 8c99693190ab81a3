"""What this machine says about itself: device, driver, clocks, memory, versions. Reads only; sets nothing."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

import splitheads


def memory() -> tuple[int, int]:
    """Main memory that this process may use: (in all, free now), bytes; zeros where it cannot be told."""
    import os

    try:
        page = os.sysconf("SC_PAGE_SIZE")
        total = free = page * os.sysconf("SC_PHYS_PAGES")
        free = page * os.sysconf("SC_AVPHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        total = free = 0
    for line in _text("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):  # unlike "free", this counts what the file cache can give back
            free = int(line.split()[1]) * 1024
    # A container may be allowed less than the machine has.
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        ceiling = _text(limit).strip()
        if ceiling.isdecimal() and 0 < int(ceiling) < (total or 2**62):
            total = int(ceiling)
            taken = _text(used).strip()
            free = min(free or total, total - int(taken) if taken.isdecimal() else total)
    return total, max(free, 0)


def describe(device: str, memory_bytes: int) -> dict[str, Any]:
    """The device as a recording keeps it; `clocks` are those of this moment, in MHz, where they can be read."""
    import torch

    kind = device.partition(":")[0]
    facts: dict[str, Any] = {
        "type": kind,
        "name": platform.processor() or platform.machine(),
        "key": kind,
        "driver": None,
        "threads": torch.get_num_threads(),
        "memory_bytes": memory_bytes,
        "clocks": clocks(device),
    }
    if kind == "cuda":
        properties = torch.cuda.get_device_properties(torch.device(device))
        facts["name"] = properties.name
        facts["key"] = f"sm{properties.major}{properties.minor}"
        facts["driver"] = _smi(device, "driver_version")
    elif kind == "mps":
        facts["name"] = _command("sysctl", "-n", "machdep.cpu.brand_string") or "Apple GPU"
        facts["driver"] = f"macOS {platform.mac_ver()[0]}" if platform.mac_ver()[0] else None
    else:
        facts["name"] = _cpu_name() or facts["name"] or "CPU"
    return facts


def clocks(device: str) -> dict[str, float] | None:
    """Clock rates right now, in MHz; None where they cannot be read."""
    if device.startswith("cuda"):
        names = ("clocks.sm", "clocks.mem", "clocks.max.sm")
        values = (_smi(device, ",".join(names)) or "").split(",")
        found = {
            name.replace("clocks.", "").replace(".", "_") + "_mhz": _number(v)
            for name, v in zip(names, values, strict=False)
        }
    else:
        rates = [
            _number(line.partition(":")[2])
            for line in _text("/proc/cpuinfo").splitlines()
            if line.startswith("cpu MHz")
        ]
        rates = [rate for rate in rates if rate]
        found = {"cpu_mhz": round(sum(rates) / len(rates), 1)} if rates else {}
    return {key: value for key, value in found.items() if value} or None


def software() -> dict[str, Any]:
    """Versions as a recording keeps them."""
    import torch

    return {
        "python": platform.python_version(),
        "torch": torch.__version__.partition("+")[0],
        "build": str(torch.__version__),
        "cuda": torch.version.cuda,
        "cudnn": str(torch.backends.cudnn.version()) if torch.backends.cudnn.is_available() else None,
        "splitheads": splitheads.__version__,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }


def _cpu_name() -> str:
    for line in _text("/proc/cpuinfo").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return _command("sysctl", "-n", "machdep.cpu.brand_string") if platform.system() == "Darwin" else ""


def _smi(device: str, query: str) -> str | None:
    """One answer of nvidia-smi about this very device, found by its UUID: the two count devices differently."""
    import torch

    uuid = getattr(torch.cuda.get_device_properties(torch.device(device)), "uuid", None)
    which = ["-i", f"GPU-{uuid}"] if uuid else []
    answer = _command("nvidia-smi", *which, f"--query-gpu={query}", "--format=csv,noheader,nounits")
    return answer.splitlines()[0].strip() if answer else None


def _command(*words: str) -> str:
    if not shutil.which(words[0]):
        return ""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _text(path: str) -> str:
    try:
        return Path(path).read_text("utf8", errors="replace")
    except OSError:
        return ""


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
