#!/usr/bin/env python3
"""Write down which attention kernel this torch selects on each GPU generation, with no GPU at all.

    python simulate.py 2.16.0.csv.gz                     # everything, minutes
    python simulate.py try.csv --sm 80 90 --widths 64 80 # a part of it

Run it with the Python of an environment that holds a CUDA build of torch; see README.md beside it.
For every compute capability one process is started with shim.c preloaded, so that torch sees a GPU
of that capability. There scaled_dot_product_attention is called on FakeTensors, which have a shape
and no storage, and a dispatch mode listens for the operator that it calls. What selects and pads
is therefore torch's own compiled code.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from math import prod
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "book"))

from splitheads import backends  # noqa: E402

CAPABILITIES = [int(key[2:]) for key in backends.DEVICES if key.startswith("sm")]
WIDTHS = [*range(1, 321), 384, 512, 576]
DTYPES = ("fp16", "bf16", "fp32")
OPERATORS = {
    "_scaled_dot_product_flash_attention": "FLASH",
    "_scaled_dot_product_efficient_attention": "EFFICIENT",
    "_scaled_dot_product_cudnn_attention": "CUDNN",
}


def observer() -> Callable[[backends.SdpaCall], tuple[str, int | str]]:
    """A function from a call to what SDPA picks for it: (choice, width given to the kernel).

    For a process that believes in a GPU, under FakeTensorMode. An exception that torch raises is a
    finding, too: ("ERROR:RuntimeError", its first line).
    """
    import torch
    from torch._subclasses import fake_tensor
    from torch.utils._python_dispatch import TorchDispatchMode

    # FakeTensorMode would otherwise open a context on the GPU that is not there.
    if hasattr(fake_tensor, "init_gpu_context"):
        fake_tensor.init_gpu_context = lambda device: None

    class Listener(TorchDispatchMode):
        """Keeps the first attention operator; failing that, the first product of a fallback with a softmax."""

        fused = product = None
        softmax = False

        def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
            name = operator.overloadpacket.__name__
            if name.startswith("_scaled_dot_product") and self.fused is None:
                self.fused = OPERATORS.get(name, name), args[0].shape[-1]
            if name in ("bmm", "baddbmm", "mm", "matmul") and self.product is None:
                self.product = args[0].shape[-1]
            self.softmax |= "softmax" in name
            return operator(*args, **(kwargs or {}))

    def tensor(call, heads: int, tokens: int, width: int):
        shape = (call.batch, heads, tokens, width) if call.batched else (heads, tokens, width)
        step = 1 if call.last_stride_1 else 2
        # Contiguous, or every other column of a tensor twice as wide. (Slicing one would ask for the driver.)
        strides = [step * prod(shape[axis + 1 :]) for axis in range(len(shape))]
        dtype = getattr(torch, backends.DTYPES[call.dtype])
        return torch.empty_strided(shape, strides, dtype=dtype, device="cuda:0", requires_grad=call.training)

    def observe(call) -> tuple[str, int | str]:
        q = tensor(call, call.n_heads, call.seq_q, call.d_head)
        k = tensor(call, call.kv_heads, call.key_length, call.d_head)
        v = tensor(call, call.kv_heads, call.key_length, call.value_width)
        mask = None
        if call.mask:
            shape = (1, call.n_heads, call.seq_q, call.key_length)[4 - call.mask_dims :]
            mask = torch.empty(shape, dtype=torch.bool if call.mask == "bool" else q.dtype, device="cuda:0")
        more = {"enable_gqa": True} if call.enable_gqa else {}
        try:
            with Listener() as heard:
                torch.nn.functional.scaled_dot_product_attention(
                    q, k, v, attn_mask=mask, dropout_p=call.dropout, is_causal=call.is_causal, **more
                )
        except Exception as error:
            return f"ERROR:{type(error).__name__}", str(error).partition("\n")[0]
        return heard.fused or ("MATH" if heard.softmax else "NONE", heard.product)

    return observe


def listen(capability: int, widths: list[int], out) -> None:
    """In a process that believes in a GPU of this capability: one row for every dtype, scenario and width."""
    import torch
    from torch._subclasses import fake_tensor

    observe = observer()
    number = torch._C._cudnn.getVersionInt()
    row = torch.__version__.split("+")[0], f"{number // 10000}.{number // 100 % 100}.{number % 100}", capability
    rows = csv.writer(out, lineterminator="\n")
    with fake_tensor.FakeTensorMode():
        for dtype in DTYPES:
            for name, scenario in backends.SCENARIOS.items():
                for width in widths:
                    call = backends.SdpaCall(width, dtype=dtype, **scenario.settings)
                    rows.writerow((*row, dtype, name, width, *observe(call)))


def build(folder: Path) -> Path:
    """Compile shim.c for the CUDA version of the torch beside this Python."""
    import torch

    if torch.version.cuda is None:
        sys.exit(f"torch {torch.__version__} is a CPU build. Install a CUDA wheel in an environment of its own.")
    major, minor = map(int, torch.version.cuda.split("."))
    header = next(Path(torch.__file__).parents[1].glob("nvidia/**/driver_types.h"), None)
    if header is None:
        sys.exit("driver_types.h is not there: install torch's CUDA wheel with its dependencies.")
    # Since CUDA 13 the macros that this header uses come with the compiler's package, which torch does not need.
    (folder / "crt").mkdir()
    (folder / "crt/host_defines.h").write_text(
        "".join(f"#define __{name}__\n" for name in ("device_builtin", "cudart_builtin"))
        + "".join(f"#define __device_builtin_{name}_type__\n" for name in ("texture", "surface"))
        + "".join(f"#define {name}(n) __attribute__((aligned(n)))\n" for name in ("__align__", "__builtin_align__"))
    )
    library = folder / "shim.so"
    # -idirafter: a crt folder that does come with the header goes first.
    command = ["gcc", "-shared", "-fPIC", "-O1", f"-DCUDA_NUMBER={major * 1000 + minor * 10}", "-o", library]
    subprocess.run([*command, HERE / "shim.c", "-I", header.parent, "-idirafter", folder], check=True)
    return library


def environment(library: Path, capability: int) -> dict[str, str]:
    """Environment variables for a process that is to believe in a GPU of this capability."""
    # The switches that would change the order must not be inherited.
    kept = {key: value for key, value in os.environ.items() if not key.startswith("TORCH_CUDNN_SDPA")}
    return kept | {"LD_PRELOAD": str(library), "SPLITHEADS_SM": str(capability)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", help="CSV file to write, gzipped if its name ends in .gz")
    parser.add_argument("--sm", type=int, nargs="+", default=CAPABILITIES, help="compute capabilities, such as 80 90")
    parser.add_argument("--widths", type=int, nargs="+", default=WIDTHS, help="head widths, in columns")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at a time")
    parser.add_argument("--listen", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.listen:
        with open(args.out, "w", newline="") as out:
            return listen(args.listen, args.widths, out)

    with tempfile.TemporaryDirectory() as folder:
        library = build(Path(folder))

        def one(capability: int) -> str:
            part = Path(folder, f"{capability}.csv")
            command = [sys.executable, __file__, part, "--listen", capability, "--widths", *args.widths]
            subprocess.run([str(word) for word in command], env=environment(library, capability), check=True)
            return part.read_text()

        with ThreadPoolExecutor(args.jobs) as pool:
            parts = list(pool.map(one, args.sm))
    text = ",".join(backends.COLUMNS) + "\n" + "".join(parts)
    with gzip.open(args.out, "wt", newline="") if args.out.endswith(".gz") else open(args.out, "w", newline="") as out:
        out.write(text)
    return None


if __name__ == "__main__":
    main()
