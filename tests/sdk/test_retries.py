"""Every row of the wire contract's table of codes: what the client does, how long it waits, how it gives up."""

from __future__ import annotations

import pytest
from sie_sdk import errors
from sie_sdk._calls.exchange import Response, TransportFailure


def lost(phase):
    return TransportFailure(phase, OSError("the wire is cut"))


def given_up(rehearsal, *outcomes, **call):
    with pytest.raises(errors.SIEError) as caught:
        rehearsal.encode(*outcomes, **call)
    return caught.value


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "INVALID_INPUT", errors.RequestError),
        (400, "INPUT_TOO_LONG", errors.InputTooLongError),
        (401, "UNAUTHORIZED", errors.RequestError),
        (403, "FORBIDDEN", errors.RequestError),
        (404, "MODEL_NOT_FOUND", errors.RequestError),
        (409, None, errors.RequestError),
        (413, "PAYLOAD_TOO_LARGE", errors.RequestError),
        (422, None, errors.RequestError),
        (500, "INFERENCE_ERROR", errors.ServerError),
        (500, None, errors.ServerError),
        (502, "MODEL_LOAD_FAILED", errors.ModelLoadFailedError),
        (502, None, errors.ServerError),
        (503, None, errors.ServerError),
        (503, "MODEL_NOT_LOADED", errors.ServerError),
        (503, "QUEUE_UNAVAILABLE", errors.ServerError),
        (503, "transport_failure", errors.ServerError),
        (301, None, errors.RequestError),
        (204, None, errors.RequestError),
    ],
)
def test_what_another_try_cannot_help_is_raised_at_once(rehearsal, status, code, kind):
    error = given_up(rehearsal, rehearsal.error(status, code))
    assert type(error) is kind
    assert (error.status_code, error.code, str(error)) == (status, code, "the reason")
    assert len(rehearsal.sends) == 1
    assert not rehearsal.sleeps


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (202, None),
        (202, "PROVISIONING"),
        (429, None),
        (429, "RATE_LIMITED"),
        (503, "PROVISIONING"),
        (503, "provisioning"),
        (503, "MODEL_LOADING"),
        (503, "LORA_LOADING"),
        (503, "RESOURCE_EXHAUSTED"),
        (503, "QUEUE_FULL"),
        (503, "QUEUE_UNAVAILABLE"),
        (503, "MODEL_NOT_LOADED"),
        (503, "transport_failure"),
        (504, None),
        (504, "DEADLINE_EXCEEDED"),
    ],
)
def test_the_server_s_pause_is_kept_exactly_and_the_call_goes_on(rehearsal, status, code):
    rehearsal.luck.value = 1.0
    busy = rehearsal.error(status, code, retry_after=2.5)
    result = rehearsal.encode(busy, rehearsal.vectors())
    assert result["dense"].tolist() == [1, 2, 3]
    assert rehearsal.sleeps == [2.5]
    assert rehearsal.sends[0] == rehearsal.sends[1]


@pytest.mark.parametrize(
    ("status", "code", "pause"),
    [
        (202, None, 5.0),
        (429, None, 1.0),
        (503, "PROVISIONING", 5.0),
        (503, "MODEL_LOADING", 5.0),
        (503, "LORA_LOADING", 1.0),
        (503, "RESOURCE_EXHAUSTED", 5.0),
        (503, "QUEUE_FULL", 1.0),
        (504, None, 5.0),
    ],
)
@pytest.mark.parametrize("luck", [0.0, 1.0])
def test_without_the_server_s_word_the_pause_is_ours_less_a_jitter(rehearsal, status, code, pause, luck):
    rehearsal.luck.value = luck
    rehearsal.encode(rehearsal.error(status, code), rehearsal.vectors())
    assert rehearsal.sleeps == [pause * (1 - 0.25 * luck)]


def test_a_pause_of_zero_is_honoured(rehearsal):
    rehearsal.encode(rehearsal.error(503, "QUEUE_UNAVAILABLE", retry_after=0), rehearsal.vectors())
    assert rehearsal.sleeps == [0.0]


