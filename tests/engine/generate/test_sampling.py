"""Sampling against a plain re-statement of each filter."""

import math
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.generate.request import DEFAULT_TEMPERATURE, Sampling, sampling_for
from engine.generate.sampling import FIRST_CANDIDATES, BadLogitsError, Sampler, candidates, penalise_repeats
from engine.serve.problems import answer_problem

PLAIN = Sampling(temperature=1.0, top_p=1.0)
# on a grid: of two that differ by less than rounding does, each side may keep another one
logits_lists = st.lists(st.integers(-20_000, 20_000).map(lambda value: value / 1000), min_size=1, max_size=40)


def reference(logits: list[float], sampling: Sampling) -> dict[int, float]:
    """Temperature, top_k, top_p, min_p, one obvious step after the other."""
    scaled = [value / sampling.temperature for value in logits]
    order = sorted(range(len(scaled)), key=lambda place: -scaled[place])
    if sampling.top_k:
        order = order[: sampling.top_k]
    weights = {place: math.exp(scaled[place] - scaled[order[0]]) for place in order}
    total = sum(weights.values())
    chances = {place: weight / total for place, weight in weights.items()}
    kept: dict[int, float] = {}
    mass = 0.0
    for place in order:
        if kept and mass >= sampling.top_p:
            break
        kept[place] = chances[place]
        mass += chances[place]
    best = max(kept.values())
    kept = {place: chance for place, chance in kept.items() if chance >= sampling.min_p * best}
    return {place: chance / sum(kept.values()) for place, chance in kept.items()}


@given(
    logits=logits_lists,
    temperature=st.floats(0.1, 3),
    top_k=st.integers(0, 45),
    top_p=st.floats(0, 1),
    min_p=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
)
def test_candidates_are_what_the_filters_say(
    logits: list[float], temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    logits = torch.tensor(logits).tolist()
    sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    got = candidates(torch.tensor(logits), sampling)
    assert got.probabilities.sum().item() == pytest.approx(1, abs=1e-5)
    expected = sorted(reference(logits, sampling).values(), reverse=True)
    near_a_border = abs(len(expected) - len(got.ids)) <= 1  # a sum that meets top_p exactly rounds either way
    if len(expected) == len(got.ids):
        assert got.probabilities.tolist() == pytest.approx(expected, abs=1e-5)
    else:
        assert near_a_border


def test_a_flat_vocabulary_larger_than_the_first_candidates_keeps_its_whole_tail() -> None:
    size = FIRST_CANDIDATES * 2
    kept = candidates(torch.zeros(size), Sampling(temperature=1.0, top_p=0.75))
    assert len(kept.ids) == pytest.approx(size * 0.75, abs=1)
    assert len(candidates(torch.zeros(size), PLAIN).ids) == size


def test_temperature_zero_takes_the_best_whatever_the_filters_say() -> None:
    logits = torch.tensor([0.1, 3.0, 2.9])
    sampler = Sampler(Sampling(temperature=0.0, top_k=2, top_p=0.1, seed=3), prompt_ids=[])
    assert [sampler.pick(logits) for _ in range(20)] == [1] * 20


def test_the_same_seed_gives_the_same_tokens_and_another_seed_others() -> None:
    logits = torch.zeros(1000)

    def draw(seed: int) -> list[int]:
        sampler = Sampler(Sampling(temperature=1.0, top_p=1.0, seed=seed), prompt_ids=[])
        return [sampler.pick(logits) for _ in range(20)]

    assert draw(7) == draw(7)
    assert draw(7) != draw(8)


def test_tokens_come_as_often_as_their_probabilities_say() -> None:
    logits = torch.tensor([math.log(0.7), math.log(0.2), math.log(0.1)])
    sampler = Sampler(Sampling(temperature=1.0, top_p=1.0, seed=1), prompt_ids=[])
    counts = Counter(sampler.pick(logits) for _ in range(4000))
    assert [counts[place] / 4000 for place in range(3)] == pytest.approx([0.7, 0.2, 0.1], abs=0.03)


def test_the_repetition_penalty_lowers_seen_tokens_on_both_sides_of_zero() -> None:
    changed = penalise_repeats(torch.tensor([2.0, -2.0, 2.0]), [0, 1], 2.0)
    assert changed.tolist() == [1.0, -4.0, 2.0]


def test_prompt_and_answer_both_count_as_seen() -> None:
    sampler = Sampler(Sampling(temperature=0.0, repetition_penalty=4.0), prompt_ids=[0])
    logits = torch.tensor([3.0, 2.0, 1.0])
    assert [sampler.pick(logits), sampler.pick(logits)] == [1, 2]


@pytest.mark.parametrize("bad", [[math.nan, 1.0], [-math.inf, -math.inf], [math.inf, 0.0]])
def test_logits_without_a_meaning_are_an_error_and_no_token(bad: list[float]) -> None:
    with pytest.raises(BadLogitsError) as caught:
        Sampler(PLAIN, prompt_ids=[]).pick(torch.tensor(bad))
    problem = answer_problem(caught.value).problem
    assert (problem.kind, "download the model again" in problem.fix) == ("answer_failed", True)


def test_a_token_that_is_impossible_is_never_drawn() -> None:
    sampler = Sampler(Sampling(temperature=1.0, top_p=1.0, seed=5), prompt_ids=[])
    assert {sampler.pick(torch.tensor([-math.inf, 0.0, -math.inf])) for _ in range(50)} == {1}


@pytest.mark.parametrize("temperature", [0.0, 1e-320, 1e-30, 1e308])
@pytest.mark.parametrize("penalty", [1e-320, 1e-30, 1.0, 1e308])
@pytest.mark.parametrize("min_p", [0.0, 1.0])
def test_any_temperature_and_penalty_give_a_possible_token(temperature: float, penalty: float, min_p: float) -> None:
    sampling = Sampling(temperature=temperature, top_p=1.0, min_p=min_p, repetition_penalty=penalty, seed=1)
    sampler = Sampler(sampling, prompt_ids=[0, 1, 2, 4])
    logits = torch.tensor([-math.inf, 3.0, -2.0, 1.0, 0.0])
    assert {sampler.pick(logits) for _ in range(20)} <= {1, 2, 3, 4}


def test_a_temperature_close_to_nothing_takes_the_best() -> None:
    sampler = Sampler(Sampling(temperature=1e-320, top_p=1.0, seed=1), prompt_ids=[])
    assert {sampler.pick(torch.tensor([1.0, 3.0, 2.0])) for _ in range(20)} == {1}


def test_the_request_wins_over_the_model_and_the_model_over_our_defaults() -> None:
    model = {"temperature": 0.6, "top_k": 20.0}
    named = sampling_for({"temperature": 0.0, "top_k": None}, model, seed=4)
    assert (named.temperature, named.top_k, named.seed) == (0.0, 20, 4)
    assert sampling_for({}, model, None).temperature == 0.6
    assert sampling_for({}, {}, None).temperature == DEFAULT_TEMPERATURE
