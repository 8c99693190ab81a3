"""One palette for the whole book: a head, and a backend, has the same colour in every panel and figure.

Standard library only. The head colours are Paul Tol's "light" qualitative scheme, made for
filling labelled cells: distinct under the common forms of colour blindness, and each light
enough for near-black text (https://personal.sron.nl/~pault/, section "Qualitative schemes").
The order is ours, so that neighbouring heads differ in hue as well as in lightness.
"""

HEADS: tuple[str, ...] = (
    "#77AADD",  # light blue
    "#EE8866",  # orange
    "#44BB99",  # mint
    "#FFAABB",  # pink
    "#BBCC33",  # pear
    "#99DDFF",  # light cyan
    "#EEDD88",  # light yellow
    "#AAAA00",  # olive
)

ON_HEAD = "#14171C"
"""Text on a head's colour, in light and dark mode alike (contrast at least 7:1 on each)."""

BACKENDS: dict[str, str] = {
    "FLASH": "#1FA187",  # green
    "CUDNN": "#56B4E9",  # sky blue
    "EFFICIENT": "#F0C83C",  # yellow
    "MATH": "#D9603B",  # vermilion: the fallback
}
"""One colour per attention backend, distinct under the common forms of colour blindness.

None is a head's colour. `ON_HEAD` reads on each (contrast at least 4.5:1)."""

SHAPES: dict[str, str] = {"FLASH": "circle", "CUDNN": "diamond", "EFFICIENT": "square", "MATH": "triangle"}
"""A shape beside each backend's colour: colour is never alone."""

SERIES: dict[str, tuple[str, str]] = {
    "buckets": (BACKENDS["FLASH"], "circle"),
    "power of two": (BACKENDS["CUDNN"], "square"),
    "exact": (BACKENDS["EFFICIENT"], "diamond"),
    "unfused": (BACKENDS["MATH"], "triangle"),
}
"""Colour and shape of each way to compile a page's own kernel, and of the one that is not fused (it does what MATH does)."""

BACKEND_UNKNOWN = "#A7AFB8"
"""For a kernel that was not observed or has none of these names. `ON_HEAD` reads on it too."""


def head_colour(head: int) -> str:
    """Colour of head number `head` (0-based), as `#RRGGBB`. Colours repeat after eight heads."""
    if head < 0:
        raise ValueError(f"head = {head}: heads are numbered from 0")
    return HEADS[head % len(HEADS)]


def contrast(one: str, other: str) -> float:
    """WCAG 2 contrast ratio (1 to 21) of two `#RRGGBB` colours."""

    def luminance(colour: str) -> float:
        channels = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
        r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)
