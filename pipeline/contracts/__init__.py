"""What every agent, world, privatizer and noise source must do, as checks that any of them can be put to.

Each list holds functions of one subject, which raise :class:`~pipeline.contracts.broken.BrokenContractError`::

    @pytest.mark.parametrize("check", WORLD_CHECKS, ids=lambda c: c.__name__)
    def test_my_world(check):
        check(my_world())

Ours pass the same checks (``tests/contracts``).  A check that passes proves nothing beyond what it looks at: a noise
that is right on average may still be told apart, and ``reticent audit`` attacks only what it knows.
"""
