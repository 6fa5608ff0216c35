"""The exit code of an error (design §5.1): whose fault it is, for shells and schedulers."""

from __future__ import annotations


def exit_code(error: Exception) -> int:
    """Exit code of design §5.1: 2 operator's file, 3 the log, 4 the budget, 1 anything else."""
    from pipeline.declaration.card import CardError
    from pipeline.declaration.toml import DamagedError, LogError
    from pipeline.ledger.chain import BudgetError
    from pipeline.privacy.noise import RealDataError

    codes: tuple[tuple[type[Exception], int], ...] = (
        (CardError, 2),
        (RealDataError, 2),
        (LogError, 3),
        (BudgetError, 4),
        (DamagedError, 4),
    )
    return next((code for kind, code in codes if isinstance(error, kind)), 1)
