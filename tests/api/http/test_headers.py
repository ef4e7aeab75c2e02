import httpx
import pytest
from starlette.datastructures import Headers

from sie_core import __version__
from sie_core.api.request import RequestHeaders
from sie_core.contracts import InferenceError
from sie_core.logs import ACCESS

URL = "/v1/encode/org/model"
BODY = {"items": [{"text": "x"}]}


async def test_a_reply_says_where_its_time_went(client: httpx.AsyncClient) -> None:
    headers = (await client.post(URL, json=BODY)).headers
    assert headers["x-queue-time"] == "1.00"
    assert headers["x-tokenization-time"] == "2.00"
    assert headers["x-inference-time"] == "9.00"
    assert headers["x-total-time"] == "12.35"
    assert "x-postprocessing-time" not in headers


async def test_truncation_is_counted_and_silence_means_none(client: httpx.AsyncClient, backend) -> None:
    assert "x-sie-truncated" not in (await client.post(URL, json=BODY)).headers
    backend.truncated = 3
    assert (await client.post(URL, json=BODY)).headers["x-sie-truncated"] == "3"
    embedded = await client.post("/v1/embeddings", json={"model": "org/model", "input": "x"})
    assert embedded.headers["x-sie-truncated"] == "3"


@pytest.mark.parametrize("body", [BODY, {"items": []}])
async def test_success_and_failure_name_the_server_and_the_request(client: httpx.AsyncClient, body) -> None:
    headers = (await client.post(URL, json=body)).headers
    assert headers["x-sie-server-version"] == __version__
    assert headers["x-sie-served-by"] == "local"
    assert len(headers["x-sie-runtime-instance"]) == 64
    assert int(headers["x-sie-runtime-instance"], 16) >= 0
    assert headers["x-sie-request-id"] != (await client.post(URL, json=body)).headers["x-sie-request-id"]


async def test_a_clients_request_id_is_kept_where_it_is_harmless(client: httpx.AsyncClient, backend) -> None:
    reply = await client.post(URL, json=BODY, headers={"X-SIE-Request-ID": "mine-7"})
    assert reply.headers["x-sie-request-id"] == backend.requests[0].request_id == "mine-7"
    reply = await client.post(URL, json=BODY, headers={"X-SIE-Request-ID": "x" * 300})
    assert reply.headers["x-sie-request-id"] != "x" * 300


async def test_a_trace_goes_on(client: httpx.AsyncClient) -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    reply = await client.post(URL, json=BODY, headers={"traceparent": f"00-{trace}-b7ad6b7169203331-01"})
    assert reply.headers["x-trace-id"] == trace
    assert "x-trace-id" not in (await client.post(URL, json=BODY, headers={"traceparent": "junk"})).headers


@pytest.mark.parametrize(
    ("prefer", "wait"),
    [("wait=7", 7), ("respond-async, wait=7", 7), ('wait="7"', 7), ("wait=999999", 600), ("wait=0", 0)],
)
async def test_prefer_wait_is_heeded_and_said_to_be(client: httpx.AsyncClient, backend, prefer, wait) -> None:
    reply = await client.post(URL, json=BODY, headers={"Prefer": prefer})
    assert (backend.requests[0].load_wait.seconds, backend.requests[0].load_wait.if_soon) == (wait, False)
    assert reply.headers["preference-applied"] == f"wait={wait}"


@pytest.mark.parametrize("prefer", ["wait=soon", "wait=-1", ""])
async def test_without_a_wait_a_native_request_waits_for_a_load_that_will_soon_be_done(client, backend, prefer) -> None:
    reply = await client.post(URL, json=BODY, headers={"Prefer": prefer})
    assert (backend.requests[0].load_wait.seconds, backend.requests[0].load_wait.if_soon) == (2, True)
    assert "preference-applied" not in reply.headers


@pytest.mark.parametrize("path", [URL, "/v1/embeddings"])
@pytest.mark.parametrize(("timeout_ms", "applied"), [("29999", None), ("30000", "wait=30"), ("60000", "wait=30")])
async def test_a_wait_that_the_deadline_cuts_short_is_not_said_to_be_heeded(client, path, timeout_ms, applied) -> None:
    body = BODY if path == URL else {"model": "org/model", "input": "x"}
    reply = await client.post(path, json=body, headers={"Prefer": "wait=30", "X-SIE-Timeout-Ms": timeout_ms})
    assert reply.status_code == 200
    assert reply.headers.get("preference-applied") == applied