def test_a_pause_given_as_a_date_is_read_by_the_wall_clock(rehearsal):
    # 1 700 000 000 is Tue, 14 Nov 2023 22:13:20 GMT.
    later = rehearsal.error(429, retry_after="Tue, 14 Nov 2023 22:13:50 GMT")
    past = rehearsal.error(429, retry_after="Tue, 14 Nov 2023 22:00:00 GMT")
    rehearsal.encode(later, past, rehearsal.vectors())
    assert rehearsal.sleeps == [30.0, 0.0]


@pytest.mark.parametrize("hint", ["nan", "inf", "-1", "soon", "", "Tue, 99 Nov 2023 22:13:50 GMT"])
def test_a_pause_that_makes_no_sense_is_ignored(rehearsal, hint):
    rehearsal.encode(rehearsal.error(429, retry_after=hint), rehearsal.vectors())
    assert rehearsal.sleeps == [1.0]


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (202, None, errors.ProvisioningError),
        (503, "PROVISIONING", errors.ProvisioningError),
        (503, "MODEL_LOADING", errors.ModelLoadingError),
        (504, None, errors.ServerError),
    ],
)
def test_a_wait_for_a_model_is_cut_to_the_budget_and_one_try_follows(rehearsal, status, code, kind):
    error = given_up(rehearsal, rehearsal.error(status, code, retry_after=40), provision_timeout_s=100)
    assert type(error) is kind
    assert rehearsal.sleeps == [40, 40, 20]
    assert len(rehearsal.sends) == 4
    assert "provision_timeout_s" in str(error)


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (429, None, errors.RateLimitError),
        (503, "QUEUE_FULL", errors.ServerError),
        (503, "QUEUE_UNAVAILABLE", errors.ServerError),
    ],
)
def test_a_wait_for_a_busy_server_that_would_outlast_the_budget_is_not_begun(rehearsal, status, code, kind):
    error = given_up(rehearsal, rehearsal.error(status, code, retry_after=40), provision_timeout_s=100)
    assert type(error) is kind
    assert error.retry_after == 40
    assert rehearsal.sleeps == [40, 40]


def test_the_budget_is_fifteen_minutes_where_the_call_says_nothing(rehearsal):
    given_up(rehearsal, rehearsal.error(503, "MODEL_LOADING", retry_after=300))
    assert rehearsal.sleeps == [300, 300, 300]


def test_a_budget_of_zero_means_one_try(rehearsal):
    given_up(rehearsal, rehearsal.error(503, "MODEL_LOADING", retry_after=1), provision_timeout_s=0)
    assert len(rehearsal.sends) == 1


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (202, None, errors.ProvisioningError),
        (503, "PROVISIONING", errors.ProvisioningError),
        (504, None, errors.ServerError),
    ],
)
def test_capacity_is_not_waited_for_when_that_is_declined(rehearsal, status, code, kind):
    error = given_up(rehearsal, rehearsal.error(status, code, retry_after=1), wait_for_capacity=False)
    assert type(error) is kind
    assert len(rehearsal.sends) == 1


@pytest.mark.parametrize(
    ("status", "code"), [(429, None), (503, "MODEL_LOADING"), (503, "LORA_LOADING"), (503, "RESOURCE_EXHAUSTED")]
)
def test_what_ends_by_itself_is_waited_for_even_so(rehearsal, status, code):
    busy = rehearsal.error(status, code, retry_after=1)
    assert rehearsal.encode(busy, rehearsal.vectors(), wait_for_capacity=False)
    assert len(rehearsal.sends) == 2


def test_a_lora_is_waited_for_ten_times(rehearsal):
    error = given_up(rehearsal, rehearsal.error(503, "LORA_LOADING", retry_after=1), options={"lora": "legal"})
    assert rehearsal.sleeps == [1.0] * 10
    assert (error.lora, error.model) == ("legal", "org/m")


