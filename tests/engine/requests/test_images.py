"""Requests with images: they prepare on threads of their own, so that no text waits behind a picture."""

import asyncio
from dataclasses import replace

import pytest

from sie_core.contracts import Item, Media
from tests.engine.conftest import bounded, request

IMAGE = Item(images=(Media(b"a picture", "png"),))


@pytest.fixture
async def held(engines):
    """An engine with one thread a stage, a model that reads texts and images, and what holds its images."""
    hold = engines.hold()
    model = engines.model("seeing", inputs=("text", "image"), image_hold=str(hold))
    engine = await engines.start(load=[model], preprocessor_workers=1, image_workers=1)
    return engine, model, hold


async def test_a_text_is_answered_while_every_image_thread_is_busy(held):
    engine, model, hold = held
    images = [asyncio.create_task(engine.infer(request(model, items=[IMAGE]))) for _ in range(3)]
    for _ in range(3):
        await bounded(engine.infer(request(model, "a text")))
    assert not any(task.done() for task in images)
    hold.off()
    for task in images:
        assert (await bounded(task)).usage.images == 1


async def test_an_image_among_texts_or_in_a_query_makes_a_request_one_with_images(held):
    engine, model, hold = held
    mixed = request(model, items=[Item(text="a"), IMAGE])
    asked = replace(request(model, "a"), operation="score", query=IMAGE)
    waiting = [asyncio.create_task(engine.infer(each)) for each in (mixed, asked)]
    await bounded(engine.infer(request(model, "a text")))
    assert not any(task.done() for task in waiting)
    hold.off()
    for task in waiting:
        await bounded(task)


async def test_threads_for_images_end_with_the_engine(engines, held):
    engine, model, hold = held
    hold.off()
    await bounded(engine.infer(request(model, items=[IMAGE])))
    assert engines.threads("sie-image")
    await bounded(engine.close())
    assert not engines.threads("sie-image")
