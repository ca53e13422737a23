"""What the API server lists is compared with what is known of it."""

from typing import Any, cast

import pytest

from distserve_operator.cluster.kinds import DEPLOYMENT_RESOURCE
from distserve_operator.cluster.requesting import Api
from distserve_operator.cluster.verifying import _listed


class Answering:
    """An API server that has the same answer to everything."""

    def __init__(self, items: list[dict[str, Any]] | None) -> None:
        self._items = items

    async def get(self, *_: object, **__: object) -> dict[str, Any]:
        return {"metadata": {"resourceVersion": "1"}, "items": self._items}


@pytest.mark.parametrize("items", [None, []], ids=["null", "empty"])
async def test_a_list_without_objects_may_be_null(items: list[dict[str, Any]] | None) -> None:
    """As Go writes a slice that nobody has added to."""
    assert await _listed(cast("Api", Answering(items)), DEPLOYMENT_RESOURCE, None) == []
