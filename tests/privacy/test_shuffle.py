"""The shuffle protocol: its law by enumeration, what the analyst sees, and why the bits travel one by one."""

from collections import Counter
from fractions import Fraction
from itertools import product
from math import comb

import numpy as np
import pytest

from pipeline.privacy import shuffle as protocol
from pipeline.privacy.noise import RealDataError, SeededNoise
from pipeline.privacy.shuffle import (
    FAIR,
    WHOLE,
    Messages,
    NoiseBits,
    OsCoins,
    analyze,
    analyzed_totals,
    exchanged,
    from_bytes,
    message_bytes,
    randomize,
    shuffle,
    tight_bits,
    to_bytes,
)
from tests.privacy.handles import REAL, WORLD


class Scripted:
    """Coins that come up as written; rewards are not rounded here."""

    name = "scripted"

    def __init__(self, script):
        self.script = list(script)

    def flips(self, size, chance, data):
        return np.array([self.script.pop(0) for _ in range(size)], dtype=bool)

    def rounded(self, value, data):
        return value == 1


def law_over_coins(outcome, noise):
    """Exact law of what follows from the coins, over every outcome of every coin."""
    q, law = Fraction(noise.chance, WHOLE), Counter()
    for script in product([0, 1], repeat=noise.trials):
        law[outcome(script)] += q ** sum(script) * (1 - q) ** (noise.trials - sum(script))
    return law


def law_of_protocol(values, noise):
    """Of the analyst's number of ones."""

    def ones(script):
        coins = Scripted(script)
        sent = [randomize(np.array([y]), noise, coins, WORLD) for y in values]
        return round(analyze(shuffle(sent), 1, noise)[0] + noise.mean)

    return law_over_coins(ones, noise)


