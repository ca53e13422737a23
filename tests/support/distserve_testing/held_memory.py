"""How many bytes torch holds at once for what it computes, counted tensor by tensor: the same on every machine."""

from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class HeldMemory(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts what is made under it; `most` bytes were there at once. What a kernel has inside is not seen."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.most = 0
        self._held: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(self, function: Any, _types: Any, arguments: Any = (), more: Any = None) -> Any:
        more = more or {}
        given = {storage._cdata for storage in _storages((arguments, more))}
        made = function(*arguments, **more)
        for storage in _storages(made):
            if storage._cdata not in given:
                self._held[storage._cdata] = StorageWeakRef(storage), storage.nbytes()  # type: ignore[no-untyped-call]
        self._held = {key: held for key, held in self._held.items() if not held[0].expired()}  # type: ignore[no-untyped-call]
        self.most = max(self.most, sum(nbytes for _, nbytes in self._held.values()))
        return made


def _storages(tree: Any) -> list[torch.UntypedStorage]:
    """Of the tensors in it, but for packed weights, which have none."""
    tensors = [one for one in tree_leaves(tree) if isinstance(one, torch.Tensor) and one.layout is torch.strided]
    return [tensor.untyped_storage() for tensor in tensors]