async def test_remote_forbid_is_what_we_do_anyway(client: httpx.AsyncClient) -> None:
    assert (await client.post(URL, json=BODY, headers={"X-SIE-Remote": "forbid"})).status_code == 200
    twice = [("X-SIE-Remote", "forbid"), ("X-SIE-Remote", "forbid")]
    assert (await client.post(URL, json=BODY, headers=twice)).status_code == 400


@pytest.mark.parametrize(
    ("error", "status", "retry_after"),
    [
        (InferenceError("MODEL_LOADING", "Loading.", retry_after_s=2.14), 503, "2.2"),
        (InferenceError("QUEUE_FULL", "Full."), 503, "1"),
        (InferenceError("MODEL_LOAD_FAILED", "Gone.", details={"error_class": "GATED", "permanent": True}), 502, None),
        (InferenceError("NON_FINITE_OUTPUT", "NaN.", param="items[1]"), 500, None),
    ],
)
async def test_what_the_backend_raises_is_answered_as_the_table_says(
    client, backend, error, status, retry_after
) -> None:
    async def fail(_: object) -> None:
        raise error

    backend.act = fail
    reply = await client.post(URL, json=BODY)
    body = reply.json()["error"]
    assert (reply.status_code, body["code"], body["message"]) == (status, error.code, error.message)
    assert body.get("param") == error.param
    assert reply.headers.get("retry-after") == retry_after
    assert error.details.items() <= body.items()


@pytest.mark.parametrize("path", [URL, "/v1/embeddings"])
async def test_a_crash_leaks_nothing_and_is_logged_under_the_request(client, backend, caplog, path) -> None:
    async def crash(_: object) -> None:
        raise RuntimeError("secret at /srv/weights")

    backend.act = crash
    body = BODY if path == URL else {"model": "org/model", "input": "x"}
    reply = await client.post(path, json=body, headers={"X-SIE-Request-ID": "r-42"})
    assert (reply.status_code, reply.json()["error"]["code"]) == (500, "INTERNAL_ERROR")
    assert "secret" not in reply.text
    assert reply.headers["x-sie-request-id"] == "r-42"
    assert "secret at /srv/weights" in caplog.text


async def test_a_path_cannot_write_a_line_of_the_log(client: httpx.AsyncClient, caplog) -> None:
    caplog.set_level("DEBUG")
    await client.post("/v1/encode/a%0AERROR forged", json=BODY)
    told = [record.getMessage() for record in caplog.records if record.name == ACCESS]
    assert len(told) == 1
    assert "forged" in told[0]
    assert "\n" not in told[0]


async def test_clients_of_version_0_are_not_told_a_version_they_would_warn_of(client: httpx.AsyncClient) -> None:
    old = await client.get("/healthz", headers={"X-SIE-SDK-Version": "0.10.1"})
    new = await client.get("/healthz", headers={"X-SIE-SDK-Version": "1.0.0"})
    assert "x-sie-server-version" not in old.headers
    assert new.headers["x-sie-server-version"] == __version__


async def test_a_request_for_which_there_is_no_memory_may_come_again(client, backend) -> None:
    async def starve(_: object) -> None:
        raise MemoryError

    backend.act = starve
    reply = await client.post(URL, json=BODY)
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "RESOURCE_EXHAUSTED")
    assert reply.headers["retry-after"]


def test_headers_decoded_once_are_those_of_starlette() -> None:
    raw = [(b"accept", b"a"), (b"prefer", b"wait=1"), (b"prefer", b"\xe9"), (b"x-empty", b"")]
    ours, theirs = RequestHeaders(raw), Headers(raw=raw)
    for name in ("accept", "prefer", "x-empty", "absent"):
        assert ours.get(name) == theirs.get(name)
        assert ours.getlist(name) == theirs.getlist(name)
        assert (name in ours) == (name in theirs)
    with pytest.raises(KeyError):
        ours["absent"]
