"""The transfer benchmark measures what it says, over every transport that needs no GPU."""

import pytest

from distserve_worker.benching.transfers import Sample, measure


def test_each_transport_is_timed_beside_as_many_copies_of_the_same_size() -> None:
    samples = measure((1,))
    assert [(sample.transport, sample.nbytes) for sample in samples] == [("shm", 1 << 20), ("tcp", 1 << 20)]
    for sample in samples:
        assert len(sample.pulls) == len(sample.copies) == 64
        assert min(*sample.pulls, *sample.copies) > 0


def test_speeds_are_those_of_the_lower_quartile() -> None:
    summary = Sample("shm", 800, pulls=[4.0, 2.0, 2.0, 2.0, 9.0, 9.0, 9.0], copies=[1.0] * 7).summary()
    assert summary["pullBytesPerSecond"] == pytest.approx(400)
    assert summary["copyBytesPerSecond"] == pytest.approx(800)
    assert summary["ratio"] == pytest.approx(0.5)
