"""Asks an API server directly: many times cheaper than a kubectl process for tests that look again and again."""

import base64
import json
import ssl
import tempfile
from pathlib import Path
from typing import Any, Final

import httpx
import yaml

Manifest = dict[str, Any]

# Where the kinds live that tests of the operator handle.
PREFIXES: Final = {
    "distservedeployments": "/apis/distserve.io/v1alpha1",
    "deployments": "/apis/apps/v1",
    "rolebindings": "/apis/rbac.authorization.k8s.io/v1",
    **dict.fromkeys(
        ("pods", "services", "serviceaccounts", "resourcequotas", "namespaces", "events", "nodes"), "/api/v1"
    ),
}
CHILDREN: Final = ("pods", "services", "serviceaccounts", "rolebindings", "deployments")
APPLY: Final = "application/apply-patch+yaml"
MERGE: Final = "application/merge-patch+json"


class Rest:
    """The administrator of a cluster. Each request has a connection of its own: the server may be restarted."""

    def __init__(self, kubeconfig: Path) -> None:
        access = yaml.safe_load(kubeconfig.read_text())
        cluster, user = access["clusters"][0]["cluster"], access["users"][0]["user"]
        context = ssl.create_default_context(cadata=_text(cluster["certificate-authority-data"]))
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as pair:
            pair.write(_text(user["client-certificate-data"]) + _text(user["client-key-data"]))
            pair.flush()
            context.load_cert_chain(pair.name)
        limits = httpx.Limits(max_keepalive_connections=0)
        self._client = httpx.Client(base_url=cluster["server"], verify=context, limits=limits, timeout=20)

    def close(self) -> None:
        """Close what is open."""
        self._client.close()

    def find(self, plural: str, namespace: str, name: str) -> Manifest | None:
        """One object; None when it does not exist."""
        response = self._client.get(path(plural, namespace, name))
        return None if response.status_code == 404 else _checked(response)

    def get(self, plural: str, namespace: str, name: str) -> Manifest:
        """One object that exists."""
        return _checked(self._client.get(path(plural, namespace, name)))

    def list(self, plural: str, namespace: str, selector: str = "") -> list[Manifest]:
        """Objects of a kind, those with a label only if `selector` says so."""
        items: list[Manifest] = _checked(self._client.get(path(plural, namespace), params={"labelSelector": selector}))[
            "items"
        ]
        return items

    def apply(self, plural: str, namespace: str, body: Manifest, **query: str) -> Manifest:
        """Server-side apply."""
        where = path(plural, namespace, body["metadata"]["name"])
        return _checked(self._patch(where, body, APPLY, {"fieldManager": "test", "force": "true", **query}))

    def merge(
        self, plural: str, namespace: str | None, name: str, patch: Manifest, subresource: str | None = None
    ) -> None:
        """Merge patch of an object or of a part of it."""
        _checked(self.try_merge(plural, namespace, name, patch, subresource))

    def try_merge(
        self, plural: str, namespace: str | None, name: str, patch: Manifest, subresource: str | None = None
    ) -> httpx.Response:
        """The same, whatever the answer."""
        where = path(plural, namespace, name) + (f"/{subresource}" if subresource else "")
        return self._patch(where, patch, MERGE, {})

    def create(self, plural: str, namespace: str | None, body: Manifest, **query: str) -> Manifest:
        """POST of an object that is accepted."""
        return _checked(self.try_create(plural, namespace, body, **query))

    def try_create(self, plural: str, namespace: str | None, body: Manifest, **query: str) -> httpx.Response:
        """The same, whatever the answer."""
        return self._client.post(path(plural, namespace), json=body, params=query)

    def delete(self, plural: str, namespace: str | None, name: str) -> None:
        """Ask for the deletion of an object that exists."""
        _checked(self._client.delete(path(plural, namespace, name)))

    def _patch(self, where: str, body: Manifest, content_type: str, query: dict[str, str]) -> httpx.Response:
        headers = {"Content-Type": content_type}
        return self._client.patch(where, content=json.dumps(body), headers=headers, params=query)


def path(plural: str, namespace: str | None, name: str | None = None) -> str:
    """URL path of an object, or of a list."""
    where = f"/namespaces/{namespace}" if namespace else ""
    return f"{PREFIXES[plural]}{where}/{plural}" + (f"/{name}" if name else "")


def _checked(response: httpx.Response) -> Manifest:
    assert response.is_success, f"{response.request.method} {response.request.url}: {response.text}"
    found: Manifest = response.json()
    return found


def _text(data: str) -> str:
    return base64.b64decode(data).decode()
