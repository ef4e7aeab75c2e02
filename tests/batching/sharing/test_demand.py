"""What requests are guessed to cost before they are prepared, and who is being prepared."""

from random import Random
from types import SimpleNamespace

from sie_core.batching.sharing.demand import Demand, TextCosts
from sie_core.batching.sharing.in_preparation import COUNTED, InPreparation
from sie_core.batching.sharing.shares import Claims
from sie_core.contracts import InferenceRequest, Item, QueuedUnit, Unit

FRAME = 2
"""Tokens around every text."""


def facts(most=None):
    return SimpleNamespace(max_sequence_length=most)


def request(*lengths, query=None):
    items = [Item(id=str(place), text="x" * length) for place, length in enumerate(lengths)]
    return InferenceRequest("m", "encode", items, "r", query=query and Item(text="x" * query))


def cost(asked, characters, most=None):
    """Return what a tokenizer makes of a request that has so many characters a token."""
    costs = [FRAME + round(len(item.text) / characters) for item in asked.items]
    return sum(costs if most is None else (min(most, each) for each in costs))


def learned(requests, characters, most=None, costs=None):
    costs = costs or TextCosts()
    for asked in requests:
        costs.learn(asked, facts(most), cost(asked, characters, most))
    return costs


def drawn(count, texts=8, seed=1):
    random = Random(seed)
    return [request(*(random.randint(400, 700) for _ in range(texts))) for _ in range(count)]


def test_at_first_few_tokens_are_guessed_and_later_nearly_those_that_there_are():
    asked = request(*[600] * 8)
    assert TextCosts().guess(asked, facts()) == 800
    for characters in (4.2, 5.0, 5.8):
        known = learned(drawn(200), characters).guess(asked, facts())
        assert 0.94 * cost(asked, characters) <= known <= cost(asked, characters)


def test_at_least_three_of_four_requests_cost_no_less_than_guessed():
    random, costs, below = Random(2), TextCosts(), 0
    for number, asked in enumerate(drawn(2000)):
        actual = cost(asked, random.uniform(4.0, 5.5))
        below += number >= 1000 and actual < costs.guess(asked, facts())
        costs.learn(asked, facts(), actual)
    assert 0 < below <= 250


def test_a_guess_is_for_texts_as_they_are_cut():
    costs = learned(drawn(200), 5.0)
    assert costs.guess(request(5000, 5000), facts(256)) == 512
    assert costs.guess(request(0, 1), facts(256)) == 2


def test_texts_that_may_have_been_cut_teach_nothing():
    asked = [request(3000), request(*[1200] * 4)]
    assert learned(asked * 200, 5.0, most=128).guess(request(600), facts(128)) == 100


def test_short_texts_teach_nothing_as_their_frames_are_most_of_them():
    assert learned([request(4, 9, 20)] * 200, 5.0).guess(request(600), facts()) == 100


def test_a_text_in_another_script_is_never_guessed_at_more_than_twice_its_least():
    assert learned(drawn(500), 1.0).guess(request(600), facts()) == 200


def test_a_query_counts_with_every_document():
    assert TextCosts().guess(request(300, 300, query=300), facts()) == 200


def demand(who, guessed):
    return Demand((who, 1.0), None, None, guessed, guessed, prepared=False)


def counted(preparing, claims=None, own="own"):
    return list(preparing.by_weight(claims or Claims(), (own, 1.0)))


def test_who_is_being_prepared_counts_once_by_its_guess_until_it_ends():
    preparing, one, other = InPreparation(), demand("a", 5), demand("b", 7)
    for each in (one, one, other):
        preparing.begin(each)
    one.cost = 100  # as it turned out
    assert (len(preparing), counted(preparing)) == (2, [(1.0, 2, 12)])
    preparing.end(one)
    preparing.end(one)
    assert (len(preparing), counted(preparing)) == (1, [(1.0, 1, 7)])


def test_who_is_being_prepared_counts_as_one_more_where_nothing_of_it_waits():
    preparing, claims = InPreparation(), Claims()
    for who in ("waits", "own", "comes", "comes"):
        preparing.begin(demand(who, 5))
    claims.add(QueuedUnit(Unit(0, 1, "k", None), "r", 0.0, None, "waits", 1.0))
    assert counted(preparing, claims) == [(1.0, 1, 15)]


def test_of_hundreds_that_are_being_prepared_a_few_count():
    preparing = InPreparation()
    for who in range(300):
        preparing.begin(demand(who, 5))
    assert counted(preparing) == [(1.0, COUNTED, 5 * COUNTED)]
