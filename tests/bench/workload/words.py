"""A fixed list of words, and sentences made of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

_COMMON = """
    the of and to in a is that for it was on are as with his they at be this from have or by one had not but what
    all were when we there can an your which their said if do will each about how up out them then she many some so
    these would other into has more her two like him see time could no make than first been its who now people my made
    over did down only way find use may water long little very after words called just where most know get through
    back much before go good new write our used me man too any day same right look think also around another came come
    work three word must because does part even place well such here take why things help put years different away
    again off went old number great tell men say small every found still between name should home big give air line
    set own under read last never us left end along while might next sound below saw something thought both few those
    always looked show large often together asked house world going want school important until form food keep
    children feet land side without boy once animals life enough took sometimes four head above kind began almost
    live page got earth need far hand high year mother light parts country father let night following picture being
    study second eyes soon times story boys since white days ever paper hard near sentence better best across during
    today others however sure means knew try told young miles sun ways thing whole hear example heard several change
    answer room sea against top turned learn point city play toward five using himself usually money"""
COMMON = tuple(_COMMON.split())
"""Words that are one token each to a BERT tokeniser."""

_RARE = """
    thermodynamics reimbursement photosynthesis unmistakably crystallography dehumidifier misconfigured counterpoint
    hydroelectric interoperability bookkeeping overcompensated watercolourist telemetry retrofitted microbiome
    cartographer semiconductors unsubscribe fermentation lighthouse deserialise quarterfinal wheelbarrow
    pollination anaesthetic stalactites windbreaker preauthorised checksum"""
RARE = tuple(_RARE.split())
"""Words of two to five tokens, as names and terms are in real texts."""

RARE_SHARE = 0.05
SENTENCE = 14
"""Words to a full stop, on average."""


def sentences(words: int, random: np.random.Generator) -> str:
    """Make a text of `words` words."""
    return " ".join(_stream(words, random))


def _stream(words: int, random: np.random.Generator) -> Iterator[str]:
    start = True
    for place in range(words):
        source = RARE if random.random() < RARE_SHARE else COMMON
        word = str(source[int(random.integers(len(source)))])
        ends = place + 1 == words or random.random() < 1 / SENTENCE
        yield (word.capitalize() if start else word) + ("." if ends else "")
        start = ends
