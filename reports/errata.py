"""Where the papers' claims and the truth differ, row by row: docs/errata.md prints the same table, and says more."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Erratum:
    """A claim of a paper, what is true, by which factor, and the test or command that shows it."""

    paper: str
    claim: str
    truth: str
    factor: str
    shown: str

    def row(self) -> str:
        """The row of docs/errata.md."""
        return f"| {self.paper} | {self.claim} | {self.truth} | {self.factor} | {self.shown} |"


ERRATA: tuple[Erratum, ...] = (
    Erratum(
        "003",
        "two count tables at σ² = 2H/ρ are ρ-zCDP",
        "exactly ρ, attained",
        "1.00",
        "`tests/statistics/test_sensitivity.py::test_the_paper_scales_cost_exactly_rho_where_its_assumptions_hold`",
    ),
    Erratum(
        "003",
        "ε = ρ + 2√(ρ ln(1/δ)) converts to (ε, δ)",
        "true, and loose: 8.434 at ρ = 1, δ = 10⁻⁶, where 7.766 holds for every ρ-zCDP mechanism",
        "3 – 26 % in ε",
        "`tests/privacy/test_budget.py`",
    ),
    Erratum(
        "003",
        "ε-DP counts by Laplace noise of 4H/ε",
        "exactly ε, attained",
        "1.00",
        "`tests/statistics/test_sensitivity.py::test_the_paper_scales_cost_exactly_rho_where_its_assumptions_hold`",
    ),
    Erratum(
        "003",
        "each noisy Gram matrix of DP-VAPVI costs ρ₀",
        "2 ρ₀: 1/√2 is the sensitivity of adding a user",
        "2 a Gram",
        "`tests/statistics/test_linear_sensitivity.py::test_a_gram_at_the_papers_noise_costs_two_rho_0_under_replace`",
    ),
    Erratum(
        "003",
        "DP-VAPVI is ρ-zCDP",
        "with halves yes (the joint supremum of a half is below ρ); on the same data twice only because "
        "V is clipped to "
        "[0, H−h]",
        "0.45 – 1.4",
        '`reticent plan` on a recipe with `calibration = "paper"` prints the true ρ',
    ),
    Erratum(
        "003",
        "Appendix F: ‖φ‖ ≤ 1",
        "‖φ‖² reaches 7",
        "ρ = 1 spends about 22.5",
        "`reticent reproduce 003-figure-1a`; `tests/flows/test_reproduce.py::"
        "test_the_literal_calibration_is_said_to_spend_its_true_rho`",
    ),
    Erratum(
        "000",
        "⌈log K⌉ levels",
        "base 2, and right for the K − 1 prefixes that episodes 2 … K read; a policy after episode K "
        "needs ⌊log₂ K⌋ + 1",
        "(m+1)/m at powers of two; ln costs 1.4",
        "`tests/privacy/test_counters.py::"
        "test_a_leaf_lies_in_floor_log2_plus_one_nodes_and_other_logarithms_are_short`",
    ),
    Erratum(
        "000",
        "sensitivities d₁H², √d₁ H²",
        "those of adding a user; replacing one moves √2 and 2 times as far",
        "ρ × 2 and × 4 a counter",
        "`tests/statistics/test_regularizers.py::"
        "test_two_episodes_move_one_step_by_the_declared_squared_length_and_no_more`",
    ),
    Erratum(
        "000",
        "the agent is (ε, δ)-JDP",
        "true, with room: (ε/4H, δ/4H) is added up linearly over counters and steps",
        "σ 3.4 × (H = 5) to 7.2 × (H = 20) too large",
        "`tests/statistics/test_regularizers.py::"
        "test_paper_scales_are_the_printed_ones_and_their_guarantee_is_recomputed`",
    ),
    Erratum(
        "001",
        "‖φ_V‖ ≤ sup V (3.1)",
        "one-hot features, the ones of its experiment, reach √S sup V",
        "√S",
        "`tests/statistics/test_regularizers.py::test_the_norm_bound_of_paper_001_is_too_small_for_one_hot_rows`",
    ),
    Erratum(
        "001",
        "one message is (ε, δ)-LDP at σ = 4H³√(2 ln(2.5H/δ))/ε",
        "true for features that keep (3.1), eight times over at H = 10; for one-hot features true in the "
        "settings tried "
        "and no theorem: large S and small H would break it",
        "ε = 1 is 0.12 (H = 10)",
        "`reticent reproduce 001-figure-2` prints the true ε",
    ),
    Erratum(
        "001",
        "experiments at δ = 0.1",
        "with 10⁴ users δ = 0.1 allows a tenth of all records to be published",
        "meaningless δ",
        "[guarantee.md](guarantee.md): δ > 1/(10 n) is refused on real data",
    ),
    Erratum(
        "002",
        "the integer message y + noise bits, shuffled, is (ε, β)-SDP",
        "no: the value 1 + m is sent by nobody whose y is 0",
        "δ ≥ τ/2n, or 2^−m",
        "`tests/privacy/test_shuffle.py`; the twin *integer messages* of [audit.md](audit.md)",
    ),
    Erratum(
        "002",
        "(ε, β) in total from (ε/3H, β) a counter",
        "replacing a user touches 6H counters: basic composition gives (2ε, 6Hβ); exactly composed the "
        "printed τ is far "
        "more than enough",
        "ε = 1 is 0.104, 0.063, 0.043 at H = 2, 5, 10",
        "`tests/privacy/test_shuffle_calibration.py`",
    ),
    Erratum(
        "004",
        "Δ₁ = H(1+γ)², Δ₂ = H(1+γ)",
        "replace: √2 H(1+γ²) and 2H√(1+γ²); Δ₁ covers it for γ in [0.22, 4.6], Δ₂ never",
        "ρ up to × 2 and × 4",
        "`tests/statistics/test_lq_sensitivity.py::"
        "test_no_two_people_are_further_apart_than_claimed_and_each_table_alone_is_met_exactly`",
    ),
    Erratum(
        "004",
        "Private-OFU-RL is (ε, δ)-JDP",
        "true where states and controls are cut: both slips together stay below the slack of the textbook conversion",
        "ε = 1 is 0.62 (γ = 1) to 0.88 (γ = 0.1)",
        "`reticent reproduce 004-regret` prints the true ε",
    ),
    Erratum(
        "004",
        "the norms follow from the plant",
        "privacy may not rest on a model of the plant: states and controls must be cut before they are summed, else "
        "there is no guarantee at all",
        "unbounded",
        "`tests/statistics/test_lq_sensitivity.py::test_twins_that_do_not_cut_break_the_claim`",
    ),
    Erratum(
        "all",
        "Gaussian noise in floating point",
        "rounding shows the data (Mironov 2012); here noise is integer, exact, added to integers",
        "–",
        "[samplers.md](samplers.md)",
    ),
)