@pytest.mark.parametrize(("each", "chance"), [(2, FAIR), (1, WHOLE // 7)])
def test_the_protocol_is_the_sum_plus_a_binomial(each, chance):
    noise = NoiseBits(users=4, each=each, chance=chance)
    q, n = Fraction(chance, WHOLE), noise.trials
    expected = {2 + k: comb(n, k) * q**k * (1 - q) ** (n - k) for k in range(n + 1)}
    assert law_of_protocol([1.0, 0.0, 1.0, 0.0], noise) == expected


def test_one_draw_a_counter_has_the_law_of_the_messages():
    noise, draws = NoiseBits(users=6, each=1, chance=WHOLE // 5), 20_000
    sums = np.full(draws, 3, dtype=np.int64)
    fast = np.rint(analyzed_totals(sums, noise, SeededNoise(1), WORLD) + noise.mean - 3).astype(int)
    exact = np.array([comb(6, k) * 0.2**k * 0.8 ** (6 - k) for k in range(7)])
    share = np.bincount(fast, minlength=7) / draws
    # five standard errors, seven outcomes
    assert (np.abs(share - exact) < 5 * np.sqrt(exact * (1 - exact) / draws) + 1e-12).all()
    twin = np.bincount(np.rint(SeededNoise(1).heads(draws, 3, noise.chance, WORLD)).astype(int), minlength=7) / draws
    assert (np.abs(twin - exact) > 5 * np.sqrt(exact * (1 - exact) / draws)).any()


def test_the_analyst_sees_a_multiset_whoever_sent_it():
    noise = NoiseBits(users=3, each=2)
    sent = [randomize(np.array([1.0, 0.0]), noise, SeededNoise(k), WORLD) for k in range(3)]
    one, other = shuffle(sent), shuffle(sent[::-1])
    assert np.array_equal(one.counter, other.counter) and np.array_equal(one.bit, other.bit)
    assert len(one.bit) == 3 * 2 * (1 + 2)


def test_zeros_are_sent_too_and_a_silent_user_is_noticed():
    noise = NoiseBits(users=2, each=1)
    sent = [randomize(np.zeros(3), noise, OsCoins(), WORLD) for _ in range(2)]
    assert np.array_equal(np.bincount(shuffle(sent).counter), [4, 4, 4])
    short = Messages(sent[1].counter[1:], sent[1].bit[1:])
    with pytest.raises(ValueError, match="some are missing"):
        analyze(shuffle([sent[0], short]), 3, noise)


def test_a_reward_is_rounded_to_a_bit_on_the_device_and_is_unbiased():
    noise = NoiseBits(users=1, each=0)
    n = 4000
    values = np.tile([0.3, 0.0, 1.0, 7.0, -2.0], n)
    sent = randomize(values, noise, OsCoins(), WORLD)
    mean = sent.bit.reshape(n, 5).mean(0)
    assert mean[1:].tolist() == [0.0, 1.0, 1.0, 0.0]
    assert abs(mean[0] - 0.3) < 5 * np.sqrt(0.21 / n)


def test_operating_system_coins_have_their_chance():
    n = 40_000
    for chance in (FAIR, WHOLE // 10, 0, WHOLE):
        q = chance / WHOLE
        assert abs(OsCoins().flips(n, chance, WORLD).mean() - q) <= 5 * np.sqrt(q * (1 - q) / n)


def test_seeded_coins_refuse_real_data():
    noise = NoiseBits(users=2, each=1)
    with pytest.raises(RealDataError):
        randomize(np.zeros(2), noise, SeededNoise(0), REAL)
    with pytest.raises(RealDataError):
        analyzed_totals(np.zeros(2, dtype=np.int64), noise, SeededNoise(0), REAL)


def test_a_small_deployment_from_device_to_analyst():
    users, counters = 40, 3
    noise = tight_bits(users, 4, 1.0, 1e-5)
    values = np.zeros((users, counters))
    values[:30, 0], values[:, 2] = 1.0, 0.5
    sent = [randomize(v, noise, OsCoins(), WORLD) for v in values]
    found = analyze(shuffle(sent), counters, noise)
    # six standard deviations of the coins, and of the rounding of 40 halves
    off = np.abs(found - [30, 0, 20])
    assert (off <= 6 * np.hypot(noise.standard_deviation, [0, 0, 10**0.5])).all()
    assert noise.each == 6 and noise.trials >= 225


def integer_message_law(values, noise):
    """The broken twin: paper 002's integer z = y + noise bits, shuffled; law of the sorted tuple of messages."""

    def seen(script):
        own = np.array(script).reshape(noise.users, noise.each).sum(1)
        return tuple(sorted(int(y) + int(z) for y, z in zip(values, own, strict=True)))

    return law_over_coins(seen, noise)


def certain_loss(one, other):
    """Mass of outcomes that only the first world can produce: no epsilon covers it."""
    return sum(p for outcome, p in one.items() if outcome not in other)


@pytest.mark.parametrize("m", [1, 2, 3])
def test_the_integer_message_leaks_two_to_the_minus_m(m):
    noise = NoiseBits(users=2, each=m)
    leak = certain_loss(integer_message_law([1, 0], noise), integer_message_law([0, 0], noise))
    assert leak == Fraction(1, 2**m)
    bits = certain_loss(law_of_protocol([1.0, 0.0], noise), law_of_protocol([0.0, 0.0], noise))
    assert bits == Fraction(1, 2**noise.trials)


def test_the_integer_message_leaks_tau_over_two_n():
    tau, n = 2, 6
    noise = NoiseBits(users=n, each=1, chance=WHOLE * tau // (2 * n))
    leak = certain_loss(integer_message_law([1] + [0] * 5, noise), integer_message_law([0] * 6, noise))
    assert leak == Fraction(noise.chance, WHOLE)
    assert float(leak) == pytest.approx(tau / (2 * n))
    bits = certain_loss(law_of_protocol([1.0] + [0.0] * 5, noise), law_of_protocol([0.0] * 6, noise))
    assert float(bits) == pytest.approx((tau / (2 * n)) ** n)


def test_the_bound_is_a_binomial_tail():
    noise = NoiseBits(users=200, each=1, chance=WHOLE // 4)
    k = np.arange(201)
    law = np.array([float(comb(200, int(i)) * Fraction(1, 4) ** int(i) * Fraction(3, 4) ** (200 - int(i))) for i in k])
    b = noise.bound(1e-3)
    assert law[np.abs(k - 50) > b].sum() <= 1e-3 < law[np.abs(k - 50) > b - 3].sum()


class Always:
    def __init__(self, word):
        self.word = word

    def take(self, n):
        return np.full(n, self.word, dtype=np.uint64)


@pytest.mark.parametrize("chance", [0, 1, 3 * 2**61])
def test_a_coin_is_true_for_exactly_so_many_words(monkeypatch, chance):
    """Words below the chance, and no more: a coin of chance 0 is never true."""
    for word, true in ((chance - 1, True), (chance, False)):
        if word >= 0:
            monkeypatch.setattr(protocol, "Words", lambda word=word: Always(word))
            assert OsCoins().flips(1, chance, REAL).tolist() == [true]
    for value, word, true in ((0.0, 0, False), (0.5, 2**63, False), (0.5, 2**63 - 1, True), (1.0, 2**64 - 1, True)):
        monkeypatch.setattr(protocol, "Words", lambda word=word: Always(word))
        assert OsCoins().rounded(np.array([value]), REAL).tolist() == [true]


@pytest.mark.parametrize("counters", [1, 90, 128, 129, 40_000])
def test_messages_travel_as_bytes(counters):
    rng = np.random.default_rng(0)
    messages = Messages(rng.integers(0, counters, 50), rng.random(50) < 0.5)
    sent = to_bytes(messages, counters)
    assert len(sent) == 50 * message_bytes(counters)
    back = from_bytes(sent, counters)
    assert np.array_equal(back.counter, messages.counter) and np.array_equal(back.bit, messages.bit)
    assert message_bytes(128) == 1 and message_bytes(129) == 2


def test_the_exchange_is_the_three_functions():
    noise, people = NoiseBits(users=3, each=4), [np.eye(5)[k] for k in (0, 2, 2)]
    coins = SeededNoise(3)
    by_hand = analyze(shuffle([randomize(v, noise, coins, WORLD) for v in people]), 5, noise)
    done = exchanged(people, 5, noise, SeededNoise(3), WORLD)
    assert np.array_equal(done.sums, by_hand) and done.sent == 3 * 5 * (1 + 4)
