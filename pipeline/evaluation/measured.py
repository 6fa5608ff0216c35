"""Results of an evaluation, under the name by which estimators import them."""

from pipeline.facts.evaluation import Diagnostic, Evaluated, Interval

__all__ = ["Diagnostic", "Evaluated", "Interval"]
