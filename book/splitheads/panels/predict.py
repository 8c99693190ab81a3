"""Panel *predict*: a prediction alone, asked at the top of a chapter and answered on the spot."""

from __future__ import annotations

from .kit import Panel, View, css, esm


class PredictView(View):
    _esm = esm("predict")
    _css = css()


def predict(question: dict) -> Panel:
    """Ask `question` (see `kit.question`); the choice and the outcome stay on screen together."""
    return Panel("predict", [], PredictView(question=question), "")