def test_memory_is_waited_for_longer_each_time_and_never_beyond_thirty_seconds(rehearsal):
    error = given_up(rehearsal, rehearsal.error(503, "RESOURCE_EXHAUSTED", retry_after=6), max_oom_retries=4)
    assert rehearsal.sleeps == [6, 12, 24, 30]
    assert type(error) is errors.ResourceExhaustedError
    assert (error.retries, error.model, error.retry_after) == (4, "org/m", 6)


def test_only_the_first_wait_for_memory_is_the_server_s_own_and_so_unjittered(rehearsal):
    rehearsal.luck.value = 1.0
    given_up(rehearsal, rehearsal.error(503, "RESOURCE_EXHAUSTED", retry_after=60), max_oom_retries=2)
    assert rehearsal.sleeps == [30, 22.5]


def test_memory_is_not_waited_for_beyond_the_budget(rehearsal):
    busy = rehearsal.error(503, "RESOURCE_EXHAUSTED", retry_after=6)
    error = given_up(rehearsal, busy, provision_timeout_s=10)
    assert rehearsal.sleeps == [6]
    assert error.retries == 1


def test_no_memory_retries_means_none(rehearsal):
    assert given_up(rehearsal, rehearsal.error(503, "RESOURCE_EXHAUSTED"), max_oom_retries=0).retries == 0
    assert not rehearsal.sleeps


@pytest.mark.parametrize("phase", ["unsent", "queued", "interrupted"])
def test_a_server_out_of_reach_is_tried_again_ever_more_slowly(rehearsal, phase):
    error = given_up(rehearsal, lost(phase), provision_timeout_s=20)
    assert rehearsal.sleeps == [0.25, 0.5, 1, 2, 4, 5, 5]
    assert type(error) is errors.SIEConnectionError
    assert "the wire is cut" in str(error)
    assert isinstance(error.__cause__, OSError)


def test_a_server_that_was_never_reached_is_waited_for_a_few_seconds_and_the_error_names_it(rehearsal):
    error = given_up(rehearsal, lost("unsent"))
    assert rehearsal.sleeps == [0.25, 0.5, 1, 2, 4]
    assert type(error) is errors.SIEConnectionError
    assert "http://server" in str(error)
    assert "provision_timeout_s" in str(error)


def test_a_server_that_answered_once_is_waited_for_as_long_as_the_budget_is(rehearsal):
    loading = rehearsal.error(503, "MODEL_LOADING", retry_after=1)
    given_up(rehearsal, loading, lost("unsent"))
    assert sum(rehearsal.sleeps) > 800
    given_up(rehearsal, lost("interrupted"), lost("unsent"))
    assert sum(rehearsal.sleeps) > 1600


def test_a_server_that_answered_an_earlier_call_is_waited_for_too(rehearsal):
    client = rehearsal.protocol()
    rehearsal.play(client.encode("org/m", "text", {}), [rehearsal.vectors()])
    with pytest.raises(errors.SIEConnectionError):
        rehearsal.play(client.encode("org/m", "text", {}), [lost("unsent")])
    assert sum(rehearsal.sleeps) > 800


def test_a_client_that_waits_for_its_own_connections_goes_on(rehearsal):
    given_up(rehearsal, lost("queued"))
    assert sum(rehearsal.sleeps) > 800


def test_the_first_failed_connect_of_a_call_is_warned_of_and_later_ones_are_told(rehearsal, caplog):
    caplog.set_level("INFO", "sie_sdk")
    rehearsal.encode(lost("unsent"), lost("unsent"), rehearsal.vectors())
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "http://server" in caplog.text
    assert "the wire is cut" in caplog.text


def test_our_own_pauses_between_connects_are_jittered(rehearsal):
    rehearsal.luck.value = 1.0
    rehearsal.encode(lost("unsent"), rehearsal.vectors())
    assert rehearsal.sleeps == [0.25 * 0.75]


@pytest.mark.parametrize(("phase", "wait"), [("unsent", False), ("interrupted", False), ("final", True)])
def test_a_lost_connection_is_raised_at_once_where_another_try_is_declined_or_useless(rehearsal, phase, wait):
    assert type(given_up(rehearsal, lost(phase), wait_for_capacity=wait)) is errors.SIEConnectionError
    assert len(rehearsal.sends) == 1


