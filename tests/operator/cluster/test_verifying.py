"""What the API server lists is compared with what is known of it."""

from collections.abc import Mapping
from typing import Any

import pytest
from typing_extensions import override

from distserve_operator.cluster.kinds import DEPLOYMENT_RESOURCE
from distserve_operator.cluster.requesting import Api
from distserve_operator.cluster.verifying import _listed


class Answering(Api):
    """An API server that has the same answer to everything."""

    def __init__(self, items: list[dict[str, Any]] | None) -> None:
        self._items = items

    @override
    async def get(self, path: str, query: Mapping[str, str] | None = None, accept: str = "") -> dict[str, Any]:
        return {"metadata": {"resourceVersion": "1"}, "items": self._items}


@pytest.mark.parametrize("items", [None, []], ids=["null", "empty"])
async def test_a_list_without_objects_may_be_null(items: list[dict[str, Any]] | None) -> None:
    """As Go writes a slice that nobody has added to."""
    assert await _listed(Answering(items), DEPLOYMENT_RESOURCE, None) == []
