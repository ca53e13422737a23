"""What the cluster holds, as far as we know: kopf's indexes, corrected by what they cannot know yet.

Two corrections. An object that we have just written is known from the answer before its event arrives, so that no pass
acts on the past. And kopf's indexes keep objects that were deleted while a watch was broken (a re-list reports no
deletions), so `verifying` names those as gone.
"""

import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

Body = Mapping[str, Any]
# Namespace and the value of the deployment label.
Key = tuple[str, str]
Index = Mapping[Key, Iterable[Body]]

# An answer whose event has not come by then belongs to an object that was deleted before we heard of it.
_TRUSTED_SECONDS: Final = 60.0
_REMEMBERED: Final = 4096


@dataclass(frozen=True, slots=True)
class _Answer:
    kind: str
    key: Key
    body: Body
    until: float


class ObjectCache:
    """Objects by kind and deployment. `bind` gives it kopf's indexes, by kind."""

    def __init__(self) -> None:
        self._indexes: Mapping[str, Index] = {}
        self._answers: dict[str, _Answer] = {}
        self._gone: set[str] = set()
        self._forgotten: OrderedDict[str, None] = OrderedDict()
        self._complete = False

    def bind(self, indexes: Mapping[str, Index]) -> None:
        """Read from these indexes from now on."""
        self._indexes = indexes

    def complete(self) -> None:
        """All kinds have been listed once: what is not in the indexes is not in the cluster."""
        self._complete = True

    def keys(self, kind: str) -> list[Key]:
        """Deployments that have objects of this kind; none before the indexes are complete."""
        return list(self._indexes.get(kind, {})) if self._complete else []

    def objects(self, kind: str, key: Key) -> list[Body]:
        """The newest known version of every object."""
        found = {body["metadata"]["uid"]: body for body in self._indexed(kind, key)}
        for uid, answer in list(self._answers.items()):
            if (answer.kind, answer.key) != (kind, key):
                continue
            if _outdated(answer, found.get(uid)):
                del self._answers[uid]
            else:
                found[uid] = answer.body
        return [body for uid, body in found.items() if uid not in self._gone]

    def learn(self, kind: str, key: Key, body: Body) -> None:
        """Remember what the API server answered to a write."""
        uid = body.get("metadata", {}).get("uid")
        if uid is not None and uid not in self._gone and uid not in self._forgotten:
            self._answers[uid] = _Answer(kind, key, body, time.monotonic() + _TRUSTED_SECONDS)

    def forget(self, uid: str) -> None:
        """The object is gone for good. Its event may come before the answer to our own write."""
        self._answers.pop(uid, None)
        self._gone.discard(uid)
        self._forgotten[uid] = None
        if len(self._forgotten) > _REMEMBERED:
            self._forgotten.popitem(last=False)

    def lost(self, uids: Iterable[str]) -> None:
        """These objects are gone although the indexes still hold them."""
        for uid in uids:
            self._answers.pop(uid, None)
            self._gone.add(uid)

    def uids(self, kind: str) -> dict[str, Key]:
        """Every object of a kind that the indexes hold and that is not known to be gone."""
        index = self._indexes.get(kind, {})
        return {
            body["metadata"]["uid"]: key
            for key in list(index)
            for body in self._indexed(kind, key)
            if body["metadata"]["uid"] not in self._gone
        }

    def _indexed(self, kind: str, key: Key) -> Iterator[Body]:
        index = self._indexes.get(kind, {})
        return iter(list(index[key])) if key in index else iter(())


def _outdated(answer: _Answer, seen: Body | None) -> bool:
    """Whether an event has overtaken the answer (resource versions of one object are ordered numbers)."""
    if seen is None:
        return time.monotonic() > answer.until
    return int(seen["metadata"]["resourceVersion"]) >= int(answer.body["metadata"]["resourceVersion"])
