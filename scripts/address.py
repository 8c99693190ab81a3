"""Print where the built book can be opened."""

from pathlib import Path

index = Path(__file__).resolve().parent.parent / "_build" / "html" / "index.html"
print(
    f"\nThe book is built. Open it in a browser:\n\n    {index.as_uri()}\n\n(`make serve` serves it over http on this machine.)"
)
