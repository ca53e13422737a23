"""Events reach the API server, whatever is in them."""

import asyncio

import pytest
from distserve_testing.clusters import Namespace, until
from distserve_testing.deployments import resource
from distserve_testing.rest import Rest
from kubernetes.aio import client, config

from distserve_operator.cluster.eventing import EventRecorder, Happening
from distserve_operator.cluster.requesting import Api

NOTES = ["short", "x" * 1024, "x" * 1025, "é" * 600, "x" + "é" * 600, "xy" + "模" * 600, "😀" * 300]


@pytest.mark.cluster
async def test_a_long_note_arrives_cut_at_whole_characters(namespace: Namespace, rest: Rest) -> None:
    """Kubernetes counts bytes, and refuses a whole event for one too many."""
    body = resource()
    body["metadata"]["namespace"] = namespace.name
    configuration = client.Configuration()
    await config.load_kube_config(str(namespace.cluster.kubeconfig), client_configuration=configuration)
    async with client.ApiClient(configuration) as connection:
        recorder = EventRecorder(Api(connection))
        running = asyncio.create_task(recorder.run())
        for number, note in enumerate(NOTES):
            recorder.record(body, Happening("Warning", f"Note{number}", "Reconcile", note))

        def arrived() -> dict[str, str] | None:
            found = {event["reason"]: event["message"] for event in rest.list("events", namespace.name)}
            return found if len(found) == len(NOTES) else None

        try:
            notes = await asyncio.to_thread(until, arrived, "every event is posted", 20)
        finally:
            running.cancel()
    for number, note in enumerate(NOTES):
        arrival = notes[f"Note{number}"]
        assert arrival == note if len(note.encode()) <= 1024 else note.startswith(arrival.removesuffix("…"))
        assert len(arrival.encode()) in range(min(len(note.encode()), 1021), 1025)
