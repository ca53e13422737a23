"""Loads a rank's part of a model and prints by how many bytes the process grew at most, and how many its weights are.

Arguments: path, dtype, tp, pp, rank, and the path of a small model, which is loaded first: code that runs takes memory
too.
"""

import json
import re
import sys
from pathlib import Path

import torch

from distserve_worker.engine.loading.inventory import weight_bytes
from distserve_worker.engine.loading.loading_model import load_model
from distserve_worker.engine.parallel import Grid, shard_of
from distserve_worker.weights.reading import read_config


def _status(field: str) -> int:
    """Bytes of a field of /proc/self/status."""
    found = re.search(rf"^{field}:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def main() -> None:
    path, dtype, small = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[6])
    tp, pp, rank = (int(argument) for argument in sys.argv[3:6])
    torch.set_num_threads(1)
    config = read_config(path)
    shard = shard_of(config, Grid(tp, pp), rank)
    weights = weight_bytes(config, shard, dtype)
    load_model(small, read_config(small), dtype, torch.device("cpu"))
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the highest so far was that of imports
    loaded = load_model(path, config, dtype, torch.device("cpu"), shard=shard)
    print(json.dumps({"grown": _status("VmHWM") - before, "weights": weights, "digest": loaded.digest}))


if __name__ == "__main__":
    main()