def test_failures_of_several_kinds_share_one_budget(rehearsal):
    busy = rehearsal.error(429, retry_after=20)
    loading = rehearsal.error(503, "MODEL_LOADING", retry_after=30)
    given_up(rehearsal, lost("unsent"), busy, loading, provision_timeout_s=60)
    assert rehearsal.sleeps == [0.25, 20, 30, 9.75]


def test_reads_are_not_repeated_over_a_broken_connection(rehearsal):
    with pytest.raises(errors.SIEConnectionError):
        rehearsal.play(rehearsal.protocol().list_models({}), [lost("interrupted")])
    assert len(rehearsal.sends) == 1


def test_the_code_in_the_header_wins_over_the_one_in_the_body(rehearsal):
    busy = rehearsal.error(503, "INTERNAL_ERROR", in_header="MODEL_LOADING", retry_after=1)
    rehearsal.encode(busy, rehearsal.vectors())
    assert rehearsal.sleeps == [1]


def test_a_load_failure_needs_the_body_s_word_and_tells_its_class(rehearsal):
    facts = {"error_class": "GATED", "permanent": True, "attempts": 2}
    error = given_up(rehearsal, rehearsal.error(502, "MODEL_LOAD_FAILED", **facts))
    assert (error.error_class, error.permanent, error.attempts) == ("GATED", True, 2)
    proxied = given_up(rehearsal, rehearsal.error(502, None, in_header="MODEL_LOAD_FAILED"))
    assert type(proxied) is errors.ServerError


@pytest.mark.parametrize(
    ("content_type", "body", "code", "message", "param"),
    [
        ("application/json", b'{"error":{"code":"X","message":"m","param":"p"},"detail":"d"}', "X", "m", "p"),
        ("application/json", b'{"error":"draining","detail":"d"}', None, "draining", None),
        ("application/json", b'{"detail":{"code":"X","message":"m","param":"p"}}', "X", "m", "p"),
        ("application/json", b'{"detail":"m"}', None, "m", None),
        ("application/json", b'{"detail":[{"loc":["a"]}]}', None, "[{'loc': ['a']}]", None),
        ("application/json", b'{"message":"m"}', None, "m", None),
        ("application/json", b'{"error":{"code":7,"message":null}}', None, "HTTP 400", None),
        ("application/json", b"[]", None, "[]", None),
        ("application/json", b"", None, "HTTP 400", None),
        ("application/json", b"[" * 100_000, None, "[" * 500, None),
        ("text/html", b"<b>no</b> \xff", None, "<b>no</b> \ufffd", None),
        ("application/msgpack", b"\x81\xa5error\x81\xa4code\xa1X", "X", "HTTP 400", None),
        ("application/x-msgpack", b"\xc1", None, "\ufffd", None),
    ],
)
def test_error_bodies_of_every_shape_are_read(rehearsal, content_type, body, code, message, param):
    error = given_up(rehearsal, Response(400, {"content-type": content_type}, body))
    assert (error.code, str(error), error.param) == (code, message, param)


def test_an_error_tells_what_the_reply_said_of_the_request(rehearsal):
    error = given_up(rehearsal, Response(400, {"x-sie-request-id": "r-1", "x-sie-served-by": "local"}, b"{}"))
    assert error.request == {"id": "r-1", "served_by": "local"}


def test_every_code_of_the_table_that_may_be_retried_is_and_no_other(rehearsal):
    """The table and the client agree: `retryable` with a pause from the server means one more try."""
    for spec in errors.ERRORS.values():
        rehearsal.sends.clear()
        first = rehearsal.error(spec.status, spec.code, retry_after=1)
        try:
            rehearsal.encode(first, rehearsal.vectors())
        except errors.SIEError:
            assert not spec.retryable, spec.code
        assert len(rehearsal.sends) == (2 if spec.retryable else 1), spec.code
