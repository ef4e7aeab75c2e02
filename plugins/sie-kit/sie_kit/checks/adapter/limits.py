"""Checks of texts at the edges: nothing, odd characters, the limit itself, and what is beyond it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sie_core.contracts import InvalidInput, Item, Task, Truncate, Truncation, Unit
from sie_kit.checks.adapter.outputs import check_output
from sie_kit.checks.adapter.requests import ROLES, refusal
from sie_kit.comparing import answer_alone, answer_shared, distance, tolerance
from sie_kit.loading import Items, LoadedModel
from sie_kit.outcomes import Skipped

ODD = ("", " ", " \n\t ", "\0", "a\0b", "\ufeff", "\ud800", "e" + 40 * "\u0301", "\U0010ffff")
"""Texts of nothing, of characters that print nothing, and one that is no Unicode."""
ENDS: Sequence[Truncate] = ("end", "start")
WORDS = ("a", "the")
"""Words that most tokenizers have: a text of the one, then of the other, shows which end was cut."""


def odd_texts_are_answered(model: LoadedModel, items: Items) -> None:
    """An empty text, blanks, NUL and lone surrogates are answered like any other, or refused as InvalidInput."""
    if "text" not in model.adapter.facts.inputs:
        raise Skipped("it reads no text")
    for task in model.tasks():
        for text in ODD:
            pair = [items[0], Item(text=text)]
            try:
                outputs = answer_shared(model.adapter, pair, task)
            except InvalidInput as refused:
                _names_the_second(refused, text)
                continue
            except Exception as error:
                told = f"{type(error).__name__}: {error}"
                raise AssertionError(f"{task.operation} of {text!r} fails ({told}): answer or refuse it") from error
            for item, output in zip(pair, outputs, strict=True):
                check_output(item, output, task)


def _names_the_second(refused: InvalidInput, text: str) -> None:
    where = refused.param or ""
    assert where.startswith("items[1]"), f"{text!r} is refused, and param is {refused.param!r}, not items[1]"


def _limit(model: LoadedModel) -> int:
    limit = model.adapter.facts.max_sequence_length
    if limit is None:
        raise Skipped("facts.max_sequence_length states no limit")
    if "text" not in model.adapter.facts.inputs:
        raise Skipped("it reads no text")
    return limit


def long_texts_are_cut_and_say_so(model: LoadedModel, items: Items) -> None:
    """A text beyond the limit is cut to it and reported, or refused if the request says so.

    A text that `extract` reads in windows is not cut.
    """
    limit = _limit(model)
    for task in model.tasks():
        _check_cut(model, items[0], Item(text="word " * (2 * limit + 8)), task, limit)


def _check_cut(model: LoadedModel, short: Item, long: Item, task: Task, limit: int) -> None:
    units = list(model.adapter.prepare([short, long], task))
    cuts = [unit.truncated for unit in units if unit.item == 1 and unit.truncated is not None]
    if task.operation == "extract" and not cuts and sum(unit.item == 1 for unit in units) > 1:
        return
    assert len(cuts) == 1, f"a text of more than {limit} tokens reports {len(cuts)} cuts, not 1"
    assert cuts[0].tokens > cuts[0].kept, f"the cut says {cuts[0].tokens} tokens of which {cuts[0].kept} were kept"
    assert cuts[0].kept <= limit, f"{cuts[0].kept} tokens were kept and the limit is {limit}"
    assert all(unit.truncated is None for unit in units if unit.item == 0), "a short text reports a cut"
    error = refusal(model, [short, long], replace(task, truncate="error"), "a long text with truncate=error")
    assert error.code == "INPUT_TOO_LONG", f"a refused long text answers {error.code}, not INPUT_TOO_LONG"
    assert error.param == "items[1].text", f"param is {error.param!r}, not 'items[1].text'"


def the_limit_itself_is_not_cut(model: LoadedModel, items: Items) -> None:
    """A text of exactly as many tokens as the limit is whole; one token more is cut, or refused if asked to be."""
    limit, checked = _limit(model), False
    for task in _cutting(model):
        base, each = _tokens_of_words(model, task)
        words = (limit - base) // each
        if words < 1 or base + words * each != limit:
            continue
        checked = True
        whole, long = (Item(text=" ".join([WORDS[0]] * count)) for count in (words, words + 1))
        for strict in (task, replace(task, truncate="error")):
            try:
                units = list(model.adapter.prepare([whole], strict))
            except InvalidInput as error:
                raise AssertionError(f"a text of {limit} tokens, the limit, is refused: {error.message}") from error
            assert all(unit.truncated is None for unit in units), f"a text of {limit} tokens, the limit, is cut"
        cut = _cut_of(list(model.adapter.prepare([long], task)))
        assert cut is not None, f"a text of {limit + each} tokens is not cut, and the limit is {limit}"
        refusal(model, [long], replace(task, truncate="error"), f"a text of {limit + each} tokens")
    if not checked:
        raise Skipped("no text of exactly so many tokens was found")


def a_cut_text_is_the_text_that_was_kept(model: LoadedModel, items: Items) -> None:
    """A text cut at its end, or at its start, gives what the kept part gives, and the cut says how long it was.

    Compared where `tokenize` gives the kept part the same tokens alone.
    """
    limit, task = _limit(model), _plain(model)
    half = " ".join([WORDS[0]] * limit)
    text = f"{half} {' '.join([WORDS[1]] * limit)}"
    try:
        tokens, word = model.adapter.tokenize([text, WORDS[0]], special=True)
    except NotImplementedError:
        raise Skipped("it shows no tokens") from None
    counted = sum(unit.tokens for unit in model.adapter.prepare([Item(text=WORDS[0])], task))
    if counted != len(word):
        raise Skipped("its units hold other tokens than the text's: a prompt")
    inner = [token for token in tokens if not token.special]
    checked = False
    for end in ENDS:
        asked = replace(task, truncate=end)
        cut = _cut_of(list(model.adapter.prepare([Item(text=text)], asked)))
        most = 0 if cut is None else cut.kept - (len(tokens) - len(inner))
        if cut is None or most < 1:
            continue
        told = cut.tokens == len(tokens) or cut.at_least
        assert told, f"the cut says {cut.tokens} tokens, and tokenize lists {len(tokens)}"
        kept = inner[:most] if end == "end" else inner[-most:]
        part = text[kept[0].start : kept[-1].stop]
        alone = [token.id for token in model.adapter.tokenize([part], special=False)[0]]
        if alone != [token.id for token in kept]:
            continue
        checked = True
        long, short = answer_alone(model.adapter, [Item(text=text), Item(text=part)], asked)
        far = distance(long, short)
        assert far <= tolerance(model.adapter), (
            f"a text cut at its {end} to {cut.kept} tokens gives something else than these alone, {far:.1e} off"
        )
    if not checked:
        raise Skipped("nothing is cut between two words")


def _plain(model: LoadedModel) -> Task:
    """Ask to encode, without options and prompts."""
    if "encode" not in model.adapter.facts.operations:
        raise Skipped("it does not encode")
    return replace(model.task("encode"), options={}, instruction=None, input_type=None)


def _cutting(model: LoadedModel) -> Sequence[Task]:
    """List the tasks whose texts are cut; `extract` may read in windows instead."""
    return [task for task in model.tasks() if task.operation != "extract"]


def _tokens_of_words(model: LoadedModel, task: Task) -> tuple[int, int]:
    """Return the tokens that are there without a text, and those of each word."""
    texts = [Item(text=" ".join([WORDS[0]] * count)) for count in (1, 2)]
    one, two = (sum(unit.tokens for unit in model.adapter.prepare([item], task)) for item in texts)
    if two <= one:
        raise Skipped("its units state no tokens")
    return 2 * one - two, two - one


def _cut_of(units: Sequence[Unit]) -> Truncation | None:
    return next((unit.truncated for unit in units if unit.truncated is not None), None)


def tokens_are_those_of_tokenize(model: LoadedModel, items: Items) -> None:
    """Units count the tokens that `tokenize` lists; each names its part of the text.

    With a prompt, every text counts as many more.
    """
    task = _plain(model)
    texts = [item for item in items if item.text is not None and not item.images]
    try:
        listed = [model.adapter.tokenize([item.text or ""], special=True)[0] for item in texts]
        first = [model.adapter.tokenize([item.text or ""], special=True, most=2)[0] for item in texts]
    except NotImplementedError:
        raise Skipped("it shows no tokens") from None
    if not texts:
        raise Skipped("it reads no text")
    units = list(model.adapter.prepare(texts, task))
    counted = [sum(unit.tokens for unit in units if unit.item == place) for place in range(len(texts))]
    whole = [place for place in range(len(texts)) if all(u.truncated is None for u in units if u.item == place)]
    more = {counted[place] - len(listed[place]) for place in whole}
    assert len(more) <= 1, f"units count {counted} tokens, and tokenize lists {[len(each) for each in listed]}"
    if not _prompted(model, texts[0], task):
        assert more <= {0}, f"units count {more.pop()} tokens more than tokenize lists, and there is no prompt"
    for item, tokens, start in zip(texts, listed, first, strict=True):
        assert list(start) == list(tokens[:2]), f"tokenize(most=2) of {item.text!r} does not list the first two tokens"
        for token in tokens:
            if not token.special and token.start is not None:
                there = (item.text or "")[token.start : token.stop]
                assert there == token.text, f"a token of {item.text!r} is {token.text!r}, its offsets cut out {there!r}"


def _prompted(model: LoadedModel, item: Item, task: Task) -> bool:
    """Whether the text of some role has a prompt: then the one of no role may have one too."""
    counts = set()
    for role in ROLES:
        counts.add(sum(unit.tokens for unit in model.adapter.prepare([item], replace(task, input_type=role))))
    return len(counts) > 1
