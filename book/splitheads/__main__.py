"""`python -m splitheads COMMAND`: what the book's code does from a shell."""

from __future__ import annotations

import sys
from importlib import import_module

COMMANDS = {
    "time": ("splitheads.timing.command", "measure attention on this machine, for every head size"),
    "doctor": ("splitheads.doctor.command", "what a configuration means: legal or not, shapes, costs, kernels, GPUs"),
}
"""name -> (module with a function main(arguments, exiting) -> exit status, one line about it)"""


def main(arguments: list[str] | None = None, exiting: bool = False) -> int:
    """Run a subcommand. Returns its exit status; 2 where there is no such command.

    `exiting`: the process ends with it, so a command may leave signals ignored behind it.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    name = arguments[0] if arguments else ""
    if name in COMMANDS:
        return import_module(COMMANDS[name][0]).main(arguments[1:], exiting)
    if name in ("-h", "--help"):
        print("usage: python -m splitheads COMMAND ...\n")
        for command, (_, text) in COMMANDS.items():
            print(f"  {command:8} {text}")
        print("\nMore about one of them: python -m splitheads COMMAND --help")
        return 0
    wrong = f"there is no command {name[:40]!r}" if name else "a command is missing"
    known = ", ".join(f"`python -m splitheads {command} --help`" for command in COMMANDS)
    print(f"splitheads: {wrong}. Try {known}.", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(exiting=True))
