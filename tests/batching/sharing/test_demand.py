"""What requests are guessed to cost before they are prepared, and who is being prepared."""

from dataclasses import replace
from random import Random
from types import SimpleNamespace

import pytest

from sie_core.batching.sharing.demand import Demand, TextCosts
from sie_core.batching.sharing.in_preparation import COUNTED, LONGEST_S, InPreparation
from sie_core.contracts import InferenceRequest, Item

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


def test_three_cheap_requests_of_four_do_not_decide_for_the_large_one():
    costs, cheap, large = TextCosts(), request(50), request(*[600] * 32)
    for _ in range(1000):
        for asked, tokens in ((cheap, 102), (cheap, 102), (cheap, 102), (large, cost(large, 5.0))):
            costs.learn(asked, facts(), tokens)
    assert 0.9 * cost(large, 5.0) <= costs.guess(large, facts()) <= cost(large, 5.0)


@pytest.mark.parametrize(
    "more", [{"instruction": "Find it"}, {"labels": ("person",)}, {"output_schema": {"type": "object"}}]
)
def test_requests_whose_texts_are_not_all_that_costs_teach_nothing(more):
    asked = replace(request(*[600] * 8), **more)
    assert learned([asked] * 200, 4.0).guess(request(600), facts()) == 100


def test_items_with_pictures_teach_nothing():
    items = [Item(text="x" * 600, images=(object(),)) for _ in range(8)]
    asked = replace(request(), items=items)
    assert learned([asked] * 200, 4.0).guess(request(600), facts()) == 100


def test_a_query_counts_with_every_document():
    assert TextCosts().guess(request(300, 300, query=300), facts()) == 200


def demand(who, guessed):
    return Demand((who, 1.0), None, None, guessed, guessed, prepared=False)


def test_who_is_being_prepared_counts_once_by_its_guess_until_it_ends():
    preparing, one, other = InPreparation(), demand("a", 5), demand("b", 7)
    for each in (one, one, other):
        preparing.begin(each, 0.0)
    one.cost = 100  # as it turned out
    assert sorted(preparing.before(0.0)) == [(("a", 1.0), 5), (("b", 1.0), 7)]
    preparing.end(one)
    preparing.end(one)
    assert list(preparing.before(0.0)) == [(("b", 1.0), 7)]
    assert len(preparing) == 1


def test_of_hundreds_that_are_being_prepared_the_last_few_count():
    preparing = InPreparation()
    for who in range(300):
        preparing.begin(demand(who, 5), 0.0)
    assert [who for (who, _), _ in preparing.before(0.0)] == [299 - number for number in range(COUNTED)]


def test_who_takes_long_to_be_prepared_counts_no_longer():
    preparing = InPreparation()
    preparing.begin(demand("slow", 5), 0.0)
    preparing.begin(demand("quick", 5), LONGEST_S)
    assert [who for (who, _), _ in preparing.before(1.5 * LONGEST_S)] == ["quick"]
