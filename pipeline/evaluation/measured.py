"""What an evaluation on other people says of a policy, under the name by which estimators import it."""

from pipeline.facts.evaluation import Diagnostic, Evaluated, Interval

__all__ = ["Diagnostic", "Evaluated", "Interval"]
